"""Aggregates over many keys at once: arrays indexed by the slot of the key.

An accumulator takes in a whole batch with a few numpy calls. It can give out the contents of some slots as
columns, and load them again, also into other slots.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minirt.aggregates import WIDE_SUM, Aggregate, Count, First, Fold, Last, Max, Mean, Min, Sum
from minirt.data.values import pack_value, unpack_value
from minirt.state.key_index import Slots
from minirt.state.numbers import (
    Mask,
    from_numbers,
    grown,
    is_number,
    number_type,
    to_numbers,
)
from minirt.state.sums import (
    HALF_BITS,
    SumGuard,
    decimals_of_halves,
    halves,
    halves_of_decimals,
)

_FIRST_ROOM = 1024


def accumulator(aggregate: Aggregate, type: pa.DataType) -> Accumulator:
    """An empty accumulator for a column of this type. Raises ConfigurationError if it does not fit."""
    result = aggregate.result_type(type)
    match aggregate:
        case Sum():
            return _WideSums(result) if result == WIDE_SUM else _Sums(result)
        case Count():
            return _Counts(records=aggregate.column is None)
        case Mean():
            return _Means()
        case Min() | Max():
            extremes = _Extremes if is_number(result) else _ExtremeObjects
            return extremes(result, greatest=isinstance(aggregate, Max))
        case First() | Last():
            return _Picked(result, newest=isinstance(aggregate, Last))
        case Fold():
            return _Folds(aggregate, result)
    raise TypeError(f"unknown aggregate {aggregate!r}")


class Accumulator(ABC):
    """One aggregate of all keys. Call `make_room` before slots are used, so that there is room for them."""

    def __init__(self, arrays: Sequence[tuple[npt.DTypeLike, Any]]) -> None:
        self._arrays = [np.full(_FIRST_ROOM, fill, dtype) for dtype, fill in arrays]
        self._fills = [fill for _, fill in arrays]
        self._count = 0

    def make_room(self, count: int) -> None:
        """Slots below `count` are about to be used."""
        if count > len(self._arrays[0]):
            for place, fill in enumerate(self._fills):
                self._arrays[place] = grown(self._arrays[place], self._count, count, fill)
        self._count = count

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


class _Valued(Accumulator):
    """A number or an object for each slot; some slots have none yet."""

    def __init__(self, type: pa.DataType, dtype: npt.DTypeLike, fill: Any) -> None:
        super().__init__([(dtype, fill), (np.bool_, False)])
        self._type = type

    def result(self, slots: Slots) -> pa.Array:
        values, known = self._arrays[0][slots], self._arrays[1][slots]
        if values.dtype == np.object_:
            return pa.array(values.tolist(), self._type)
        return from_numbers(values, None if known.all() else ~known, self._type)

    def load(self, slots: Slots, stored: Sequence[pa.Array]) -> None:
        values, nulls = _values(stored[0], self._arrays[0].dtype)
        self._arrays[0][slots] = (
            values if nulls is None else np.where(nulls, self._fills[0], values)
        )
        self._arrays[1][slots] = True if nulls is None else ~nulls


class _Sums(_Valued):
    """Raises SumOverflowError before a sum of whole numbers leaves its range."""

    def __init__(self, type: pa.DataType) -> None:
        super().__init__(type, number_type(type), 0)
        dtype = self._arrays[0].dtype
        self._guard = SumGuard(dtype) if dtype.kind in "iu" else None

    def add(self, slots: Slots, values: pa.Array) -> None:
        slots, numbers = _present(slots, values, self._arrays[0].dtype)
        if self._guard is not None:
            self._guard.check(self._arrays[0], self._count, slots, numbers)
        np.add.at(self._arrays[0], slots, numbers)
        self._arrays[1][slots] = True

    def load(self, slots: Slots, stored: Sequence[pa.Array]) -> None:
        super().load(slots, stored)
        if self._guard is not None:
            self._guard.loaded(self._arrays[0][slots])


class _WideSums(Accumulator):
    """Decimals, held as two halves each. Takes whole numbers, too, also where they were stored."""

    def __init__(self, type: pa.DataType) -> None:
        super().__init__([(np.int64, 0), (np.int64, 0), (np.bool_, False)])
        self._type = type
        self._guard = SumGuard(self._arrays[0].dtype)

    def add(self, slots: Slots, values: pa.Array) -> None:
        if values.null_count:
            there = np.flatnonzero(~values.is_null().to_numpy(zero_copy_only=False))
            slots, values = slots[there], values.take(pa.array(there))
        highs, lows, known = self._arrays
        high, low = _halves(values)
        self._guard.check(highs, self._count, slots, high)
        np.add.at(highs, slots, high)
        np.add.at(lows, slots, low)
        sums = lows[slots]
        highs[slots] += sums >> HALF_BITS
        lows[slots] = sums & ((1 << HALF_BITS) - 1)
        known[slots] = True

    def result(self, slots: Slots) -> pa.Array:
        high, low, known = (array[slots] for array in self._arrays)
        return decimals_of_halves(high, low, None if known.all() else ~known, self._type)

    def load(self, slots: Slots, stored: Sequence[pa.Array]) -> None:
        nulls = stored[0].is_null().to_numpy(zero_copy_only=False)
        high, low = _halves(stored[0].fill_null(pa.scalar(0, stored[0].type)))
        self._arrays[0][slots], self._arrays[1][slots] = high, low
        self._arrays[2][slots] = ~nulls
        self._guard.loaded(high)


class _Extremes(_Valued):
    def __init__(self, type: pa.DataType, *, greatest: bool) -> None:
        dtype = np.dtype(number_type(type))
        if dtype.kind == "f":
            fill: Any = np.nan
            self._better: np.ufunc = np.fmax if greatest else np.fmin
        else:
            bounds = np.iinfo(dtype)
            fill = bounds.min if greatest else bounds.max
            self._better = np.maximum if greatest else np.minimum
        super().__init__(type, dtype, fill)

    def add(self, slots: Slots, values: pa.Array) -> None:
        slots, numbers = _present(slots, values, self._arrays[0].dtype)
        if numbers.dtype.kind == "f":
            real = ~np.isnan(numbers)
            slots, numbers = slots[real], numbers[real]
        self._better.at(self._arrays[0], slots, numbers)
        self._arrays[1][slots] = True


class _ExtremeObjects(_Valued):
    """The least or greatest text, bytes or decimal: Python compares one value for each key and batch."""

    def __init__(self, type: pa.DataType, *, greatest: bool) -> None:
        super().__init__(type, np.object_, None)
        self._better: Callable[[Any, Any], Any] = max if greatest else min

    def add(self, slots: Slots, values: pa.Array) -> None:
        name = self._better.__name__
        batch = pa.Table.from_arrays([pa.array(slots), values], ["slot", "value"])
        best = batch.group_by("slot", use_threads=False).aggregate([("value", name)])
        held, known = self._arrays
        for slot, value in zip(*(column.to_pylist() for column in best.columns), strict=True):
            if value is not None:
                held[slot] = self._better(held[slot], value) if known[slot] else value
                known[slot] = True


class _Counts(Accumulator):
    """Counts records, or values that are not null."""

    def __init__(self, *, records: bool) -> None:
        super().__init__([(np.int64, 0)])
        self._records = records

    def add(self, slots: Slots, values: pa.Array) -> None:
        if values.null_count and not self._records:
            slots = slots[~values.is_null().to_numpy(zero_copy_only=False)]
        np.add.at(self._arrays[0], slots, 1)

    def result(self, slots: Slots) -> pa.Array:
        return pa.array(self._arrays[0][slots])

    def load(self, slots: Slots, stored: Sequence[pa.Array]) -> None:
        self._arrays[0][slots], _ = to_numbers(stored[0])


class _Means(Accumulator):
    def __init__(self) -> None:
        super().__init__([(np.float64, 0), (np.int64, 0)])

    def add(self, slots: Slots, values: pa.Array) -> None:
        slots, numbers = _present(slots, values, self._arrays[0].dtype)
        np.add.at(self._arrays[0], slots, numbers)
        np.add.at(self._arrays[1], slots, 1)

    def result(self, slots: Slots) -> pa.Array:
        sums, counts = self._arrays[0][slots], self._arrays[1][slots]
        none = counts == 0
        return pa.array(sums / np.where(none, 1, counts), mask=none if none.any() else None)

    def stored(self, slots: Slots) -> list[pa.Array]:
        return [pa.array(self._arrays[0][slots]), pa.array(self._arrays[1][slots])]

    def load(self, slots: Slots, stored: Sequence[pa.Array]) -> None:
        for array, values in zip(self._arrays, stored, strict=True):
            array[slots], _ = to_numbers(values)


class _Picked(_Valued):
    """The first or the last value of a key, of any type."""

    def __init__(self, type: pa.DataType, *, newest: bool) -> None:
        if is_number(type):
            super().__init__(type, number_type(type), 0)
        else:
            super().__init__(type, np.object_, None)
        self._newest = newest

    def add(self, slots: Slots, values: pa.Array) -> None:
        slots, picked = _present(slots, values, self._arrays[0].dtype)
        if not self._newest:
            # If several values go to one slot, numpy keeps the last: reverse them, so that it keeps the
            # first.
            open = np.flatnonzero(~self._arrays[1][slots])[::-1]
            slots, picked = slots[open], picked[open]
        self._arrays[0][slots] = picked
        self._arrays[1][slots] = True


class _Folds(Accumulator):
    """Holds, for each key, the object that a user's aggregate remembers."""

    def __init__(self, fold: Fold, type: pa.DataType) -> None:
        super().__init__([(np.object_, None), (np.bool_, False)])
        self._fold = fold
        self._type = type

    def add(self, slots: Slots, values: pa.Array) -> None:
        order = np.argsort(slots, kind="stable")
        ordered = slots[order]
        starts = np.flatnonzero(np.diff(ordered, prepend=-1))
        values = values.take(pa.array(order))
        remembered, known = self._arrays
        for start, stop in zip(starts, [*starts[1:], len(ordered)], strict=True):
            slot = ordered[start]
            new = self._fold.of(values.slice(start, stop - start))
            remembered[slot] = self._fold.merge(remembered[slot], new) if known[slot] else new
            known[slot] = True

    def result(self, slots: Slots) -> pa.Array:
        remembered, known = self._arrays
        results = [self._fold.result(remembered[slot]) if known[slot] else None for slot in slots]
        try:
            return pa.array(results, self._type)
        except pa.ArrowException as error:
            raise TypeError(
                f"{self._fold.output!r} has results that are not of type {self._type}: {error}"
            ) from error

    def stored(self, slots: Slots) -> list[pa.Array]:
        remembered, known = self._arrays
        packed = [pack_value(remembered[slot]) if known[slot] else None for slot in slots]
        return [pa.array(packed, pa.large_binary())]

    def load(self, slots: Slots, stored: Sequence[pa.Array]) -> None:
        remembered, known = self._arrays
        for slot, packed in zip(slots, stored[0].to_pylist(), strict=True):
            known[slot] = packed is not None
            remembered[slot] = None if packed is None else unpack_value(packed)


def _halves(array: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Whole numbers or decimals without nulls."""
    if pa.types.is_decimal(array.type):
        return halves_of_decimals(array)
    return halves(to_numbers(array)[0])


def _present(
    slots: Slots, values: pa.Array, dtype: np.dtype[Any]
) -> tuple[Slots, npt.NDArray[Any]]:
    """Without the rows that are null."""
    picked, nulls = _values(values, dtype)
    return (slots, picked) if nulls is None else (slots[~nulls], picked[~nulls])


def _values(array: pa.Array, dtype: np.dtype[Any]) -> tuple[npt.NDArray[Any], Mask | None]:
    """A column as numbers or objects, and a mask of its nulls, None if it has none."""
    if dtype != np.object_:
        numbers, nulls = to_numbers(array)
        return numbers.astype(dtype, copy=False), nulls
    # Element by element, as numpy would make arrays of lists.
    objects = np.empty(len(array), np.object_)
    for place, value in enumerate(array.to_pylist()):
        objects[place] = value
    return objects, array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
