"""Finds the slots of keys in columns: the index of state in arrays.

A hash table with open addressing and linear probing, laid out in numpy arrays, which kernels probe for a
whole batch at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from minirt.data.hashing import U64
from minirt.data.simple_columns import in_counts
from minirt.data.unify import widened
from minirt.kernels.choice import kernels
from minirt.kernels.contract import EMPTY, Slots, Table
from minirt.state.key_columns import KeyColumn, key_column

_SMALLEST_BITS = 10

_STEP = 1 << 19
"""So many places of a table are made in one step: 2 MB, some milliseconds where the system is slow."""


class KeyIndex:
    """Gives every distinct key a slot: 0, 1, 2 and so on, in the order in which keys appear.

    `types` are those of the key columns. An index never gives a slot back: to forget keys, go on with
    an index of the others. It holds at most 2**31 keys.
    """

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self._types = list(types)
        self._columns: list[KeyColumn] = [key_column(type) for type in types]
        self._bits = _SMALLEST_BITS
        self._table: Table = np.full(1 << self._bits, EMPTY, np.int32)
        self._hashes: U64 = np.zeros(1 << self._bits, np.uint64)
        self._count = 0
        self._expected = 0
        """Up to so many keys, those that come are taken for new."""
        self._collided: dict[tuple[Any, ...], int] = {}
        """Keys whose hash an earlier key has: they are not in the table."""

    def __len__(self) -> int:
        return self._count

    @property
    def hashes(self) -> U64:
        """The hash of every key, by slot; not to be changed."""
        return self._hashes[: self._count]

    def slots(self, keys: Sequence[pa.Array], hashes: U64) -> Slots:
        """The slot of each key, given its columns and `hash_columns` of them; new keys are added."""
        before = self._count
        slots, added = self._find_or_add(hashes)
        if self._count > before:
            rows = pa.array(added)
            for column, array in zip(self._columns, keys, strict=True):
                column.append(array.take(rows))
        self._settle_collisions(keys, hashes, slots)
        return slots

    def keys(self, slots: Slots) -> list[pa.Array]:
        """The key columns of these slots."""
        return [column.take(slots) for column in self._columns]

    def begin(self, room: int, like: KeyIndex) -> Iterator[None]:
        """Make room for so many keys, in steps, before there are any; they are like those of the other."""
        self._bits = max(_SMALLEST_BITS, int(2 * room - 1).bit_length())
        self._hashes = np.empty(1 << (self._bits - 1), np.uint64)
        self._table = np.empty(1 << self._bits, np.int32)
        for start in range(0, len(self._table), _STEP):
            self._table[start : start + _STEP] = EMPTY
            yield
        for column, other in zip(self._columns, like._columns, strict=True):
            column.begin(room, other)
            yield

    def reserve(self, count: int) -> None:
        """There will be so many keys soon: have the table be made once for all of them."""
        if count > max(self._expected, self._count):
            self._expected = count
            self._make_room(count - self._count)
            for column in self._columns:
                column.reserve(count)

    def change_type(self, place: int, type: pa.DataType) -> None:
        """Give a column a wider type, in which every key has the hash that it had.

        Raises UnlikeTypesError for a key that is none of this type.
        """
        held = self._columns[place].take(np.arange(self._count))
        column = key_column(type)
        column.append(widened(held, type, ""))
        self._types[place], self._columns[place] = type, column
        collided = np.array(list(self._collided.values()), np.intp)
        exact = [in_counts(array) for array in self.keys(collided)]
        self._collided = {
            tuple(array[row].as_py() for array in exact): int(slot)
            for row, slot in enumerate(collided)
        }

    def _find_or_add(self, hashes: U64) -> tuple[Slots, Slots]:
        """The slot of each hash, and the rows whose hashes are new, by ascending slot."""
        if self._count + len(hashes) <= self._expected:
            slots, rows = kernels().add(self._table, self._hashes, self._count, hashes)
            self._count += len(rows)
            return slots, rows
        slots = kernels().find(self._table, self._hashes, hashes)
        absent = np.flatnonzero(slots == EMPTY)
        if not len(absent):
            return slots, absent
        self._make_room(len(absent))
        slots[absent], rows = kernels().add(self._table, self._hashes, self._count, hashes[absent])
        self._count += len(rows)
        return slots, absent[rows]

    def _make_room(self, more: int) -> None:
        """Keep the table at most half full, should all of them be new."""
        needed = self._count + more
        if needed > len(self._hashes):
            grown = np.zeros(max(needed, 2 * len(self._hashes)), np.uint64)
            grown[: self._count] = self._hashes[: self._count]
            self._hashes = grown
        if 2 * needed <= 1 << self._bits:
            return
        self._bits = int(2 * needed - 1).bit_length()
        self._table = np.full(1 << self._bits, EMPTY, np.int32)
        listed = np.ones(self._count, np.bool_)
        listed[list(self._collided.values())] = False
        kernels().enlist(self._table, self._hashes, np.flatnonzero(listed))

    def _settle_collisions(self, keys: Sequence[pa.Array], hashes: U64, slots: Slots) -> None:
        """Give keys that only share the hash of the key in their slot a slot of their own."""
        wrong = np.zeros(len(slots), np.bool_)
        for column, array in zip(self._columns, keys, strict=True):
            if not (len(self._columns) == 1 and column.told_by_hash(array)):
                wrong |= ~column.equal(slots, array)
        if not wrong.any():
            return
        exact = [in_counts(array) for array in keys]
        for row in np.flatnonzero(wrong).tolist():
            key = tuple(array[row].as_py() for array in exact)
            slot = self._collided.get(key)
            if slot is None:
                self._make_room(1)
                slot = self._collided[key] = self._count
                self._hashes[slot] = hashes[row]
                self._count += 1
                for column, array in zip(self._columns, keys, strict=True):
                    column.append(array.slice(row, 1))
            slots[row] = slot
