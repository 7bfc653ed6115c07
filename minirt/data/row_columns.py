"""Rows as columns, as far as each value stays what it is.

Arrow makes columns of nearly anything: it takes sets and tuples for lists, datetimes for dates if a date
comes first, texts for bytes, and a dict for one with the fields of all others. Here such a column is none,
and the reason names its values.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from minirt.data.errors import UnlikeTypesError
from minirt.data.simple_columns import converted_type, no_column, steady_type
from minirt.data.unify import widened
from minirt.data.values import shown

_FAMILIES: tuple[tuple[type | tuple[type, ...], str], ...] = (
    ((bool, np.bool_), "bool"),
    ((int, np.integer), "int"),
    ((float, np.floating), "float"),
    (Decimal, "decimal"),
    ((str, np.str_), "text"),
    ((bytes, np.bytes_), "bytes"),
    (dt.datetime, "datetime"),
    (dt.date, "date"),
    (dt.time, "time"),
    (dt.timedelta, "span"),
    (UUID, "uuid"),
    (np.datetime64, "numpy datetime"),
    (np.timedelta64, "numpy span"),
    (list, "list"),
    (dict, "dict"),
)
_TOGETHER = (frozenset({"int", "float"}), frozenset({"int", "decimal"}))
"""Values of these kinds make one column, in which whole numbers become what the others are."""

_SAME = frozenset({bool, int, float, str, bytes, dt.date, dt.timedelta, UUID})
"""Python's values of these types come out of columns as they went in, down to their text."""

_NO_COLUMN = (pa.ArrowException, TypeError, ValueError, OverflowError)
_NONE = type(None)
_TYPES = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
}


@dataclass(slots=True)
class LaidOut:
    """The columns of rows: those that keep each value, and why others do not.

    A field that a record lacks is null in its column.
    """

    arrays: dict[str, pa.Array] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    differing: tuple[Any, Any] | None = None
    """Two of the records, if not all have the same fields."""
    identical: bool = True
    """Whether the rows of the columns would be the given ones, and not only equal to them."""

    def table(self, count: int) -> pa.RecordBatch:
        """The columns that there are, of so many records."""
        arrays = self.arrays or {"\x1enone": pa.nulls(count)}
        return pa.RecordBatch.from_arrays([*arrays.values()], [*arrays])


def lay_out(records: Sequence[Any], names: Collection[str] | None = None) -> LaidOut:
    """The columns of records, at least one, or these alone of their columns.

    Raises ValueError if a record is no dict, or has names that are not texts.
    """
    laid = LaidOut()
    kinds = set(map(type, records))
    if kinds != {dict}:
        strange = next((record for record in records if not isinstance(record, Mapping)), None)
        if strange is not None or not all(issubclass(kind, Mapping) for kind in kinds):
            raise ValueError(f"the {type(strange).__name__} {shown(strange)} is no dict")
        laid.identical = False
    for name, values in _columns(records, names, laid):
        try:
            laid.arrays[name], identical = column_of(values)
        except ValueError as error:
            laid.problems[name] = f"column {name!r}: {error}"
            identical = False
        laid.identical &= identical
    return laid


def _columns(
    records: Sequence[Any], names: Collection[str] | None, laid: LaidOut
) -> Iterable[tuple[str, Sequence[Any]]]:
    """The name and the values of each column, in the order in which names come."""
    first = records[0].keys()
    wanted = [name for name in first if names is None or name in names]
    # Few batches differ: then most have another number of fields, or lack one.
    if names is None:
        alike = sum(map(len, records)) == len(first) * len(records)
    else:
        alike = len(wanted) == len(names)
    columns = _values(records, wanted) if alike else None
    if columns is None:
        known = dict.fromkeys(chain(*records))
        wanted = [name for name in known if names is None or name in names]
        columns = [[record.get(name) for record in records] for name in wanted]
        other = next((record for record in records if record.keys() != first), None)
        if other is not None:
            laid.differing, laid.identical = (records[0], other), False
    strange = next((name for name in wanted if not isinstance(name, str)), None)
    if strange is not None:
        raise ValueError(f"a column is named by a str, not by {shown(strange)}")
    return zip(wanted, columns, strict=True)


