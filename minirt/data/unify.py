"""One type for values of two types, and columns in it: only where each value stays what it is.

This module alone decides which types of Arrow go together. A wider type of the same kind can hold the
values of a narrower one; null goes with every type; whole numbers go with floats where each of them is
exact. Everything else raises `UnlikeTypesError`, which names the column and both types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from minirt.data.errors import UnlikeTypesError
from minirt.data.simple_columns import is_list, with_values, without_runs

_UNITS = ("s", "ms", "us", "ns")
_UTC = "UTC"
_DIGITS_MAX, _WIDE_DIGITS_MAX = 38, 76
_DIGITS_OF_BITS = {8: 3, 16: 5, 32: 10, 64: 20}
"""How many digits the whole numbers of this many bits have at most."""


def unified_type(
    one: pa.DataType, other: pa.DataType, column: str, *, missing_fields: bool = True
) -> pa.DataType:
    """The narrowest type that holds the values of both.

    For some pairs, such as int64 and double, whether it holds them depends on the values: `widened`
    checks each. Structs get the fields of both, and a missing field is null; `missing_fields=False`
    refuses structs that differ in fields. Raises UnlikeTypesError, which names `column`.
    """
    if one == other:
        return one
    if pa.types.is_null(other):
        return without_runs(one)
    if pa.types.is_null(one):
        return without_runs(other)
    result = None
    if not _is_encoded(one) and not _is_encoded(other):
        result = _of_leaves(one, other) or _of_nested(one, other, column, missing_fields)
    elif pa.types.is_dictionary(one) and pa.types.is_dictionary(other):
        values = unified_type(
            one.value_type, other.value_type, column, missing_fields=missing_fields
        )
        index = _of_leaves(one.index_type, other.index_type)
        result = pa.dictionary(index, values, one.ordered and other.ordered)
    else:
        one, other = (type.value_type if _is_encoded(type) else type for type in (one, other))
        return unified_type(one, other, column, missing_fields=missing_fields)
    if result is None:
        raise UnlikeTypesError(column, one, other)
    return result


def unified_schema(one: pa.Schema, other: pa.Schema, *, missing_fields: bool = True) -> pa.Schema:
    """The columns of both, those of `one` first, in the types of `unified_type`.

    Raises UnlikeTypesError for the first column whose types do not go together.
    """
    return pa.schema(_united_fields(list(one), list(other), "", missing_fields))


Leaf = Callable[[pa.Array, pa.DataType, str], pa.Array]
"""Turns values without parts into another type, or raises UnlikeTypesError, which names the column."""


def widened(
    array: pa.Array, type: pa.DataType, column: str, *, leaf: Leaf | None = None
) -> pa.Array:
    """The same values as an array of this type, which `unified_type` gave for it.

    `leaf` turns values without parts into their type, also those inside of others; by default into one that
    is wider. Raises UnlikeTypesError for the first value that the type cannot hold exactly; its message
    shows the value.
    """
    leaf = leaf or _widened_leaf
    if array.type == type:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), type)
    if pa.types.is_run_end_encoded(array.type):
        return widened(pc.run_end_decode(array), type, column, leaf=leaf)
    if pa.types.is_dictionary(array.type):
        return _widened_dictionary(array, type, column, leaf)
    if pa.types.is_dictionary(type):
        encoded = widened(array, type.value_type, column, leaf=leaf).dictionary_encode()
        return widened(encoded, type, column, leaf=leaf)
    if pa.types.is_struct(type) and pa.types.is_struct(array.type):
        return _widened_struct(array, type, column, leaf)
    if pa.types.is_map(type) and pa.types.is_map(array.type):
        return _widened_map(array, type, column, leaf)
    if is_list(type) and is_list(array.type):
        return _widened_list(array, type, column, leaf)
    return leaf(array, type, column)


def widened_table(table: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same records with the columns of this schema; a column that they lack is null.

    Raises UnlikeTypesError for a column that the schema lacks too, and as `widened`.
    """
    if table.schema.equals(schema):
        return table
    names = set(table.schema.names)
    for name in table.schema.names:
        if schema.get_field_index(name) < 0:
            raise UnlikeTypesError(name, table.schema.field(name).type, None)
    columns = [
        widened(table.column(each.name), each.type, each.name)
        if each.name in names
        else pa.nulls(table.num_rows, each.type)
        for each in schema
    ]
    if not columns:
        return table.select([])
    return pa.RecordBatch.from_arrays(columns, schema=schema)


