"""What every accumulator has in common: one aggregate of many keys at once, in arrays by slot.

A file of an aggregate defines its accumulator with this, so it knows nothing of other aggregates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minirt.data.simple_columns import in_counts, parts_of
from minirt.data.values import pack_value, unpack_value
from minirt.kernels.contract import Slots
from minirt.state.numbers import Mask, to_numbers
from minirt.state.slot_arrays import SlotArrays


class Accumulator(SlotArrays, ABC):
    """One aggregate of all keys."""

    @abstractmethod
    def add(self, slots: Slots, values: pa.Array) -> None:
        """Take in a batch: value `i` belongs to the key in slot `slots[i]`."""

    @abstractmethod
    def result(self, slots: Slots) -> pa.Array:
        """The results of these slots so far."""

    def stored(self, slots: Slots) -> list[pa.Array]:
        """The whole content of these slots, in columns."""
        return [self.result(slots)]

    @abstractmethod
    def load(self, slots: Slots, stored: Sequence[pa.Array]) -> None:
        """Replace the content of these slots by what was stored. No slot is named twice."""

    @abstractmethod
    def merge(self, slots: Slots, other: Any, others: Slots) -> None:
        """Take in what `other`, of the same aggregate, holds in its slots `others`.

        What it holds comes after what is here, where that matters. No slot is named twice.
        """

    def takes_over_from(self, before: pa.DataType, type: pa.DataType) -> bool:
        """Whether what it held of values of the type `before` can be loaded again for ones of `type`.

        What is held as Python's objects can, unless these count other units or have other parts.
        """
        return _same_objects(before, type)

    def merge_first(self, count: int, other: Any) -> None:
        """As `merge`, of so many first slots, each into the same one."""
        slots = np.arange(count)
        self.merge(slots, other, slots)


def _same_objects(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether values of both are objects that Python compares rightly, and Arrow takes for `other`."""
    if pa.types.is_null(one):
        return True
    if pa.types.is_timestamp(one) and pa.types.is_timestamp(other):
        return bool(one.unit == other.unit)
    if pa.types.is_temporal(one) or pa.types.is_temporal(other):
        return bool(one == other)
    parts, others = parts_of(one), parts_of(other)
    return [part.name for part in parts] == [part.name for part in others] and all(
        _same_objects(part.type, by.type) for part, by in zip(parts, others, strict=True)
    )


class InRanges(Accumulator):
    """Its `merge` takes ranges of slots from 0 on as well: numpy need not look up each slot of one."""

    def merge_first(self, count: int, other: Any) -> None:
        first: Any = slice(count)
        self.merge(first, other, first)


class Objects(Accumulator):
    """An object for each slot, None without any."""

    def __init__(self, type: pa.DataType, result: pa.DataType) -> None:
        """`type` is that of the values, `result` that of the results."""
        super().__init__([(np.object_, None)])
        self._type = type
        self._result = result

    @abstractmethod
    def united(self, earlier: Any, later: Any) -> Any:
        """What there is to remember of both, which may be changed for it."""

    @abstractmethod
    def shown(self, held: Any) -> Any:
        """The result of what is remembered."""

    def nothing(self) -> Any:
        """The result of a key without values."""
        return None

    def pack(self, held: Any) -> bytes:
        """As it is stored."""
        return pack_value(held)

    def unpack(self, packed: bytes) -> Any:
        return unpack_value(packed)

    def packed(self, held: Iterable[Any]) -> list[bytes | None]:
        """As they are stored; None for None."""
        return [None if each is None else self.pack(each) for each in held]

    def copied(self, held: Any) -> Any:
        """One that may change without the other."""
        return self.unpack(self.pack(held))

    def result(self, slots: Slots) -> pa.Array:
        nothing = self.nothing()
        shown = [nothing if held is None else self.shown(held) for held in self._arrays[0][slots]]
        return pa.array(shown, self._result)

    def stored(self, slots: Slots) -> list[pa.Array]:
        """Nulls of the type of the values, by which a restore knows it; and what is remembered, packed."""
        packed = self.packed(self._arrays[0][slots])
        return [pa.nulls(len(packed), self._type), pa.array(packed, pa.large_binary())]

    def load(self, slots: Slots, stored: Sequence[pa.Array]) -> None:
        for slot, packed in zip(slots, stored[1].to_pylist(), strict=True):
            self._arrays[0][slot] = None if packed is None else self.unpack(packed)

    def merge(self, slots: Slots, other: Any, others: Slots) -> None:
        [held] = self._arrays
        for slot, new in zip(slots.tolist(), other._arrays[0][others], strict=True):
            if new is not None:
                new = self.copied(new)
                held[slot] = new if held[slot] is None else self.united(held[slot], new)


class ObjectsByKey(Objects):
    """Python looks once at each key of a batch."""

    @abstractmethod
    def of(self, values: pa.Array) -> Any:
        """What there is to remember of these values of one key, in their order; None for nothing.

        Times of nanoseconds come as whole numbers of them, which Arrow takes for such times again.
        """

    def add(self, slots: Slots, values: pa.Array) -> None:
        [held] = self._arrays
        for slot, own in by_slot(slots, in_counts(values)):
            new = self.of(own)
            if new is not None:
                held[slot] = new if held[slot] is None else self.united(held[slot], new)


def by_slot(slots: Slots, values: pa.Array) -> Iterator[tuple[int, pa.Array]]:
    """The values of each slot, in their order."""
    order, groups = grouped(slots)
    values = values.take(pa.array(order))
    for slot, start, stop in groups:
        yield slot, values.slice(start, stop - start)


def grouped(slots: Slots) -> tuple[Slots, Iterator[tuple[int, int, int]]]:
    """An order in which the records of each slot stand together, in theirs; and where those of each slot
    begin and end in it: slot, start, stop.
    """
    order = np.argsort(slots, kind="stable")
    ordered = slots[order]
    inner = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    starts = [0, *inner.tolist()] if len(ordered) else []
    ends = [*starts[1:], len(ordered)]
    return order, zip(ordered[starts].tolist(), starts, ends, strict=False)


def present(slots: Slots, values: pa.Array, dtype: np.dtype[Any]) -> tuple[Slots, npt.NDArray[Any]]:
    """Without the rows that are null."""
    picked, nulls = taken_apart(values, dtype)
    return (slots, picked) if nulls is None else (slots[~nulls], picked[~nulls])


def taken_apart(array: pa.Array, dtype: np.dtype[Any]) -> tuple[npt.NDArray[Any], Mask | None]:
    """A column as numbers or objects, and a mask of its nulls, None if it has none."""
    if dtype != np.object_:
        numbers, nulls = to_numbers(array)
        return numbers.astype(dtype, copy=False), nulls
    # Element by element, as numpy would make arrays of lists. Python has no times of nanoseconds.
    objects = np.empty(len(array), np.object_)
    for place, value in enumerate(in_counts(array).to_pylist()):
        objects[place] = value
    return objects, array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
