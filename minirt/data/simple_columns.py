"""Columns in the simplest type that holds the same values.

Arrow has several types for one kind of value, which differ in how they lie in memory. State knows one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_MS_PER_DAY = 86_400_000
_VIEWED = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def simple_type(type: pa.DataType) -> pa.DataType:
    """The type that `simple` turns a column of this type into."""
    if pa.types.is_dictionary(type):
        return simple_type(type.value_type)
    return _VIEWED.get(type, type)


def simple(array: pa.Array) -> pa.Array:
    """Without dictionaries and views; of date64, whose values may lie within a day, whole days."""
    if pa.types.is_dictionary(array.type):
        return simple(array.dictionary_decode())
    if array.type in _VIEWED:
        return array.cast(_VIEWED[array.type])
    if pa.types.is_date64(array.type):
        return _rounded_down(array, _MS_PER_DAY, _MS_PER_DAY, array.type)
    return array


def in_microseconds_type(type: pa.DataType) -> pa.DataType:
    """The type that `in_microseconds` turns a column of this type into."""
    if pa.types.is_timestamp(type) and type.unit == "ns":
        return pa.timestamp("us", type.tz)
    return pa.duration("us") if type == pa.duration("ns") else type


def in_microseconds(array: pa.Array) -> pa.Array:
    """Timestamps and durations of nanoseconds rounded down to what Python's hold; others as they are."""
    type = in_microseconds_type(array.type)
    return array if type == array.type else _rounded_down(array, 1000, 1, type)


def _rounded_down(array: pa.Array, divisor: int, factor: int, type: pa.DataType) -> pa.Array:
    nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    whole: npt.NDArray[Any] = array.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    rounded = np.floor_divide(whole, divisor) * factor
    return pa.array(rounded, mask=nulls).view(type)