# Types.


def _is_encoded(type: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(type) or pa.types.is_run_end_encoded(type))


def _of_leaves(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    for unite in (_of_numbers, _of_texts, _of_times):
        result = unite(one, other) or unite(other, one)
        if result is not None:
            return result
    return None


def _of_numbers(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if pa.types.is_integer(one) and pa.types.is_integer(other):
        return _of_integers(one, other)
    if pa.types.is_floating(one) and pa.types.is_floating(other):
        return one if one.bit_width >= other.bit_width else other
    if pa.types.is_floating(one) and pa.types.is_integer(other):
        return pa.float32() if one.bit_width <= 32 and other.bit_width <= 16 else pa.float64()
    if pa.types.is_decimal(one) and pa.types.is_decimal(other):
        return _decimal(
            one.precision - one.scale, one.scale, other.precision - other.scale, other.scale
        )
    if pa.types.is_decimal(one) and pa.types.is_integer(other):
        digits = _DIGITS_OF_BITS[other.bit_width]
        return _decimal(one.precision - one.scale, one.scale, digits, 0)
    return None


def _of_integers(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    wider = max(one.bit_width, other.bit_width)
    signed = [pa.types.is_signed_integer(type) for type in (one, other)]
    if all(signed) or not any(signed):
        return one if one.bit_width == wider else other
    unsigned = other if signed[0] else one
    if unsigned.bit_width == wider:
        wider = min(2 * wider, 64)
    return {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[wider]


def _decimal(whole: int, scale: int, other_whole: int, other_scale: int) -> pa.DataType | None:
    behind = max(scale, other_scale)
    digits = max(max(whole, other_whole) + behind, 1)
    if digits > _WIDE_DIGITS_MAX:
        return None
    make = pa.decimal128 if digits <= _DIGITS_MAX else pa.decimal256
    return make(digits, behind)


def _of_texts(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    pieces = (
        *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
        pa.types.is_fixed_size_binary,
    )
    for checks, plain, large in (
        (texts, pa.string(), pa.large_string()),
        (pieces, pa.binary(), pa.large_binary()),
    ):
        if all(any(check(type) for check in checks) for type in (one, other)):
            return large if large in (one, other) else plain
    return None


def _of_times(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if pa.types.is_date(one) and pa.types.is_date(other):
        return pa.date64()
    if pa.types.is_time(one) and pa.types.is_time(other):
        unit = _finer(one.unit, other.unit)
        return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
    if pa.types.is_duration(one) and pa.types.is_duration(other):
        return pa.duration(_finer(one.unit, other.unit))
    if pa.types.is_timestamp(one) and pa.types.is_timestamp(other):
        if (one.tz is None) != (other.tz is None):
            return None
        # A column has one zone; the instants of two zones are told apart in UTC.
        return pa.timestamp(_finer(one.unit, other.unit), one.tz if one.tz == other.tz else _UTC)
    return None


def _finer(one: str, other: str) -> str:
    return _UNITS[max(_UNITS.index(one), _UNITS.index(other))]


def _of_nested(
    one: pa.DataType, other: pa.DataType, column: str, missing_fields: bool
) -> pa.DataType | None:
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        if not missing_fields and {each.name for each in one} != {each.name for each in other}:
            return None
        return pa.struct(_united_fields(list(one), list(other), f"{column}.", missing_fields))
    if pa.types.is_map(one) and pa.types.is_map(other):
        pairs = ((one.key_field, other.key_field), (one.item_field, other.item_field))
        key, item = (
            _united_field(*pair, f"{column}[{what}]", missing_fields)
            for pair, what in zip(pairs, ("key", "value"), strict=True)
        )
        return pa.map_(key, item, one.keys_sorted and other.keys_sorted)
    if is_list(one) and is_list(other):
        field = _united_field(one.value_field, other.value_field, f"{column}[]", missing_fields)
        return _list_of(field, one, other)
    return None


def _list_of(field: pa.Field, one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if pa.types.is_fixed_size_list(one) and pa.types.is_fixed_size_list(other):
        if one.list_size == other.list_size:
            return pa.list_(field, one.list_size)
    elif one.id == other.id:
        for check, make in (
            (pa.types.is_list_view, pa.list_view),
            (pa.types.is_large_list_view, pa.large_list_view),
        ):
            if check(one):
                return make(field)
    large = (pa.types.is_large_list, pa.types.is_large_list_view)
    is_large = any(check(type) for check in large for type in (one, other))
    return pa.large_list(field) if is_large else pa.list_(field)


def _united_fields(
    ones: Sequence[pa.Field], others: Sequence[pa.Field], within: str, missing_fields: bool
) -> list[pa.Field]:
    by_name = {each.name: each for each in others}
    known = {each.name for each in ones}
    fields = [
        _united_field(each, by_name[each.name], within + each.name, missing_fields)
        if each.name in by_name
        else _often_missing(each)
        for each in ones
    ]
    return fields + [_often_missing(each) for each in others if each.name not in known]


def _often_missing(field: pa.Field) -> pa.Field:
    return field.with_type(without_runs(field.type)).with_nullable(True)


def _united_field(one: pa.Field, other: pa.Field, column: str, missing_fields: bool) -> pa.Field:
    type = unified_type(one.type, other.type, column, missing_fields=missing_fields)
    return one.with_type(type).with_nullable(one.nullable or other.nullable)


# Values.


def _widened_dictionary(
    array: pa.DictionaryArray, type: pa.DataType, column: str, leaf: Leaf
) -> pa.Array:
    if not pa.types.is_dictionary(type):
        # Arrow cannot pick values from views, as which they may come.
        plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(type, type)
        return widened(array.dictionary, plain, column, leaf=leaf).take(array.indices).cast(type)
    values = widened(array.dictionary, type.value_type, column, leaf=leaf)
    indices = array.indices.cast(type.index_type)
    return pa.DictionaryArray.from_arrays(indices, values, ordered=type.ordered)


def _widened_struct(array: pa.StructArray, type: pa.DataType, column: str, leaf: Leaf) -> pa.Array:
    names = [each.name for each in array.type]
    for name in names:
        if type.get_field_index(name) < 0:
            raise UnlikeTypesError(f"{column}.{name}", array.type.field(name).type, None)
    if not len(type):
        return array.cast(type)

    def parts(fields: list[pa.Array]) -> list[pa.Array]:
        return [
            widened(fields[names.index(each.name)], each.type, f"{column}.{each.name}", leaf=leaf)
            if each.name in names
            else pa.nulls(len(array), each.type)
            for each in type
        ]

    try:
        made = parts([array.field(place) for place in range(len(names))])
    except UnlikeTypesError:  # Where the struct is null, its fields may hold anything.
        made = parts(array.flatten())
    return pa.StructArray.from_arrays(made, fields=list(type), mask=array.is_null())


def _widened_map(array: pa.MapArray, type: pa.DataType, column: str, leaf: Leaf) -> pa.Array:
    def pairs(of: pa.MapArray) -> pa.Array:
        keys = widened(of.keys, type.key_type, f"{column}[key]", leaf=leaf)
        items = widened(of.items, type.item_type, f"{column}[value]", leaf=leaf)
        return pa.StructArray.from_arrays([keys, items], fields=[type.key_field, type.item_field])

    try:
        return with_values(array, type, pairs(array))
    except UnlikeTypesError:
        array = _compact(array)
        return with_values(array, type, pairs(array))


def _widened_list(array: pa.Array, type: pa.DataType, column: str, leaf: Leaf) -> pa.Array:
    """First the values inside, then, where it is another one, the kind of list."""
    field = type.value_field
    if array.type.value_type != field.type or array.type.value_field != field:
        try:
            values = widened(array.values, field.type, f"{column}[]", leaf=leaf)
        except UnlikeTypesError:
            array = _compact(array)
            values = widened(array.values, field.type, f"{column}[]", leaf=leaf)
        array = with_values(array, _like_list(array.type, field), values)
    return array if array.type == type else _of_other_lists(array, type, column)


def _compact(array: pa.Array) -> pa.Array:
    """Without the values that no list of a slice holds: whether they fit is nobody's concern."""
    try:
        return array.take(pa.array(range(len(array)), pa.int64()))
    except pa.ArrowNotImplementedError:  # Such as of run-end-encoded values inside.
        return array


def _of_other_lists(array: pa.Array, type: pa.DataType, column: str) -> pa.Array:
    """The same lists as another kind of them; Arrow's own cast loses values of list views."""
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    if pa.types.is_fixed_size_list(type):
        longer = (lengths != type.list_size) & array.is_valid().to_numpy(zero_copy_only=False)
        if longer.any():
            misfit = array[int(np.flatnonzero(longer)[0])]
            raise UnlikeTypesError(column, array.type, type, _python_value(misfit))
        return _of_other_lists(array, pa.list_(type.value_field), column).cast(type)
    large = (pa.types.is_large_list, pa.types.is_large_list_view)
    dtype = np.int64 if any(check(type) for check in large) else np.int32
    offsets = np.zeros(len(array) + 1, dtype)
    np.cumsum(lengths, out=offsets[1:])
    values, mask = array.flatten(), array.is_null()
    if pa.types.is_list(type) or pa.types.is_large_list(type):
        make = pa.LargeListArray if dtype is np.int64 else pa.ListArray
        return make.from_arrays(pa.array(offsets), values, type=type, mask=mask)
    view = pa.LargeListViewArray if dtype is np.int64 else pa.ListViewArray
    sizes = pa.array(lengths.astype(dtype))
    return view.from_arrays(pa.array(offsets[:-1]), sizes, values, type=type, mask=mask)


def _like_list(type: pa.DataType, field: pa.Field) -> pa.DataType:
    if pa.types.is_fixed_size_list(type):
        return pa.list_(field, type.list_size)
    for check, make in (
        (pa.types.is_large_list, pa.large_list),
        (pa.types.is_list_view, pa.list_view),
        (pa.types.is_large_list_view, pa.large_list_view),
    ):
        if check(type):
            return make(field)
    return pa.list_(field)


def _widened_leaf(array: pa.Array, type: pa.DataType, column: str) -> pa.Array:
    if pa.types.is_floating(type) and pa.types.is_integer(array.type):
        return _as_floats(array, type, column)
    if not _goes_into(array.type, type):
        raise UnlikeTypesError(column, array.type, type)
    try:
        return array.cast(type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        misfit = array[_first_misfit(array, lambda part: part.cast(type))]
        raise UnlikeTypesError(column, array.type, type, _python_value(misfit)) from error


def _goes_into(one: pa.DataType, type: pa.DataType) -> bool:
    """Whether `type` is a wider one of the same kind, so that a cast that checks each value is exact."""
    united = _of_leaves(one, type)
    if united is None:
        return False
    if united == type:
        return True
    # Narrower types of the same kind are exact as well where the cast checks each value.
    return _kind(united) == _kind(type) and not pa.types.is_floating(type)


def _kind(type: pa.DataType) -> object:
    """What types have in common between which Arrow's casts check each value."""
    checks: Iterable[Callable[[pa.DataType], bool]] = (
        *(pa.types.is_integer, pa.types.is_decimal, pa.types.is_date),
        *(pa.types.is_time, pa.types.is_duration, pa.types.is_timestamp),
    )
    return next((check for check in checks if check(type)), type)


def _as_floats(array: pa.Array, type: pa.DataType, column: str) -> pa.Array:
    there = array.drop_null()
    whole = there.to_numpy(zero_copy_only=False)
    misfits = np.flatnonzero(~_are_exact(whole, type.to_pandas_dtype()))
    if len(misfits):
        raise UnlikeTypesError(column, array.type, type, int(whole[misfits[0]]))
    return array.cast(type, safe=False)


def _are_exact(whole: npt.NDArray[np.integer], dtype: npt.DTypeLike) -> npt.NDArray[np.bool_]:
    """Which whole numbers are still the same once they are floats."""
    with np.errstate(over="ignore"):  # The greatest are infinite as floats of 16 bits.
        floats = whole.astype(dtype).astype(np.float64)
    least, most = (float(bound) for bound in (np.iinfo(whole.dtype).min, np.iinfo(whole.dtype).max))
    # Rounded up, the greatest of 64 bits is beyond their range, where a cast back is undefined.
    inside = (floats >= least) & (floats < most if whole.dtype.itemsize == 8 else floats <= most)
    exact: npt.NDArray[np.bool_] = inside & (
        np.where(inside, floats, 0.0).astype(whole.dtype) == whole
    )
    return exact


def _first_misfit(array: pa.Array, cast: Callable[[pa.Array], object]) -> int:
    """The place of the first value for which the cast fails, as it does for the whole array."""
    begin, end = 0, len(array)
    while end - begin > 1:
        middle = (begin + end) // 2
        try:
            cast(array.slice(begin, middle - begin))
            begin = middle
        except pa.ArrowException:
            end = middle
    return begin


def _python_value(scalar: pa.Scalar) -> object:
    """For messages: a time that Python has no object for is a count of its unit."""
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return scalar.value if hasattr(scalar, "value") else f"a {scalar.type}"
