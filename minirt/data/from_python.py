"""Columns made of Python's values: each arrives as it is, or the column is refused.

Arrow by itself drops the time of a datetime behind a date and the zone of a time, mixes times with and
without a zone, takes texts for bytes, and leaves out fields that a struct type does not name.

These columns go to files, tables and other programs: a tuple may be a list there, and a dict may lack
fields. `row_columns` makes those of operators, out of which each value must come equal to what went in.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from minirt.data.errors import UnlikeTypesError
from minirt.data.fitting import fitted
from minirt.data.simple_columns import converted_type, is_list

REFUSALS = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""What both functions raise for values that make no column; UnlikeTypesError is a TypeError."""


def column_of(values: Sequence[Any], column: str) -> pa.Array:
    """The values as an array of the type that Arrow infers. Raises `REFUSALS`.

    Unlike `row_columns.column_of`, it takes tuples and sets for lists and dicts that lack fields, and
    leaves Decimals and zones in the type that Arrow finds.
    """
    array = pa.array(values)
    if _is_mixable(array.type):
        _check_alike(values, array.type, column)
    return array


def column_as(values: Sequence[Any], type: pa.DataType, column: str) -> pa.Array:
    """The values as an array of this type, as `fitted` makes columns of it. Raises `REFUSALS`."""
    try:
        inferred = column_of(values, column)
    except UnlikeTypesError:
        raise
    except (pa.ArrowException, OverflowError, TypeError):
        return _compared(values, type, column)
    if inferred.type == type:
        return inferred
    return _compared(values, type, column) if _has_map(type) else fitted(inferred, type, column)


def _compared(values: Sequence[Any], type: pa.DataType, column: str) -> pa.Array:
    """For types that Arrow does not infer, such as maps and uint64: by a look at what comes back."""
    array = pa.array(values, type)
    for value, made in zip(values, array.to_pylist(), strict=True):
        if not _is_same(value, made):
            raise UnlikeTypesError(column, _kind(value), type, value)
    return array


@lru_cache
def _is_mixable(type: pa.DataType) -> bool:
    """Whether Arrow infers a type with such values inside also for values that are of different kinds."""
    return _has_leaf(type, lambda leaf: any(check(leaf) for check in _MIXABLE))


_MIXABLE = pa.types.is_binary, pa.types.is_date, pa.types.is_timestamp, pa.types.is_time


@lru_cache
def _has_map(type: pa.DataType) -> bool:
    if pa.types.is_map(type):
        return True
    return any(_has_map(type.field(place).type) for place in range(type.num_fields))


def _has_leaf(type: pa.DataType, check: Any) -> bool:
    found = False

    def look(leaf: pa.DataType) -> pa.DataType:
        nonlocal found
        found = found or check(leaf)
        return leaf

    converted_type(type, look)
    return found


def _check_alike(values: Sequence[Any], type: pa.DataType, column: str) -> None:
    """Raises UnlikeTypesError for two values of different kinds in what Arrow took for one column."""
    if pa.types.is_struct(type):
        there = [value for value in values if value is not None]
        for field in type:
            if _is_mixable(field.type):
                parts = [value.get(field.name) for value in there]
                _check_alike(parts, field.type, f"{column}.{field.name}")
    elif is_list(type):
        if _is_mixable(type.value_type):
            parts = [one for value in values if value is not None for one in value]
            _check_alike(parts, type.value_type, f"{column}[]")
    elif not _are_plainly_alike(values):
        kinds: dict[str, Any] = {}
        for value in values:
            if value is not None:
                kinds.setdefault(_kind(value), value)
        if len(kinds) > 1:
            (one, _), (other, value) = list(kinds.items())[:2]
            raise UnlikeTypesError(column, other, one, value)
        if any(kind.startswith("time ") for kind in kinds):
            [(kind, value)] = kinds.items()
            raise UnlikeTypesError(column, kind, type, value)


def _are_plainly_alike(values: Sequence[Any]) -> bool:
    """Whether the values are of one type, and with or without a zone all of them: most columns are."""
    types = set(map(type, values)) - {type(None)}
    if types <= {bytes} or types <= {dt.date}:
        return True
    if types == {dt.datetime}:
        return len({value.tzinfo is None for value in values if value is not None}) == 1
    return types == {dt.time} and all(value is None or value.tzinfo is None for value in values)


def _kind(value: Any) -> str:
    """What kinds of values never share a column, in words."""
    match value:
        case dt.datetime():
            return "datetime without a zone" if value.tzinfo is None else "datetime with a zone"
        case dt.time() if value.tzinfo is not None:
            return "time with a zone"
        case np.datetime64():
            return "datetime without a zone"
        case str():
            return "str"
        case bytes() | bytearray() | memoryview():
            return "bytes"
    return type(value).__name__


def _is_same(value: Any, made: Any) -> bool:
    """Whether a value came back from an array as it was."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if value is None or made is None:
        return value is made
    if isinstance(value, Mapping):
        return _is_same_mapping(value, made)
    if isinstance(value, list | tuple | set | frozenset):
        if isinstance(made, Mapping) or len(value) != len(made):
            return False
        return all(map(_is_same, value, made))
    are_numbers = _is_number(value) and _is_number(made)
    if not are_numbers and _kind(value) != _kind(made):
        return False
    if isinstance(value, float) and isinstance(made, float) and math.isnan(value):
        return math.isnan(made)
    return bool(value == made)


def _is_same_mapping(value: Mapping[Any, Any], made: Any) -> bool:
    if isinstance(made, Mapping):
        missing = (name for name in made if name not in value)
        return all(made[name] is None for name in missing) and all(
            name in made and _is_same(value[name], made[name]) for name in value
        )
    return len(value) == len(made) and all(map(_is_same, map(list, value.items()), made))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)
