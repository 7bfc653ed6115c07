"""What the arguments of a join mean, checked where the user writes them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from minirt.errors import ConfigurationError
from minirt.operators.common.checks import check_instance
from minirt.operators.common.join_bounds import JoinBounds, Lasting, SameWindow, Within
from minirt.operators.join_as_of import AsOf
from minirt.units import Duration, milliseconds
from minirt.windows import Tumbling

JoinKeys = str | Sequence[str] | Mapping[str, str]
"""A column of both sides, several, or columns of the left with those of the right that they equal."""


def join_keys(on: JoinKeys, label: str) -> tuple[list[str], list[str]]:
    """The key columns of the left and of the right. Raises ConfigurationError."""
    parts: list[Any] = [on] if isinstance(on, str) else list(on) if _is_several(on) else []
    others = list(on.values()) if isinstance(on, Mapping) else parts
    if not parts or not all(isinstance(part, str) and part for part in (*parts, *others)):
        raise ConfigurationError(
            f"{label}: on is a column, several columns, or a dict of columns of the left and those of the "
            f"right that they equal, not {on!r}; a key that is computed needs a column of its own"
        )
    return parts, others


def join_bounds(
    within: tuple[Duration, Duration] | None,
    window: Tumbling | None,
    ttl: Duration | None,
    label: str,
) -> JoinBounds:
    """Which times partners have. Raises ConfigurationError."""
    given = {"within": within, "window": window, "ttl": ttl}
    said = [name for name, value in given.items() if value is not None]
    if not said:
        raise ConfigurationError(
            f"{label}: say within=('-5min', '10min'), window=Tumbling(...) or ttl='1d': a join without "
            "bounds of time would have to keep all records for ever"
        )
    if len(said) > 1:
        raise ConfigurationError(f"{label}: {' and '.join(said)} exclude each other; leave one out")
    if ttl is not None:
        ttl_ms = milliseconds(ttl, f"{label}: ttl")
        if ttl_ms < 1:
            raise ConfigurationError(f"{label}: a ttl must be at least 1ms, got {ttl!r}")
        return Lasting(ttl_ms)
    if window is not None:
        check_instance(window, Tumbling, label)
        if window.allowed_lateness_ms:
            raise ConfigurationError(
                f"{label}: allowed_lateness has no effect on a join; leave it out"
            )
        if window.timezone is not None:
            raise ConfigurationError(
                f"{label}: civil days have no fixed length, which a join needs; leave timezone out"
            )
        return SameWindow(window.size_ms, window.offset_ms)
    if not isinstance(within, tuple | list) or len(within) != 2:
        raise ConfigurationError(
            f"{label}: within is two durations, the least and the largest time by which a record of the "
            f"right is newer than its partner, not {within!r}"
        )
    first, last = (_offset_ms(bound, f"{label}: within") for bound in within)
    if first > last:
        raise ConfigurationError(f"{label}: within ends before it begins: {within!r}")
    return Within(first, last)


def as_of_bounds(tolerance: Duration | None, lateness: Duration, label: str) -> AsOf:
    """Which version is that of a record. Raises ConfigurationError."""
    return AsOf(
        None if tolerance is None else milliseconds(tolerance, f"{label}: tolerance"),
        milliseconds(lateness, f"{label}: allowed_lateness"),
    )


def _offset_ms(value: Any, option: str) -> int:
    """As `milliseconds`, also below zero: `"-5min"`."""
    sign = 1
    if isinstance(value, str) and value.strip()[:1] in ("-", "+"):
        sign = -1 if value.strip()[0] == "-" else 1
        value = value.strip()[1:]
    elif _is_negative(value):
        sign, value = -1, -value
    return sign * milliseconds(value, option)


def _is_several(on: object) -> bool:
    return isinstance(on, Mapping | Sequence) and not isinstance(on, bytes)


def _is_negative(value: Any) -> bool:
    if isinstance(value, dt.timedelta):
        return value < dt.timedelta()
    return isinstance(value, int | float) and not isinstance(value, bool) and value < 0


def join_columns(
    columns: tuple[Sequence[str], Sequence[str]] | None,
    known: tuple[pa.Schema | None, pa.Schema | None],
    label: str,
) -> tuple[pa.Schema | None, pa.Schema | None]:
    """The columns of both sides: those that are known, else those that the user names.

    Raises ConfigurationError.
    """
    if columns is None:
        return known
    if not isinstance(columns, tuple | list) or len(columns) != 2:
        raise ConfigurationError(
            f"{label}: columns is the names of the left and those of the right, not {columns!r}"
        )
    found = []
    for names, schema in zip(columns, known, strict=True):
        if schema is None:
            if isinstance(names, str) or not all(isinstance(name, str) for name in names):
                raise ConfigurationError(f"{label}: columns are names, not {names!r}")
            schema = pa.schema([pa.field(name, pa.null()) for name in names])
        elif list(names) != schema.names:
            raise ConfigurationError(
                f"{label}: columns says {', '.join(names)}, but there are {', '.join(schema.names)}"
            )
        found.append(schema)
    return found[0], found[1]
