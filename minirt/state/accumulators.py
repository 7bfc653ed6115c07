"""Aggregates over many keys at once: arrays indexed by the slot of the key.

An accumulator takes in a whole batch with a few numpy calls. It can give out the contents of some slots as
columns, and load them again, also into other slots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minirt.aggregates import (
    WIDE_SUM,
    Accumulated,
    Aggregate,
    Count,
    First,
    Fold,
    Last,
    Max,
    Mean,
    Min,
    Sum,
)
from minirt.data.set_order import in_set_order
from minirt.data.unify import widened
from minirt.data.values import pack_value, unpack_value
from minirt.kernels.choice import kernels
from minirt.kernels.contract import Slots
from minirt.state.accumulator import Accumulator, InRanges, by_slot, present, taken_apart
from minirt.state.numbers import from_numbers, is_number, number_type, to_numbers
from minirt.state.sums import (
    HALF_BITS,
    SumGuard,
    decimals_of_halves,
    halves_of_column,
)

_GROUPED_MIN = 2048
"""Fewer values are compared one by one in less time than Arrow takes to begin grouping them."""


class Arrivals:
    """Numbers the records of several tables in the order in which they came."""

    def __init__(self) -> None:
        self._next = 1
        self._batch: Slots | None = None
        self._part: Slots | None = None

    def come(self, count: int) -> None:
        """A batch of so many records has come, which is added in parts."""
        self._batch = self._next + np.arange(count)
        self._next += count

    def of_part(self, rows: Slots | None) -> None:
        """These rows of the batch are added next; None for all."""
        assert self._batch is not None
        self._part = self._batch if rows is None else self._batch[rows]

    def numbers(self, count: int) -> Slots:
        """The numbers of so many records that are added."""
        if self._part is not None:
            return self._part
        first, self._next = self._next, self._next + count
        return first + np.arange(count)

    def seen(self, number: int) -> None:
        """This number was stored: those to come are higher."""
        self._next = max(self._next, number + 1)


def accumulator(
    aggregate: Aggregate, type: pa.DataType, arrivals: Arrivals | None = None
) -> Accumulator:
    """An empty accumulator for a column of this type. Raises ConfigurationError if it does not fit.

    With `arrivals`, what is merged is told apart by when it came.
    """
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
            newest = isinstance(aggregate, Last)
            if arrivals is not None:
                return _PickedByArrival(result, newest=newest, arrivals=arrivals)
            return _Picked(result, newest=newest)
        case Fold():
            return _Folds(aggregate, result)
        case Accumulated():
            return aggregate.accumulator(type)
    raise TypeError(f"unknown aggregate {aggregate!r}")


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

    def takes_over_from(self, before: pa.DataType, type: pa.DataType) -> bool:
        return True  # What is stored is of Arrow's types, and is widened.

    def load(self, slots: Slots, stored: Sequence[pa.Array]) -> None:
        """Raises UnlikeTypesError for a value that would not be the same."""
        values, nulls = taken_apart(widened(stored[0], self._type, ""), self._arrays[0].dtype)
        self._arrays[0][slots] = (
            values if nulls is None else np.where(nulls, self._fills[0], values)
        )
        self._arrays[1][slots] = True if nulls is None else ~nulls

    def known(self, slots: Slots, own: Slots) -> tuple[Slots, npt.NDArray[Any]]:
        """The values of `own` that there are, with the slots that stand beside them."""
        there = self._arrays[1][own]
        values = self._arrays[0][own]
        if there.all():
            return slots, values
        chosen = np.flatnonzero(there) if isinstance(slots, slice) else slots[there]
        return chosen, values[there]


class _Sums(_Valued, InRanges):
    """Raises SumOverflowError before a sum of whole numbers leaves its range."""

    def __init__(self, type: pa.DataType) -> None:
        super().__init__(type, number_type(type), 0)
        dtype = self._arrays[0].dtype
        self._guard = SumGuard(dtype) if dtype.kind in "iu" else None

    def add(self, slots: Slots, values: pa.Array) -> None:
        slots, numbers = present(slots, values, self._arrays[0].dtype)
        if self._guard is not None:
            self._guard.check(self._arrays[0], self._count, slots, numbers)
        sums, known = self._arrays
        kernels().add_up(sums, known, slots, numbers)

    def merge(self, slots: Slots, other: Any, others: Slots) -> None:
        slots, numbers = other.known(slots, others)
        if self._guard is not None:
            self._guard.check(self._arrays[0], self._count, slots, numbers, distinct=True)
        self._arrays[0][slots] += numbers
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
        self._take_in(slots, *halves_of_column(values))

    def merge(self, slots: Slots, other: Any, others: Slots) -> None:
        there = other._arrays[2][others]
        own = others[there]
        self._take_in(slots[there], other._arrays[0][own], other._arrays[1][own])

    def _take_in(
        self, slots: Slots, high: npt.NDArray[np.int64], low: npt.NDArray[np.int64]
    ) -> None:
        highs, lows, known = self._arrays
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
        high, low = halves_of_column(stored[0].fill_null(pa.scalar(0, stored[0].type)))
        self._arrays[0][slots], self._arrays[1][slots] = high, low
        self._arrays[2][slots] = ~nulls
        self._guard.loaded(high)


class _Extremes(_Valued, InRanges):
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
        slots, numbers = present(slots, values, self._arrays[0].dtype)
        if numbers.dtype.kind == "f":
            real = ~np.isnan(numbers)
            slots, numbers = slots[real], numbers[real]
        self._better.at(self._arrays[0], slots, numbers)
        self._arrays[1][slots] = True

    def merge(self, slots: Slots, other: Any, others: Slots) -> None:
        slots, numbers = other.known(slots, others)
        self._arrays[0][slots] = self._better(self._arrays[0][slots], numbers)
        self._arrays[1][slots] = True


class _ExtremeObjects(_Valued):
    """The least or greatest text, bytes or decimal: of a large batch, Python compares one value a key."""

    def __init__(self, type: pa.DataType, *, greatest: bool) -> None:
        super().__init__(type, np.object_, None)
        self._better: Callable[[Any, Any], Any] = max if greatest else min

    def add(self, slots: Slots, values: pa.Array) -> None:
        if len(values) < _GROUPED_MIN:
            self._compare(slots.tolist(), values.to_pylist())
            return
        name = self._better.__name__
        batch = pa.Table.from_arrays([pa.array(slots), values], ["slot", "value"])
        best = batch.group_by("slot", use_threads=False).aggregate([("value", name)])
        self._compare(*(column.to_pylist() for column in best.columns))

    def merge(self, slots: Slots, other: Any, others: Slots) -> None:
        self._compare(*(array.tolist() for array in other.known(slots, others)))

    def _compare(self, slots: Sequence[int], values: Sequence[Any]) -> None:
        held, known = self._arrays
        for slot, value in zip(slots, values, strict=True):
            if value is not None:
                held[slot] = self._better(held[slot], value) if known[slot] else value
                known[slot] = True


class _Counts(InRanges):
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

    def merge(self, slots: Slots, other: Any, others: Slots) -> None:
        self._arrays[0][slots] += other._arrays[0][others]


class _Means(InRanges):
    def __init__(self) -> None:
        super().__init__([(np.float64, 0), (np.int64, 0)])

    def add(self, slots: Slots, values: pa.Array) -> None:
        slots, numbers = present(slots, values, self._arrays[0].dtype)
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

    def merge(self, slots: Slots, other: Any, others: Slots) -> None:
        for array, theirs in zip(self._arrays, other._arrays, strict=True):
            array[slots] += theirs[others]


class _Picked(_Valued):
    """The first or the last value of a key, of any type."""

    def __init__(self, type: pa.DataType, *, newest: bool) -> None:
        if is_number(type):
            super().__init__(type, number_type(type), 0)
        else:
            super().__init__(type, np.object_, None)
        self._newest = newest

    def add(self, slots: Slots, values: pa.Array) -> None:
        slots, picked = present(slots, values, self._arrays[0].dtype)
        if not self._newest:
            # If several values go to one slot, numpy keeps the last: reverse them, so that it keeps the
            # first.
            open = np.flatnonzero(~self._arrays[1][slots])[::-1]
            slots, picked = slots[open], picked[open]
        self._arrays[0][slots] = picked
        self._arrays[1][slots] = True

    def merge(self, slots: Slots, other: Any, others: Slots) -> None:
        slots, picked = other.known(slots, others)
        if not self._newest:
            open = ~self._arrays[1][slots]
            slots, picked = slots[open], picked[open]
        self._arrays[0][slots] = picked
        self._arrays[1][slots] = True


class _PickedByArrival(_Picked):
    """Remembers also when the value came: what is merged is in the order of event time."""

    def __init__(self, type: pa.DataType, *, newest: bool, arrivals: Arrivals) -> None:
        super().__init__(type, newest=newest)
        self._arrivals = arrivals
        self._arrays.append(np.empty(len(self._arrays[0]), np.int64))
        self._fills.append(0)

    def add(self, slots: Slots, values: pa.Array) -> None:
        numbers = self._arrivals.numbers(len(slots))
        if values.null_count:
            there = ~values.is_null().to_numpy(zero_copy_only=False)
            numbers, filled = numbers[there], slots[there]
        else:
            filled = slots
        if not self._newest:
            open = np.flatnonzero(~self._arrays[1][filled])[::-1]
            filled, numbers = filled[open], numbers[open]
        self._arrays[2][filled] = numbers
        super().add(slots, values)

    def merge(self, slots: Slots, other: Any, others: Slots) -> None:
        there = other._arrays[1][others]
        slots, others = slots[there], others[there]
        came, before = other._arrays[2][others], self._arrays[2][slots]
        better = (came > before) if self._newest else (came < before) | ~self._arrays[1][slots]
        for array, theirs in zip(self._arrays, other._arrays, strict=True):
            array[slots[better]] = theirs[others[better]]

    def stored(self, slots: Slots) -> list[pa.Array]:
        return [*super().stored(slots), pa.array(self._arrays[2][slots])]

    def load(self, slots: Slots, stored: Sequence[pa.Array]) -> None:
        super().load(slots, stored)
        numbers, _ = to_numbers(stored[1])
        self._arrays[2][slots] = numbers
        self._arrivals.seen(int(numbers.max(initial=0)))


def _unchanged(value: Any) -> Any:
    return value


class _Folds(Accumulator):
    """Holds, for each key, the object that a user's aggregate remembers."""

    def __init__(self, fold: Fold, type: pa.DataType) -> None:
        super().__init__([(np.object_, None), (np.bool_, False)])
        self._fold = fold
        self._type = type
        self._settle: Callable[[Any], Any] = in_set_order if fold.in_one_order else _unchanged

    def add(self, slots: Slots, values: pa.Array) -> None:
        remembered, known = self._arrays
        for slot, record in by_slot(slots, values):  # `user_error` looks for the record.
            new = self._settle(self._fold.of(record))
            if known[slot]:
                new = self._settle(self._fold.merge(remembered[slot], new))
            remembered[slot] = new
            known[slot] = True

    def merge(self, slots: Slots, other: Any, others: Slots) -> None:
        """What it takes over it takes a copy of: a fold may change what it remembers."""
        remembered, known = self._arrays
        there = other._arrays[1][others]
        for slot, own in zip(slots[there].tolist(), others[there].tolist(), strict=True):
            new = self._settle(unpack_value(pack_value(other._arrays[0][own])))
            if known[slot]:
                new = self._settle(self._fold.merge(remembered[slot], new))
            remembered[slot] = new
            known[slot] = True

    def result(self, slots: Slots) -> pa.Array:
        remembered, known = self._arrays
        results = [self._fold.result(remembered[slot]) if known[slot] else None for slot in slots]
        try:
            return pa.array(results, self._type)
        except (pa.ArrowException, OverflowError) as error:
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
            remembered[slot] = None if packed is None else self._settle(unpack_value(packed))
