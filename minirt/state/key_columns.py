"""The keys that an index of array state knows, column by column."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from minirt.data.column_keys import pieces, pieces_type
from minirt.data.simple_columns import simple, simple_type
from minirt.kernels.choice import kernels
from minirt.kernels.contract import Slots
from minirt.state.numbers import (
    Mask,
    enlarged,
    from_numbers,
    grown,
    is_whole,
    number_type,
    to_numbers,
)


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

    @abstractmethod
    def begin(self, room: int, like: Self) -> None:
        """Make room for so many keys before there are any; they are like those of the other column."""

    def reserve(self, count: int) -> None:
        """There will be so many keys soon: make room for them at once, as far as it can be told."""

    def told_by_hash(self, array: pa.Array) -> bool:
        """Whether keys in this array that have the same hash as known ones must be equal to them."""
        return False


def key_column(type: pa.DataType) -> KeyColumn:
    """An empty column for keys of this type, which `check_key_type` allows."""
    type = simple_type(type)
    return _NumberColumn(type) if is_whole(type) else _PieceColumn(type)


class _NumberColumn(KeyColumn):
    """Keys that are whole numbers."""

    def __init__(self, type: pa.DataType) -> None:
        self._type = type
        self._count = 0
        self._numbers = np.empty(1024, np.int64)
        self._nulls: Mask = np.empty(1024, np.bool_)
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
        self.reserve(end)
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

    def reserve(self, count: int) -> None:
        if count > len(self._numbers):
            self._numbers = enlarged(self._numbers, self._count, count)
            self._nulls = enlarged(self._nulls, self._count, count)

    def take(self, slots: Slots) -> pa.Array:
        nulls = self._nulls[slots] if self._any_null else None
        numbers = self._numbers[slots].view(number_type(self._type))
        return from_numbers(numbers, nulls, self._type)

    def begin(self, room: int, like: Self) -> None:
        self._numbers = np.empty(room, np.int64)
        self._nulls = np.empty(room, np.bool_)

    def told_by_hash(self, array: pa.Array) -> bool:
        return self._mixed and not self._any_null and not array.null_count


class _PieceColumn(KeyColumn):
    """Texts and bytes: those of all keys one behind the other, in the order of slots."""

    def __init__(self, type: pa.DataType) -> None:
        self._type = type
        self._count = 0
        self._data = np.zeros(16 * 1024, np.uint8)
        self._offsets = np.zeros(1024, np.int64)
        self._nulls: Mask = np.zeros(1024, np.bool_)
        self._any_null = False

    def append(self, array: pa.Array) -> None:
        array = simple(array)
        data, offsets = pieces(array)
        used, end = int(self._offsets[self._count]), self._count + len(array)
        size = used + int(offsets[-1] - offsets[0])
        # What is there stays where it is, and its ends come last: another thread may be reading.
        if size > len(self._data):
            self._data = grown(self._data, used, size, 0)
        if end >= len(self._offsets):
            self._nulls = grown(self._nulls, self._count, end + 1, False)
            self._offsets = grown(self._offsets, self._count + 1, end + 1, 0)
        self._data[used:size] = data[offsets[0] : offsets[-1]]
        self._offsets[self._count + 1 : end + 1] = offsets[1:] - offsets[0] + used
        if array.null_count:
            self._nulls[self._count : end] = _nulls(array)
            self._any_null = True
        self._count = end

    def equal(self, slots: Slots, array: pa.Array) -> Mask:
        array = simple(array)
        data, offsets = pieces(array)
        known_offsets = self._offsets[: self._count + 1]
        same = kernels().same_pieces(self._data, known_offsets, slots, data, offsets)
        if self._any_null or array.null_count:
            known, given = self._nulls[slots], _nulls(array)
            return np.where(known | given, known & given, same)
        return same

    def take(self, slots: Slots) -> pa.Array:
        count, offsets, data = self._count, self._offsets, self._data
        buffers = [None, pa.py_buffer(offsets[: count + 1]), pa.py_buffer(data)]
        taken = pa.Array.from_buffers(pieces_type(self._type), count, buffers).take(pa.array(slots))
        if self._any_null:
            taken = pc.if_else(pa.array(~self._nulls[slots]), taken, pa.scalar(None, taken.type))
        return taken.cast(self._type)

    def begin(self, room: int, like: Self) -> None:
        size = int(like._offsets[like._count]) * room // max(1, like._count)
        self._data = np.empty(max(size, len(self._data)), np.uint8)
        self._offsets = np.empty(room + 1, np.int64)
        self._offsets[0] = 0
        self._nulls = np.zeros(room + 1, np.bool_)


def _whole(array: pa.Array) -> tuple[npt.NDArray[np.int64], Mask | None]:
    """As `to_numbers`; large unsigned values wrap."""
    numbers, nulls = to_numbers(simple(array))
    return numbers.view(np.int64), nulls


def _nulls(array: pa.Array) -> Mask:
    nulls: Mask = array.is_null().to_numpy(zero_copy_only=False)
    return nulls
