"""Columns in the simplest type that holds the same values.

Arrow has several types for one kind of value, which differ in how they lie in memory. State knows one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

DECIMAL = pa.decimal128(38, 18)
"""Of Python's Decimals, as in Spark: 20 digits before the point, and 18 behind it."""
_MS_PER_DAY = 86_400_000
_LISTS: dict[Callable[[pa.DataType], bool], Callable[..., pa.DataType]] = {
    pa.types.is_list: pa.list_,
    pa.types.is_large_list: pa.large_list,
    pa.types.is_fixed_size_list: pa.list_,
    pa.types.is_list_view: pa.list_view,
    pa.types.is_large_list_view: pa.large_list_view,
}
_OWN_BUFFERS = {
    pa.list_(pa.null(), 1).id: 1,
    pa.list_view(pa.null()).id: 3,
    pa.large_list_view(pa.null()).id: 3,
}
"""How many buffers such an array has besides those of its values, where that is not 2."""
_VIEWED = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def simple_type(type: pa.DataType) -> pa.DataType:
    """The type that `simple` turns a column of this type into."""
    if pa.types.is_dictionary(type):
        return simple_type(type.value_type)
    return _VIEWED.get(type, type)


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type of columns of both, where they differ only in parts that are null throughout one of them.

    None if they differ in more. Python's empty lists, for example, are lists of nulls.
    """
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        if [field.name for field in one] != [field.name for field in other]:
            return None
        parts = [
            common_type(*(field.type for field in pair)) for pair in zip(one, other, strict=True)
        ]
        if None in parts:
            return None
        return pa.struct([field.with_type(part) for field, part in zip(one, parts, strict=True)])
    for is_kind, of in ((pa.types.is_list, pa.list_), (pa.types.is_large_list, pa.large_list)):
        if is_kind(one) and is_kind(other):
            values = common_type(one.value_type, other.value_type)
            return None if values is None else of(one.value_field.with_type(values))
    return None


def simple(array: pa.Array) -> pa.Array:
    """Without dictionaries and views; of date64, whose values may lie within a day, whole days."""
    if pa.types.is_dictionary(array.type):
        return simple(array.dictionary).take(array.indices)
    if array.type in _VIEWED:
        return array.cast(_VIEWED[array.type])
    if pa.types.is_date64(array.type):
        return _rounded_down(array, _MS_PER_DAY, _MS_PER_DAY, array.type)
    return array


def steady(table: pa.RecordBatch) -> pa.RecordBatch:
    """Columns that were made of Python's values, with one type for all Decimals, also inside of others.

    Arrow gives them as many digits as those of a batch need: so batches would differ in type. Values that
    have no room in `DECIMAL` stay as they are.
    """
    for place, field in _unsteady(table.schema).items():
        with suppress(pa.ArrowInvalid):
            table = table.set_column(place, field, table.column(place).cast(field.type))
    return table


@lru_cache
def _unsteady(schema: pa.Schema) -> dict[int, pa.Field]:
    """The places of columns with Decimals, and what they should be."""
    steady = [field.with_type(converted_type(field.type, _steady_type)) for field in schema]
    return {place: field for place, field in enumerate(steady) if field != schema.field(place)}


def no_column(error: Exception) -> str:
    """Why Arrow can make no column of values. Of UUIDs inside of others it just says "extension"."""
    if isinstance(error, pa.ArrowNotImplementedError) and str(error) == "extension":
        return (
            "UUIDs inside of lists and dicts make no column; make texts of them first, by str(...)"
        )
    return str(error)


def in_microseconds_type(type: pa.DataType) -> pa.DataType:
    """The type that `in_microseconds` turns a column of this type into."""
    return converted_type(type, _microseconds_type)


def in_microseconds(array: pa.Array) -> pa.Array:
    """Timestamps and durations of nanoseconds, also those in structs, lists and maps, rounded down to what
    Python's hold; others as they are."""
    return _converted(
        array, _microseconds_type, lambda nanos, to: _rounded_down(nanos, 1000, 1, to)
    )


def in_counts(array: pa.Array) -> pa.Array:
    """As `in_microseconds`, but exactly: how many nanoseconds they are."""
    return _converted(array, _count_type, lambda nanos, to: nanos.view(to))


