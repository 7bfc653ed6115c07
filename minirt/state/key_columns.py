"""The keys that an index of array state knows, column by column."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from minirt.data.simple_columns import simple, simple_type
from minirt.kernels.contract import Slots
from minirt.state.numbers import Mask, from_numbers, grown, is_whole, number_type, to_numbers

_NARROW_BYTES_MAX = 1 << 30
_WIDE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}


class KeyColumn(ABC):
    """One column of keys, by slot. Nulls are keys like any other."""

    @abstractmethod
    def append(self, array: pa.Array) -> None:
        """Add the keys of the next slots."""

    @abstractmethod
    def equal(self, slots: Slots, array: pa.Array) -> Mask:
        """Whether each of these slots holds the key in the same row of the array."""

    @abstractmethod
    def take(self, slots: Slots) -> pa.Array:
        """The keys of these slots."""

    def told_by_hash(self, array: pa.Array) -> bool:
        """Whether keys in this array that have the same hash as known ones must be equal to them."""
        return False


def key_column(type: pa.DataType) -> KeyColumn:
    """An empty column for keys of this type, which `check_key_type` allows."""
    type = simple_type(type)
    return _NumberColumn(type) if is_whole(type) else _ArrowColumn(type)


class _NumberColumn(KeyColumn):
    """Keys that are whole numbers."""

    def __init__(self, type: pa.DataType) -> None:
        self._type = type
        self._count = 0
        self._numbers = np.zeros(1024, np.int64)
        self._nulls: Mask = np.zeros(1024, np.bool_)
        self._any_null = False
        # These are hashed by mixing their number, which never gives two numbers one hash.
        self._mixed = (
            pa.types.is_integer(type)
            or pa.types.is_boolean(type)
            or pa.types.is_date32(type)
            or type == pa.timestamp("us")
        )

    def append(self, array: pa.Array) -> None:
        numbers, nulls = _whole(array)
        end = self._count + len(numbers)
        if end > len(self._numbers):
            self._numbers = grown(self._numbers, self._count, end, 0)
            self._nulls = grown(self._nulls, self._count, end, False)
        self._numbers[self._count : end] = numbers
        self._nulls[self._count : end] = False if nulls is None else nulls
        self._any_null |= nulls is not None
        self._count = end

    def equal(self, slots: Slots, array: pa.Array) -> Mask:
        numbers, nulls = _whole(array)
        same: Mask = self._numbers[slots] == numbers
        if self._any_null or nulls is not None:
            same &= self._nulls[slots] == (False if nulls is None else nulls)
        return same

    def take(self, slots: Slots) -> pa.Array:
        nulls = self._nulls[slots] if self._any_null else None
        numbers = self._numbers[slots].view(number_type(self._type))
        return from_numbers(numbers, nulls, self._type)

    def told_by_hash(self, array: pa.Array) -> bool:
        return self._mixed and not self._any_null and not array.null_count


class _ArrowColumn(KeyColumn):
    """Keys of any length, in Arrow arrays of which each is at least twice as long as the next one.

    Once they are many bytes they are held with offsets of 64 bits: with 32, one array cannot hold them.
    """

    def __init__(self, type: pa.DataType) -> None:
        self._type = self._held_as = type
        self._arrays: list[pa.Array] = []
        self._bytes = 0

    def append(self, array: pa.Array) -> None:
        array = simple(array)
        self._bytes += array.nbytes
        if self._bytes > _NARROW_BYTES_MAX:
            self._held_as = _WIDE.get(self._type, self._type)
        arrays = [each.cast(self._held_as) for each in (*self._arrays, array)]
        while len(arrays) > 1 and 2 * len(arrays[-1]) > len(arrays[-2]):
            arrays[-2:] = [pa.concat_arrays(arrays[-2:])]
        # Another thread may be reading the old list.
        self._arrays = arrays

    def equal(self, slots: Slots, array: pa.Array) -> Mask:
        known, given = self.take(slots), simple(array)
        same: Mask = pc.fill_null(pc.equal(known, given), False).to_numpy(zero_copy_only=False)
        if known.null_count and given.null_count:
            same |= pc.and_(known.is_null(), given.is_null()).to_numpy(zero_copy_only=False)
        return same

    def take(self, slots: Slots) -> pa.Array:
        taken = pa.chunked_array(self._arrays, self._held_as).take(pa.array(slots))
        array = taken.combine_chunks()
        array = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
        return array.cast(self._type)


def _whole(array: pa.Array) -> tuple[npt.NDArray[np.int64], Mask | None]:
    """As `to_numbers`; large unsigned values wrap."""
    numbers, nulls = to_numbers(simple(array))
    return numbers.view(np.int64), nulls