def _values(records: Sequence[Any], names: Sequence[str]) -> Sequence[Sequence[Any]] | None:
    """The values of each column; None if a record lacks one."""
    if not names:
        return []
    rows: Iterable[Any] = map(itemgetter(*names), records)
    try:
        return [list(rows)] if len(names) == 1 else [*zip(*rows, strict=True)]
    except KeyError:
        return None


def column_of(values: Sequence[Any]) -> tuple[pa.Array, bool]:
    """A column of these values, and whether they come out of it identical, and not only equal.

    Unlike `from_python.column_of`, it refuses tuples, sets and dicts that differ in fields, since rows made
    of the column would have others, and gives the batches of a stream one type of Decimals and of zones.

    Raises ValueError, which says which values make no column.
    """
    zones: set[str] = set()
    kinds = set(map(type, values))
    kinds.discard(_NONE)
    identical = _check(values, kinds, zones)
    try:
        # To be told the type saves Arrow a look at each value.
        array = pa.array(values, _TYPES.get(*kinds) if len(kinds) == 1 else None)
        if zones:
            array = _in_one_zone(array, zones)
    except _NO_COLUMN as error:
        raise ValueError(no_column(error)) from error
    # Arrow gives Decimals as many digits as those of a batch need: so batches would differ in type.
    steady = steady_type(array.type)
    if steady != array.type:
        with suppress(pa.ArrowInvalid):
            array = array.cast(steady)
    return array, identical


def _in_one_zone(array: pa.Array, zones: set[str]) -> pa.Array:
    """Of one named zone as it is; else in UTC: a column has one zone, and offsets change with clocks."""
    if len(zones) == 1 and "" not in zones:
        return array
    type = converted_type(array.type, _in_utc)
    try:
        return widened(array, type, "")
    except UnlikeTypesError as error:
        raise ValueError(str(error)) from error


def _in_utc(type: pa.DataType) -> pa.DataType:
    has_zone = pa.types.is_timestamp(type) and type.tz is not None
    return pa.timestamp(type.unit, "UTC") if has_zone else type


def _family(kind: type) -> str | None:
    return _family_of(kind)


@lru_cache(maxsize=1024)
def _family_of(kind: Hashable) -> str | None:
    """What kind of column values of a type make; None if they make none that keeps them."""
    assert isinstance(kind, type)
    if issubclass(kind, Enum):
        return None
    for types, name in _FAMILIES:
        if kind in (types if isinstance(types, tuple) else (types,)):
            return name
    for types, name in _FAMILIES:
        if issubclass(kind, (np.generic, dt.datetime, dt.timedelta)) and issubclass(kind, types):
            return name
    return None


def _check_all(values: Sequence[Any], zones: set[str]) -> bool:
    kinds = set(map(type, values))
    kinds.discard(_NONE)
    return _check(values, kinds, zones)


def _check(values: Sequence[Any], kinds: set[type], zones: set[str]) -> bool:
    """Whether values come out of a column identical; notes the zones of datetimes, "" for no name.

    Raises ValueError for values that would not come out equal.
    """
    if len(kinds) == 1 and kinds <= _SAME:
        return True
    families = {_family(kind): kind for kind in kinds}
    if None in families:
        raise ValueError(_unknown(values, families[None]))
    if len(families) > 1:
        if not any(families.keys() <= together for together in _TOGETHER):
            raise ValueError(_mixed(values, families))
        if "float" in families:
            _check_whole_numbers(values)
        return False
    [family] = families or [None]
    check = _CHECKS.get(family or "")
    if check is None:
        return not kinds
    return check([value for value in values if value is not None], zones) and kinds <= _PLAIN


def _check_whole_numbers(values: Sequence[Any]) -> None:
    """Raise ValueError for one that cannot become a float as those beside it are."""
    for value in values:
        if _family(type(value)) == "int" and not -(2**53) <= value <= 2**53:
            raise ValueError(
                f"the int {shown(value)} cannot become a float, as others beside it are, without a change; "
                "make them of one type"
            )


