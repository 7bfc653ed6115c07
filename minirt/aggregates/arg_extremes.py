"""`ArgMin` and `ArgMax`: a value of the record in which another one is least or greatest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from minirt.aggregates.basic import Accumulated, has_order, unfit
from minirt.data.simple_columns import in_counts
from minirt.data.unify import widened
from minirt.kernels.contract import Slots
from minirt.state.accumulator import Accumulator, taken_apart
from minirt.state.numbers import is_number, number_type, to_ordered


@dataclass(frozen=True)
class _ArgExtreme(Accumulated):
    by: str = field(default="", kw_only=True)

    repeats: ClassVar = True
    greatest: ClassVar[bool]

    @property
    def inputs(self) -> tuple[str, ...]:
        return (*super().inputs, self.by)

    @property
    def computes(self) -> str:
        return f"{super().computes} by {self.by}"

    def result_type(self, type: pa.DataType) -> pa.DataType:
        if not has_order(type.field(1).type):
            raise unfit(self, type.field(1).type, "values that have an order")
        return type.field(0).type

    def accumulator(self, type: pa.DataType) -> Accumulator:
        return _ArgExtremes(type, greatest=self.greatest)


class ArgMin(_ArgExtreme):
    """The value of `column` in the record in which that of `by` is least; of several, in the first.

    It may be null. Records are left out whose `by` is null or NaN.
    """

    greatest: ClassVar = False


class ArgMax(_ArgExtreme):
    """The value of `column` in the record in which that of `by` is greatest; of several, in the first.

    It may be null. Records are left out whose `by` is null or NaN.
    """

    greatest: ClassVar = True


class _ArgExtremes(Accumulator):
    """Finds the best record of each key of a batch by sorting, and compares it with what is held."""

    def __init__(self, type: pa.DataType, *, greatest: bool) -> None:
        super().__init__([(np.object_, None), (np.object_, None), (np.bool_, False)])
        self._type = type
        self._greatest = greatest

    def add(self, slots: Slots, values: pa.Array) -> None:
        by = to_ordered(values.field(1))
        ranks = self._ranks(by)
        there = np.flatnonzero(by.is_valid().to_numpy(zero_copy_only=False) & ~np.isnan(ranks))
        if not len(there):
            return
        own, ranks = slots[there], ranks[there]
        order = np.lexsort((-there, ranks, own)) if self._greatest else np.lexsort((ranks, own))
        change = np.flatnonzero(np.diff(own[order])) + 1
        ends = np.append(change - 1, len(order) - 1) if self._greatest else np.append(0, change)
        best = there[order[ends]]
        rows = pa.array(best)
        taken = in_counts(values.field(0).take(rows)).to_pylist()
        self._compare(slots[best], by.take(rows).to_pylist(), taken)

    def merge(self, slots: Slots, other: Any, others: Slots) -> None:
        there = other._arrays[2][others]
        own = others[there]
        self._compare(slots[there], other._arrays[0][own], other._arrays[1][own])

    def result(self, slots: Slots) -> pa.Array:
        return pa.array(self._arrays[1][slots].tolist(), self._type.field(0).type)

    def stored(self, slots: Slots) -> list[pa.Array]:
        bys, values, known = (array[slots] for array in self._arrays)
        fields = [
            pa.array(column.tolist(), self._type.field(place).type)
            for place, column in enumerate((values, bys))
        ]
        return [pa.StructArray.from_arrays(fields, names=["value", "by"], mask=pa.array(~known))]

    def takes_over_from(self, before: pa.DataType, type: pa.DataType) -> bool:
        return True  # What is stored is of Arrow's types, and is widened.

    def load(self, slots: Slots, stored: Sequence[pa.Array]) -> None:
        known = stored[0].is_valid().to_numpy(zero_copy_only=False)
        bys, values, held = self._arrays
        parts = [
            widened(stored[0].field(place), self._type.field(place).type, "") for place in (0, 1)
        ]
        bys[slots], _ = taken_apart(to_ordered(parts[1]), bys.dtype)
        values[slots], _ = taken_apart(parts[0], values.dtype)
        held[slots] = known

    def _ranks(self, by: pa.Array) -> Any:
        """Numbers in the order of the values; those of nulls mean nothing."""
        if is_number(by.type) and number_type(by.type) != np.uint64:
            numbers, _ = taken_apart(by, np.dtype(number_type(by.type)))
            return numbers
        ordered = by.unique().drop_null().sort()
        places = pc.index_in(by, ordered).fill_null(0)
        return places.to_numpy(zero_copy_only=False).astype(np.int64)

    def _compare(self, slots: Slots, bys: Sequence[Any], values: Sequence[Any]) -> None:
        held, picked, known = self._arrays
        for slot, by, value in zip(slots.tolist(), bys, values, strict=True):
            if known[slot] and not (by > held[slot] if self._greatest else by < held[slot]):
                continue
            held[slot], picked[slot], known[slot] = by, value, True
