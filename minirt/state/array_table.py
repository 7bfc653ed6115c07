"""State in arrays: every key has a slot, and every slot holds the current values of the aggregates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from minirt.aggregates import Aggregate, First, Last
from minirt.data.hashing import U64
from minirt.data.keys import group_columns, hash_columns
from minirt.data.simple_columns import in_microseconds, simple
from minirt.errors import UserCodeError
from minirt.kernels.choice import kernels
from minirt.kernels.contract import Slots
from minirt.state.accumulator import Accumulator
from minirt.state.array_contents import Times
from minirt.state.array_slots import ArraySlots
from minirt.state.filters import Filters
from minirt.state.numbers import Mask, to_numbers
from minirt.state.sums import SumOverflowError, TooWideError

ADDED = "\x1e"
"""How the names of key columns begin that operators add to those of users."""

Results = tuple[pa.RecordBatch, Times | None]
"""Keys and results in columns, and the event times of their newest records if there are any."""

__all__ = ["ArrayTable", "Results", "Times"]


class ArrayTable(ArraySlots):
    """Takes in records and gives out results."""

    def without_keys(self) -> ArrayTable:
        """A table for columns of the same types, as far as these are known."""
        layout = self._layout
        table = ArrayTable(
            self._keys,
            self._aggregates,
            self._label,
            routing=layout.routing,
            arrivals=layout.arrivals,
        )
        if self._contents is not None:
            types = self._contents.key_types, self._contents.value_types
            table._contents = layout.begin(*types)
        return table

    def of_keys(self, count: int | None = None) -> ArrayTable:
        """An empty table of the same keys, or of the first parts of keys, and of no aggregates."""
        return ArrayTable(self._keys[:count], (), self._label, routing=self._routing)

    def times(self, slots: Slots) -> Times:
        """The event times of the newest records of these keys; the earliest time there is without any."""
        return self._marks.times[slots]

    def numbers(self, place: int, slots: Slots) -> tuple[npt.NDArray[np.int64], Mask]:
        """What an aggregate of whole numbers has come to, not null, and where there is something."""
        if self._contents is None:
            return np.zeros(len(slots), np.int64), np.zeros(len(slots), np.bool_)
        numbers, nulls = to_numbers(self._contents.accumulators[place].result(slots))
        return numbers, np.ones(len(slots), np.bool_) if nulls is None else ~nulls

    def set_numbers(
        self, place: int, slots: Slots, numbers: npt.NDArray[np.int64], known: Mask
    ) -> None:
        """Have such an aggregate come to these numbers, and to null where they are not known."""
        contents = self._contents
        assert contents is not None
        self._before_change(slots)
        contents.accumulators[place].load(slots, [pa.array(numbers, mask=~known)])
        self._segments.change(slots)

    def fresh(self) -> tuple[list[pa.DataType], list[Accumulator]]:
        """The types of the results, and empty accumulators of columns of the same types."""
        assert self._contents is not None
        contents = self._layout.begin(self._contents.key_types, self._contents.value_types)
        return contents.result_types, contents.accumulators

    def add(
        self,
        batch: pa.RecordBatch,
        times: Times | None,
        renewed: Callable[[Slots], Slots] | None = None,
    ) -> Slots:
        """Take in records, with their event times; returns the slots that they belong to, each once.

        `renewed` says which of these begin anew: what they hold is forgotten before anything is added.
        Raises UserCodeError for a batch whose columns are not like those of the batches before.
        """
        changed = self.distinct(self._take_in(batch, times, renewed))
        self._segments.change(changed)
        return changed

    def add_rows(self, batch: pa.RecordBatch, times: Times | None) -> Slots:
        """As `add`; returns the slot of each record."""
        slots = self._take_in(batch, times)
        self._segments.change(slots)
        return slots

    def distinct(self, slots: Slots) -> Slots:
        """Each slot once, where it comes last: cheaper than sorting them."""
        return kernels().newest(slots, self._rows)

    def _take_in(
        self,
        batch: pa.RecordBatch,
        times: Times | None,
        renewed: Callable[[Slots], Slots] | None = None,
    ) -> Slots:
        keys = [self._column(batch, name) for name in self._keys]
        values = [self._values(batch, aggregate, keys) for aggregate in self._aggregates]
        masks = self._filters.masks(batch)
        contents = self._fitting(keys, values)
        slots = contents.index.slots(keys, hash_columns(keys))
        self._make_room(contents)
        self._before_change(slots)
        self._revive(contents, slots)
        if renewed is not None:
            self._begin_anew(contents, renewed(self.distinct(slots)))
        for place, (held, array) in enumerate(zip(contents.accumulators, values, strict=True)):
            with self.naming_sums(place, self.keys):
                held.add(*_counting(self._aggregates[place], masks[place], slots, array))
        if times is not None:
            np.maximum.at(self._marks.times, slots, times)
            self._timed = True
        return slots

    def merge(self, slots: Slots, others: Slots) -> None:
        """Each slot takes in what another one holds, which stays as it is. No slot is named twice."""
        contents = self._contents
        assert contents is not None
        self._before_change(slots)
        for place, held in enumerate(contents.accumulators):
            with self.naming_sums(place, self.keys):
                held.merge(slots, held, others)
        self._marks.times[slots] = np.maximum(self._marks.times[slots], self._marks.times[others])
        self._segments.change(slots)

    @contextmanager
    def naming_sums(
        self, place: int, keys: Callable[[Slots], Sequence[pa.Array]]
    ) -> Iterator[None]:
        """What an accumulator of the aggregate at this place raises, with the column and the key.

        `keys` gives the key columns of the accumulator's slots. Raises UserCodeError.
        """
        try:
            yield
        except SumOverflowError as error:
            raise self._beyond_range(place, keys(np.array([error.slot]))) from error
        except TooWideError as error:
            aggregate = self._aggregates[place]
            raise UserCodeError(
                f"operator {self._label}: {aggregate.output!r}, the sum of column {aggregate.column!r}: "
                f"{error}"
            ) from error

    def key_groups(self, batch: pa.RecordBatch, max_parallelism: int) -> U64:
        """The key group of each record. Raises UserCodeError if a key column is missing."""
        keys = [self._column(batch, name) for name in self._keys[: self._routing]]
        return group_columns(keys, max_parallelism)

    def groups_of(self, slots: Slots, max_parallelism: int) -> npt.NDArray[np.int64]:
        """The key group of the keys in these slots."""
        if self._routing < len(self._keys):
            return group_columns(self.keys(slots)[: self._routing], max_parallelism).astype(
                np.int64
            )
        return (self.hashes(slots) % np.uint64(max_parallelism)).astype(np.int64)

    def results(self, slots: Slots) -> Results:
        """Keys and results of these slots, with the event times of their newest records."""
        contents = self._contents
        assert contents is not None
        columns = [*contents.index.keys(slots), *(a.result(slots) for a in contents.accumulators)]
        names = [*self._keys, *(aggregate.output for aggregate in self._aggregates)]
        batch = pa.RecordBatch.from_arrays(columns, names)
        return batch, self._marks.times[slots] if self._timed else None

    def hold_back(self, slots: Slots) -> None:
        """The results of these slots are pending."""
        self._before_change(slots)
        self._marks.pending[slots] = True

    def is_pending(self, slots: Slots) -> Mask:
        """Of which of these slots the results are pending."""
        return self._marks.pending[slots]

    def pending(self) -> Slots:
        """The slots whose results are pending."""
        return np.flatnonzero(self._marks.pending[: self.used])

    def key_order(self, slots: Slots) -> npt.NDArray[np.intp]:
        """The places of these slots in an order that goes by their keys, and not by when these came."""
        hashes = self.hashes(slots)
        order = np.argsort(hashes, kind="stable")
        ordered = hashes[order]
        # Few keys, if any, share a hash.
        for shared in np.unique(ordered[1:][ordered[1:] == ordered[:-1]]):
            tied = np.flatnonzero(ordered == shared)
            columns = self.keys(slots[order[tied]])
            texts = [repr([column[row].as_py() for column in columns]) for row in range(len(tied))]
            order[tied] = order[tied][np.argsort(texts, kind="stable")]
        return order

    def by_key(self, slots: Slots) -> Slots:
        """These slots in that order."""
        return slots[self.key_order(slots)] if len(slots) else slots

    def give_out(self, slots: Slots) -> Results:
        """As `results`; marks them as given out."""
        self.given_out(slots)
        return self.results(slots)

    def given_out(self, slots: Slots) -> None:
        """The results of these slots are not pending any more."""
        self._before_change(slots)
        self._marks.pending[slots] = False
        self._segments.change(slots)

    @cached_property
    def _filters(self) -> Filters:
        return Filters(self._aggregates, self._label)

    def _values(
        self, batch: pa.RecordBatch, aggregate: Aggregate, keys: Sequence[pa.Array]
    ) -> pa.Array:
        arrays = [self._value(batch, name) for name in aggregate.inputs]
        if len(arrays) > 1:
            return pa.StructArray.from_arrays(arrays, names=["value", "by"])
        return arrays[0] if arrays else keys[0]

    def _value(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        """The column; null in a batch that lacks it, if an earlier one has shown that there is one."""
        if self._contents is not None and name not in batch.schema.names:
            return pa.nulls(batch.num_rows)
        return self._column(batch, name)

    def _column(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        if name not in batch.schema.names:
            raise UserCodeError(
                f"operator {self._label}: a batch has no column {name!r}, only "
                f"{', '.join(known for known in batch.schema.names if not known.startswith(ADDED))}"
            )
        return simple(batch.column(name))

    def _beyond_range(self, place: int, keys: Sequence[pa.Array]) -> UserCodeError:
        """`keys` are the key columns of one slot."""
        assert self._contents is not None
        aggregate, type = self._aggregates[place], self._contents.result_types[place]
        named = zip(self._keys, keys, strict=False)
        key = {
            name: in_microseconds(array)[0].as_py()
            for name, array in named
            if not name.startswith(ADDED)
        }
        of = f"for the key {key}" if key else "of all records"
        wider = (
            "overflow='widen' makes it a decimal of 38 digits, also from a checkpoint of the job as it "
            "is, and "
        )
        return UserCodeError(
            f"operator {self._label}: {aggregate.output!r}, the sum of column {aggregate.column!r} {of}, "
            f"is beyond the range of {type}; {'' if pa.types.is_decimal(type) else wider}"
            "a column that is cast to float64 has sums that are rounded"
        )


def _counting(
    aggregate: Aggregate, mask: Mask | None, slots: Slots, values: pa.Array
) -> tuple[Slots, pa.Array]:
    """The records that count for the aggregate."""
    if mask is None:
        return slots, values
    chosen = pa.array(mask)
    if isinstance(aggregate, First | Last):
        # They number all records, and leave nulls out.
        return slots, pc.if_else(chosen, values, pa.scalar(None, values.type))
    own = slots[mask]
    # To pick from a column that the aggregate does not look at would cost as much as the rest.
    return own, values.filter(chosen) if aggregate.inputs else values.slice(0, len(own))
