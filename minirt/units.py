"""Numbers, durations, sizes and points in time as users write them, checked and turned into numbers."""

from __future__ import annotations

import datetime as dt
import re

from minirt.errors import ConfigurationError

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]+)\s*")

Duration = str | int | float | dt.timedelta
Size = str | int


def positive(option: str, value: object) -> int:
    """The value if it is an int above 0. Raises ConfigurationError otherwise."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(f"{option} must be a whole number above 0, got {value!r}")
    return value


def seconds(value: Duration, option: str = "duration") -> float:
    """`"10s"`, `"5min"`, a timedelta or a number of seconds, as seconds; never negative.

    Units are in lower case: "1M" is refused, as it may be meant for a month or for a million.
    """
    if isinstance(value, dt.timedelta):
        result = value.total_seconds()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        result = float(value)
    else:
        result = _quantity(value, _SECONDS, option)
    if not 0 <= result < float("inf"):
        raise ConfigurationError(f"{option} must be finite and not negative, got {value!r}")
    return result


def milliseconds(value: Duration, option: str = "duration") -> int:
    """As `seconds`, in whole milliseconds, the unit of event time: at most 100,000 days."""
    exact = seconds(value, option) * 1000
    found = round(exact)
    if abs(exact - found) > 1e-6 * max(exact, 1):
        raise ConfigurationError(f"{option} must be of whole milliseconds, got {value!r}")
    if found > _LONGEST_MS:
        raise ConfigurationError(f"{option} must be at most 100000d, got {value!r}")
    return found


def size_bytes(value: Size, option: str = "size") -> int:
    """`"64KiB"`, `"1MB"` or a number of bytes, as bytes; never negative."""
    if isinstance(value, int) and not isinstance(value, bool):
        result = value
    else:
        result = int(_quantity(value, _BYTES, option, folds_case=True))
    if result < 0:
        raise ConfigurationError(f"{option} must not be negative, got {value!r}")
    return result


def event_time_ms(value: object) -> int:
    """A point in event time as milliseconds since 1970 UTC; datetimes without zone count as UTC.

    Texts are taken in the forms that `isoformat` gives, as sinks write them: "2025-01-31", or
    "2025-01-31T12:30:00.5", with or without an offset such as "+01:00". Raises TypeError for anything but
    such a text, an int (already milliseconds), a datetime or a date.
    """
    if isinstance(value, str) and _ISO_TIME.fullmatch(value):
        try:
            value = dt.datetime.fromisoformat(value)
        except ValueError as error:
            raise TypeError(f"{value!r} is no time: {error}") from None
    if isinstance(value, dt.datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
        return (aware - _EPOCH) // _MILLISECOND
    if isinstance(value, dt.date):
        return (
            dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC) - _EPOCH
        ) // _MILLISECOND
    if hasattr(value, "__index__") and not isinstance(value, bool):
        return int(value)
    given = f"str, as in {value!r}" if isinstance(value, str) else type(value).__name__
    raise TypeError(
        "a timestamp is an int of milliseconds, a datetime, a date or a text such as "
        f"'2025-01-31T12:30:00+00:00', not {given}"
    )


_ISO_TIME = re.compile(
    r"\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\d(\.\d{1,9})?([+-]\d\d:\d\d(:\d\d)?)?)?", re.ASCII
)


_LONGEST_MS = 100_000 * 86_400_000
"""Event time and 270 years more are within what 64 bits of milliseconds can tell."""
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND = dt.timedelta(milliseconds=1)


def _quantity(
    value: object,
    units: dict[str, float] | dict[str, int],
    option: str,
    *,
    folds_case: bool = False,
) -> float:
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if (
        match is not None
        and (factor := units.get(match[2].lower() if folds_case else match[2])) is not None
    ):
        return float(match[1]) * factor
    known = ", ".join(units)
    hint = ""
    if match is not None and match[2].lower() in units:
        hint = f"; did you mean {match[1] + match[2].lower()!r}?"
    raise ConfigurationError(
        f"{option}: cannot read {value!r}; write a number and one of {known}{hint}"
    )
