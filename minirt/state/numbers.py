"""Columns of numbers and times as numpy arrays, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[Any]
"""int64, or uint64 or float64 for columns of these kinds."""

_WHOLE = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_timestamp,
    pa.types.is_duration,
)


_WIDTHS = {32: pa.int32(), 64: pa.int64()}
"""The integer types of dates and times, by their width in bits."""


def is_whole(type: pa.DataType) -> bool:
    """Whether the values of such a column are whole numbers: integers, bools, dates, times."""
    return any(check(type) for check in _WHOLE)


def is_number(type: pa.DataType) -> bool:
    """Whether `to_numbers` takes such a column."""
    return is_whole(type) or bool(pa.types.is_floating(type))


def number_type(type: pa.DataType) -> npt.DTypeLike:
    """The numpy type that `to_numbers` gives for a column of this type."""
    if pa.types.is_floating(type):
        return np.float64
    return np.uint64 if type == pa.uint64() else np.int64


def to_numbers(array: pa.Array) -> tuple[Numbers, Mask | None]:
    """The values, and a mask of the nulls, None if there are none. The value of a null is 0."""
    type, nulls = array.type, None
    if array.null_count:
        nulls = array.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_null(type):
        return np.zeros(len(array), np.int64), nulls
    if pa.types.is_temporal(type):
        array = array.view(_WIDTHS[type.bit_width])
    if nulls is not None:
        array = array.fill_null(pa.scalar(0, pa.int8()).cast(array.type))
    numbers = array.to_numpy(zero_copy_only=False).astype(number_type(type), copy=False)
    return numbers, nulls


def to_ordered(array: pa.Array) -> pa.Array:
    """Times as whole numbers, all else as it is: what Python compares and takes for equal as Arrow does.

    Python's order of local times does not know which pass of an hour is meant that comes twice, and
    it has no nanoseconds. An array of the numbers with the type of the times is the same array.
    """
    return array.view(_WIDTHS[array.type.bit_width]) if pa.types.is_temporal(array.type) else array


def from_numbers(numbers: Numbers, nulls: Mask | None, type: pa.DataType) -> pa.Array:
    """A column of this type, as `to_numbers` has taken it apart."""
    array = pa.array(numbers, mask=nulls)
    if pa.types.is_null(type):
        return pa.nulls(len(array))
    if pa.types.is_temporal(type):
        return array.cast(_WIDTHS[type.bit_width]).view(type)
    return array.cast(type)


def enlarged(array: npt.NDArray[Any], count: int, needed: int) -> npt.NDArray[Any]:
    """A longer copy with room for `needed` at least, of the first `count` values; the rest is anything."""
    larger = np.empty(max(needed, 2 * len(array)), array.dtype)
    larger[:count] = array[:count]
    return larger


def grown(array: npt.NDArray[Any], count: int, needed: int, fill: Any) -> npt.NDArray[Any]:
    """As `enlarged`; the rest is `fill`."""
    larger = enlarged(array, count, needed)
    larger[count:] = fill
    return larger