def _unknown(values: Sequence[Any], kind: type) -> str:
    value = next(value for value in values if type(value) is kind)
    advice = {tuple: "list", set: "sorted list", frozenset: "sorted list", np.ndarray: "list"}
    other = advice.get(kind, "bytes" if kind in (bytearray, memoryview) else "plain value")
    return (
        f"{shown(value)} is a {kind.__module__}.{kind.__qualname__}".replace("builtins.", "")
        + f", which a column cannot hold as it is; make a {other} of it"
    )


def _mixed(values: Sequence[Any], families: Mapping[str | None, type]) -> str:
    """Names the first value, and one of another kind."""
    one = next(value for value in values if value is not None)
    own = type(one)
    others = {kind for kind in families.values() if kind is not own}
    other = next(value for value in values if type(value) in others)
    return (
        f"it holds the {type(one).__name__} {shown(one)} and the {type(other).__name__} "
        f"{shown(other)}; make them of one type"
    )


def _check_lists(values: Sequence[Any], zones: set[str]) -> bool:
    return _check_all([*chain.from_iterable(values)], zones)


def _check_dicts(values: Sequence[Any], zones: set[str]) -> bool:
    shapes = dict.fromkeys(map(tuple, values))
    first = next(iter(shapes))
    strange = next((name for name in first if not isinstance(name, str)), None)
    if strange is not None:
        raise ValueError(f"the field {shown(strange)} of a dict is not named by a str")
    if any(set(shape) != set(first) for shape in shapes):
        other = next(value for value in values if value.keys() != values[0].keys())
        raise ValueError(
            f"the dicts {shown(values[0])} and {shown(other)} differ in their fields, and in a column "
            "each would have those of all; give all dicts the same fields"
        )
    identical = len(shapes) == 1
    for name in first:
        try:
            identical &= _check_all([value[name] for value in values], zones)
        except ValueError as error:
            raise ValueError(f"field {name!r}: {error}") from error
    return identical


def _check_datetimes(values: Sequence[Any], zones: set[str]) -> bool:
    kinds = {type(value) for value in values}
    if kinds != {dt.datetime}:
        _check_nanoseconds(values, "nanosecond")
    known = set(map(attrgetter("tzinfo"), values))
    if known == {None}:
        return kinds == {dt.datetime} and not any(map(attrgetter("fold"), values))
    if None in known:
        one, other = (
            next(value for value in values if (value.tzinfo is None) is missing)
            for missing in (True, False)
        )
        raise ValueError(
            f"it holds {shown(one)} without a zone and {shown(other)} with one; give all a zone"
        )
    names = {_zone_name(zone) for zone in known}
    zones |= names
    for value in values:
        if type(value.tzinfo) is not dt.timezone and _does_not_exist(value):
            raise ValueError(f"{shown(value)} does not exist: clocks of its zone skip it")
    return False


def _zone_name(zone: dt.tzinfo) -> str:
    """The name of a zone, as zoneinfo and pytz have it; an empty one for others."""
    if zone is dt.UTC:
        return "UTC"
    name = getattr(zone, "key", None) or getattr(zone, "zone", None)
    return name if isinstance(name, str) else ""


def _does_not_exist(time: dt.datetime) -> bool:
    try:
        return time.astimezone(dt.UTC).astimezone(time.tzinfo).replace(tzinfo=None) != time.replace(
            tzinfo=None
        )
    except OverflowError:
        return False


def _check_times(values: Sequence[Any], zones: set[str]) -> bool:
    for value in values:
        if value.tzinfo is not None:
            raise ValueError(
                f"{shown(value)} has a zone, which times of day in a column do not have; make a text or a "
                "datetime of it"
            )
    return not any(map(attrgetter("fold"), values))


def _check_spans(values: Sequence[Any], zones: set[str]) -> bool:
    _check_nanoseconds(values, "nanoseconds")
    return False


def _check_nanoseconds(values: Sequence[Any], name: str) -> None:
    """Raise ValueError for a value, as pandas has them, with more digits than a column made of it."""
    for value in values:
        if getattr(value, name, 0):
            raise ValueError(
                f"{shown(value)} has nanoseconds, which get lost; make it a numpy.{type(value).__name__}"
            )


_CHECKS = {
    "list": _check_lists,
    "dict": _check_dicts,
    "datetime": _check_datetimes,
    "time": _check_times,
    "span": _check_spans,
}
_PLAIN = frozenset({dt.datetime, dt.time, list, dict})