_LeafType = Callable[[pa.DataType], pa.DataType]
_Leaf = Callable[[pa.Array, pa.DataType], pa.Array]


def _microseconds_type(type: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(type) and type.unit == "ns":
        return pa.timestamp("us", type.tz)
    return pa.duration("us") if type == pa.duration("ns") else type


def _steady_type(type: pa.DataType) -> pa.DataType:
    return DECIMAL if pa.types.is_decimal(type) else type


def _count_type(type: pa.DataType) -> pa.DataType:
    is_exact = _microseconds_type(type) == type and type != pa.time64("ns")
    return type if is_exact else pa.int64()


def converted_type(type: pa.DataType, leaf_type: _LeafType) -> pa.DataType:
    """The type with `leaf_type` applied to what has no parts inside, and without run-end encoding."""
    if pa.types.is_dictionary(type):
        value_type = converted_type(type.value_type, leaf_type)
        return pa.dictionary(type.index_type, value_type, type.ordered)
    if pa.types.is_run_end_encoded(type):
        return converted_type(type.value_type, leaf_type)
    parts = [field.with_type(converted_type(field.type, leaf_type)) for field in _parts(type)]
    return _of_parts(type, parts) if parts else leaf_type(type)


def _converted(array: pa.Array, leaf_type: _LeafType, leaf: _Leaf) -> pa.Array:
    """With other values where `leaf_type` gives another type for them, also inside of nested ones."""
    type = converted_type(array.type, leaf_type)
    if type == array.type:
        return array
    if pa.types.is_dictionary(type):
        dictionary = _converted(array.dictionary, leaf_type, leaf)
        return pa.DictionaryArray.from_arrays(array.indices, dictionary)
    if pa.types.is_run_end_encoded(array.type):
        return _converted(pc.run_end_decode(array), leaf_type, leaf)
    if pa.types.is_struct(type):
        fields = [array.field(place) for place in range(type.num_fields)]
        parts = [_converted(field, leaf_type, leaf) for field in fields]
        return pa.StructArray.from_arrays(parts, fields=list(type), mask=array.is_null())
    if pa.types.is_map(type):
        pairs = pa.StructArray.from_arrays([array.keys, array.items], fields=_pair(array.type))
        return with_values(array, type, _converted(pairs, leaf_type, leaf))
    if is_list(type):
        return with_values(array, type, _converted(array.values, leaf_type, leaf))
    return leaf(array, type)


def is_list(type: pa.DataType) -> bool:
    """Whether its values are lists, of any of Arrow's kinds."""
    return any(check(type) for check in _LISTS)


def _parts(type: pa.DataType) -> list[pa.Field]:
    """The fields of the values inside."""
    if pa.types.is_struct(type):
        return list(type)
    if pa.types.is_map(type):
        return _pair(type)
    return [type.value_field] if is_list(type) else []


def _pair(type: pa.MapType) -> list[pa.Field]:
    return [type.key_field, type.item_field]


def _of_parts(type: pa.DataType, parts: list[pa.Field]) -> pa.DataType:
    """As a type that has parts, but with these."""
    if pa.types.is_struct(type):
        return pa.struct(parts)
    if pa.types.is_map(type):
        return pa.map_(*parts, type.keys_sorted)
    if pa.types.is_fixed_size_list(type):
        return pa.list_(parts[0], type.list_size)
    for check, make in _LISTS.items():
        if check(type):
            return make(parts[0])
    return type


def with_values(array: pa.Array, type: pa.DataType, values: pa.Array) -> pa.Array:
    """The same lists, of other values; the buffers of their own come first."""
    own = array.buffers()[: _OWN_BUFFERS.get(type.id, 2)]
    return pa.Array.from_buffers(type, len(array), own, offset=array.offset, children=[values])


def _rounded_down(array: pa.Array, divisor: int, factor: int, type: pa.DataType) -> pa.Array:
    nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    whole: npt.NDArray[Any] = array.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    rounded = np.floor_divide(whole, divisor) * factor
    return pa.array(rounded, mask=nulls).view(type)
