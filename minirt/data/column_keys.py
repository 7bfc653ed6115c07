"""Hashes of key columns, equal to those of the same keys in rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minirt.data import hashing
from minirt.data.hashing import U64, UnstableKeyError
from minirt.kernels.choice import kernels

_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_MS_PER_DAY = 86_400_000
_TIMESTAMP = pa.timestamp("us").id


def check_key_type(type: pa.DataType) -> str | None:
    """Why columns of this type cannot be keys; None if they can."""
    if type.id in _KEY_TYPES:
        return None
    if pa.types.is_dictionary(type):
        return check_key_type(type.value_type)
    if pa.types.is_floating(type):
        return f"columns of type {type} cannot be keys: floats that look the same can differ"
    return (
        f"columns of type {type} cannot be keys; keys are of type bool, int, string, binary, date "
        "or timestamp"
    )


def hash_column(array: pa.Array) -> U64:
    """`key_hash` of every value of a column; nulls are None. Raises UnstableKeyError."""
    reason = check_key_type(array.type)
    if reason is not None:
        raise UnstableKeyError(reason)
    if pa.types.is_dictionary(array.type):
        return _hash_dictionary(array)
    hashes = _hash_values(array)
    if array.null_count:
        hashes[_nulls(array)] = hashing.NONE_HASH
    return hashes


def hash_columns(arrays: Sequence[pa.Array]) -> U64:
    """`key_hash` of the keys in these columns, at least one: values, or tuples if there are several.

    Raises UnstableKeyError.
    """
    if len(arrays) == 1:
        return hash_column(arrays[0])
    return kernels().hash_tuples([hash_column(array) for array in arrays], len(arrays[0]))


def group_columns(arrays: Sequence[pa.Array], max_parallelism: int) -> U64:
    """The key groups of the keys in these columns, as `hash_columns`. Raises UnstableKeyError."""
    hashes = hash_columns(arrays)
    if max_parallelism & (max_parallelism - 1):
        return hashes % np.uint64(max_parallelism)
    # The same for powers of two, in a tenth of the time.
    return hashes & np.uint64(max_parallelism - 1)


_KEY_TYPES = frozenset(
    type.id
    for type in (
        *(pa.null(), pa.bool_(), pa.date32(), pa.date64(), pa.timestamp("us")),
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.string(), pa.large_string(), pa.string_view()),
        *(pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1)),
    )
)
"""A type has the same number with any unit, time zone or width."""


def _hash_values(array: pa.Array) -> U64:
    """The hashes of a column; at its nulls they mean nothing."""
    kind = array.type
    if pa.types.is_null(kind):
        return np.full(len(array), hashing.NONE_HASH, np.uint64)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return _mix_ints(array, hashing.INT)
    if pa.types.is_date32(kind):
        return _mix_ints(array.cast(pa.int32()), hashing.DATE)
    if pa.types.is_date64(kind):
        days = _ints(array.cast(pa.int64())) // _MS_PER_DAY
        return kernels().mix(days.view(np.uint64), hashing.DATE)
    if pa.types.is_timestamp(kind):
        return kernels().mix(_microseconds(array).view(np.uint64), hashing.DATETIME)
    is_text = pieces_type(kind) == pa.large_string()
    return kernels().hash_pieces(*pieces(array), hashing.TEXT if is_text else hashing.BYTES)


def pieces(array: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """The bytes of a column of texts or bytes, and the offsets between which each value lies.

    What lies at nulls means nothing.
    """
    if pa.types.is_fixed_size_binary(array.type):
        array = array.cast(pa.binary())
    array = array.cast(pieces_type(array.type))
    _, offsets, data = array.buffers()
    if offsets is None or not len(array):
        return np.empty(0, np.uint8), np.zeros(len(array) + 1, np.int64)
    bounds = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    return np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8), bounds


def pieces_type(type: pa.DataType) -> pa.DataType:
    """The type, with offsets of 64 bits, of a column of texts or of bytes."""
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return pa.large_string() if any(check(type) for check in texts) else pa.large_binary()


def _hash_dictionary(array: pa.DictionaryArray) -> U64:
    if array.null_count == len(array):
        return np.full(len(array), hashing.NONE_HASH, np.uint64)
    # A null is an entry of the dictionary that is null, or no index at all.
    hashes = hash_column(array.dictionary)[_ints(array.indices)]
    if array.indices.null_count:
        hashes[_nulls(array.indices)] = hashing.NONE_HASH
    return hashes


def _ints(array: pa.Array) -> npt.NDArray[np.int64]:
    """An integer or boolean column as int64, with 0 for nulls; large unsigned values wrap."""
    if array.null_count:
        array = array.fill_null(False if pa.types.is_boolean(array.type) else 0)
    values: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values.astype(np.int64, copy=False)


def _mix_ints(array: pa.Array, kind: int) -> U64:
    return kernels().mix(_ints(array).view(np.uint64), kind)


def _nulls(array: pa.Array) -> npt.NDArray[np.bool_]:
    nulls: npt.NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    return nulls


def nanoseconds_of(array: pa.Array) -> npt.NDArray[np.int64] | None:
    """By how many nanoseconds each time is after a whole microsecond; None if none is."""
    if pa.types.is_dictionary(array.type):
        if array.type.value_type.id != _TIMESTAMP or array.null_count == len(array):
            return None
        of_entries = nanoseconds_of(array.dictionary)
        if of_entries is None:
            return None
        rest = of_entries[_ints(array.indices)]
    elif array.type.id == _TIMESTAMP and array.type.unit == "ns":
        rest = _ints(array.cast(pa.int64())) % 1000
    else:
        return None
    if array.null_count:
        rest[_nulls(array)] = 0
    return rest if rest.any() else None


def _microseconds(array: pa.Array) -> npt.NDArray[np.int64]:
    values = _ints(array.cast(pa.int64()))
    return values // 1000 if array.type.unit == "ns" else values * _MICROSECONDS[array.type.unit]
