"""State in arrays: every key has a slot, and every slot holds the current values of the aggregates.

A table is stored in segments: record batches of keys and accumulators. Loading one replaces what its keys
had before, so they are loaded one after the other, the newest last.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minirt.aggregates import Aggregate
from minirt.data.hashing import U64
from minirt.data.keys import check_key_type, group_columns, hash_columns
from minirt.data.simple_columns import simple
from minirt.errors import ConfigurationError, UserCodeError
from minirt.state import segments
from minirt.state.accumulators import Accumulator, accumulator
from minirt.state.array_layout import (
    ARRAY_TABLE,
    PENDING,
    TIME,
    column_of,
    key_part,
    pack_table,
    part,
    part_of,
)
from minirt.state.frozen import FrozenSlots
from minirt.state.key_index import KeyIndex, Slots
from minirt.state.numbers import Mask, grown
from minirt.state.sections import Section, unpack_columns
from minirt.state.segments import Segments
from minirt.state.sums import SumOverflowError

Results = tuple[pa.RecordBatch, "Times | None"]
"""Keys and results in columns, and the event times of their newest records if there are any."""

Times = npt.NDArray[np.int64]

_BEFORE_ALL = np.iinfo(np.int64).min


@dataclass(slots=True)
class _Contents:
    """The content of a table, once the types of its columns are known."""

    key_types: list[pa.DataType]
    result_types: list[pa.DataType]
    index: KeyIndex
    accumulators: list[Accumulator]

    def change_key_type(self, place: int, type: pa.DataType) -> None:
        """A key column that was null so far turns out to be of this type."""
        self.key_types[place] = type
        self.index.change_type(place, type)


class ArrayTable:
    """The keys of one subtask. `keys` names their columns; `label` is the operator's, for messages.

    Besides the aggregates it holds for each key the event time of its newest record, and whether its
    result is *pending*: changed since it was given out.
    """

    def __init__(self, keys: Sequence[str], aggregates: Sequence[Aggregate], label: str) -> None:
        self._keys = keys
        self._aggregates = aggregates
        self._label = label
        self._contents: _Contents | None = None
        self._segments = Segments()
        self._frozen: Callable[[], FrozenSlots | None] = lambda: None
        """The last snapshot, until it is stored or given up."""
        self._times: Times = np.full(1024, _BEFORE_ALL, np.int64)
        self._timed = False
        self._pending: Mask = np.zeros(1024, np.bool_)
        self._rows: Slots = np.zeros(1024, np.intp)
        """By slot, a row of the batch in work."""

    def without_keys(self) -> ArrayTable:
        """A table for columns of the same types, as far as these are known."""
        table = ArrayTable(self._keys, self._aggregates, self._label)
        if self._contents is not None:
            table._contents = table._begin(self._contents.key_types, self._contents.result_types)
        return table

    def __len__(self) -> int:
        return 0 if self._contents is None else len(self._contents.index)

    def add(self, batch: pa.RecordBatch, times: Times | None) -> Slots:
        """Take in records, with their event times; returns the slots that they belong to, each once.

        Raises UserCodeError for a batch whose columns are not like those of the batches before.
        """
        keys = [self._column(batch, name) for name in self._keys]
        values = [
            keys[0] if aggregate.column is None else self._column(batch, aggregate.column)
            for aggregate in self._aggregates
        ]
        contents = self._fitting(keys, values)
        slots = contents.index.slots(keys, hash_columns(keys))
        self._make_room(contents)
        self._before_change(slots)
        for aggregate, held, array in zip(
            self._aggregates, contents.accumulators, values, strict=True
        ):
            try:
                held.add(slots, array)
            except SumOverflowError as error:
                raise self._beyond_range(aggregate, array.type, error.slot) from error
        if times is not None:
            np.maximum.at(self._times, slots, times)
            self._timed = True
        changed = self._distinct(slots)
        self._segments.change(changed)
        return changed

    def key_groups(self, batch: pa.RecordBatch, max_parallelism: int) -> U64:
        """The key group of each record. Raises UserCodeError if a key column is missing."""
        keys = [self._column(batch, name) for name in self._keys]
        return group_columns(keys, max_parallelism)

    def results(self, slots: Slots) -> Results:
        """Keys and results of these slots, with the event times of their newest records."""
        contents = self._contents
        assert contents is not None
        columns = [*contents.index.keys(slots), *(a.result(slots) for a in contents.accumulators)]
        names = [*self._keys, *(aggregate.output for aggregate in self._aggregates)]
        batch = pa.RecordBatch.from_arrays(columns, names)
        return batch, self._times[slots] if self._timed else None

    def hold_back(self, slots: Slots) -> None:
        """The results of these slots are pending."""
        self._before_change(slots)
        self._pending[slots] = True

    def pending(self) -> Slots:
        """The slots whose results are pending."""
        return np.flatnonzero(self._pending[: len(self)])

    def give_out(self, slots: Slots) -> Results:
        """As `results`; marks them as given out."""
        self._before_change(slots)
        self._pending[slots] = False
        self._segments.change(slots)
        return self.results(slots)

    def snapshot(self) -> Section | None:
        """The section to be stored now, besides the files in `builds_on`; None if there are no keys."""
        contents, total = self._contents, len(self)
        if contents is None or not total:
            return None
        self._complete_frozen()
        waiting = np.zeros(total, np.bool_)
        waiting[self._segments.next()] = True
        frozen = FrozenSlots(waiting, partial(self._stored, contents, self._timed))
        if total <= segments.STRETCH_MIN:
            return pack_table(frozen.pieces(), total)
        self._frozen = weakref.ref(frozen)
        return lambda: pack_table(frozen.pieces(), total)

    def builds_on(self) -> list[str]:
        """The files that the last snapshot needs besides itself, in no order."""
        return self._segments.paths()

    def on_stored(self, path: str) -> None:
        """Note that this file holds the last snapshot, or the last restored one, and that it counts as
        stored."""
        self._segments.stored(path)

    def restore(self, data: bytes, groups: range | None, max_parallelism: int) -> None:
        """Take over a snapshot: the keys of these key groups, or all keys if None.

        Raises MalformedDataError, and ConfigurationError if it was taken with other aggregates.
        """
        loaded = []
        for stored in unpack_columns(ARRAY_TABLE, data):
            self._check_columns(stored)
            hashes = hash_columns(self._key_arrays(stored))
            if groups is not None:
                group = hashes % np.uint64(max_parallelism)
                mine = np.flatnonzero((group >= groups.start) & (group < groups.stop))
                stored, hashes = stored.take(pa.array(mine)), hashes[mine]
            loaded.append(self._load(stored, hashes))
        self._segments.hand_over(np.concatenate(loaded))

    def _stored(self, contents: _Contents, timed: bool, slots: Slots) -> pa.RecordBatch:
        """The whole content of these slots."""
        columns = dict(zip(map(key_part, self._keys), contents.index.keys(slots), strict=True))
        for aggregate, held in zip(self._aggregates, contents.accumulators, strict=True):
            for place, array in enumerate(held.stored(slots)):
                columns[column_of(aggregate, place)] = array
        columns[PENDING] = pa.array(self._pending[slots])
        if timed:
            columns[TIME] = pa.array(self._times[slots])
        return pa.RecordBatch.from_pydict(columns)

    def _before_change(self, slots: Slots) -> None:
        frozen = self._frozen()
        if frozen is not None:
            frozen.before_change(slots)

    def _complete_frozen(self) -> None:
        frozen = self._frozen()
        if frozen is not None:
            frozen.complete()

    def _check_columns(self, stored: pa.RecordBatch) -> None:
        found = {part(name) for name in stored.schema.names}
        wanted = {*map(key_part, self._keys), *map(part_of, self._aggregates), PENDING}
        if found - {TIME} != wanted:
            raise ConfigurationError(
                f"operator {self._label}: the checkpoint holds state of other keys or aggregates: "
                f"{', '.join(sorted(found - {PENDING, TIME}))}; give the operator that computes "
                "something new a new uid"
            )

    def _key_arrays(self, stored: pa.RecordBatch) -> list[pa.Array]:
        return [stored.column(key_part(name)) for name in self._keys]

    def _load(self, stored: pa.RecordBatch, hashes: U64) -> Slots:
        """Replace the content of the stored keys; returns their slots."""
        keys = self._key_arrays(stored)
        columns = [
            [
                stored.column(name)
                for name in stored.schema.names
                if part(name) == part_of(aggregate)
            ]
            for aggregate in self._aggregates
        ]
        contents = self._fitting(keys, [arrays[0] for arrays in columns])
        slots = contents.index.slots(keys, hashes)
        self._make_room(contents)
        for held, arrays in zip(contents.accumulators, columns, strict=True):
            held.load(slots, arrays)
        self._pending[slots] = stored.column(PENDING).to_numpy(zero_copy_only=False)
        if TIME in stored.schema.names:
            self._times[slots] = stored.column(TIME).to_numpy()
            self._timed = True
        return slots

    def _column(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        if name not in batch.schema.names:
            raise UserCodeError(
                f"operator {self._label}: a batch has no column {name!r}, only "
                f"{', '.join(batch.schema.names)}"
            )
        return simple(batch.column(name))

    def _fitting(self, keys: list[pa.Array], values: Sequence[pa.Array]) -> _Contents:
        """The contents, begun if need be, once the columns are known to be of fitting types.

        A column of nothing but nulls may have no type of its own: it takes the known one, or it is
        the known one that waits for a better.
        """
        contents = self._contents
        if contents is None:
            types = ([array.type for array in arrays] for arrays in (keys, values))
            contents = self._contents = self._begin(*types)
        for place, array in enumerate(keys):
            known = contents.key_types[place]
            if pa.types.is_null(array.type):
                keys[place] = pa.nulls(len(array), known)
            elif pa.types.is_null(known):
                self._complete_frozen()
                contents.change_key_type(place, array.type)
            elif known != array.type:
                raise self._misfit(f"key column {self._keys[place]!r}", known, array.type)
        for place, (aggregate, array) in enumerate(zip(self._aggregates, values, strict=True)):
            known, type = contents.result_types[place], self._result_type(aggregate, array.type)
            if known == type or pa.types.is_null(type):
                continue
            if not pa.types.is_null(known):
                raise self._misfit(
                    f"column {aggregate.column!r}: its {aggregate.output!r}", known, type
                )
            self._complete_frozen()
            contents.accumulators[place] = accumulator(aggregate, array.type)
            contents.result_types[place] = type
        return contents

    def _begin(
        self, key_types: Sequence[pa.DataType], value_types: Sequence[pa.DataType]
    ) -> _Contents:
        """Empty contents. An aggregate can compute a result also from a column of its result's type."""
        for name, type in zip(self._keys, key_types, strict=True):
            problem = check_key_type(type)
            if problem is not None:
                raise UserCodeError(f"operator {self._label}: column {name!r}: {problem}")
        pairs = list(zip(self._aggregates, value_types, strict=True))
        return _Contents(
            list(key_types),
            [self._result_type(aggregate, type) for aggregate, type in pairs],
            KeyIndex(key_types),
            [accumulator(aggregate, type) for aggregate, type in pairs],
        )

    def _result_type(self, aggregate: Aggregate, type: pa.DataType) -> pa.DataType:
        try:
            return aggregate.result_type(type)
        except ConfigurationError as error:
            raise UserCodeError(f"operator {self._label}: {error}") from error

    def _misfit(self, what: str, known: pa.DataType, type: pa.DataType) -> UserCodeError:
        return UserCodeError(
            f"operator {self._label}: {what} was of type {known} so far and is of type {type} in "
            "a batch; cast the column to one type"
        )

    def _beyond_range(self, aggregate: Aggregate, type: pa.DataType, slot: int) -> UserCodeError:
        assert self._contents is not None
        keys = self._contents.index.keys(np.array([slot]))
        key = dict(zip(self._keys, (array[0].as_py() for array in keys), strict=True))
        return UserCodeError(
            f"operator {self._label}: {aggregate.output!r}, the sum of column {aggregate.column!r} for "
            f"the key {key}, is beyond the range of {self._result_type(aggregate, type)}; "
            "overflow='widen' makes it a decimal of 38 digits, also from a checkpoint of the job as it "
            "is, and a column that is cast to float64 has sums that are rounded"
        )

    def _make_room(self, contents: _Contents) -> None:
        count = len(contents.index)
        self._segments.make_room(count)
        for held in contents.accumulators:
            held.make_room(count)
        used = len(self._times)
        if count > used:
            self._times = grown(self._times, used, count, _BEFORE_ALL)
            self._pending = grown(self._pending, used, count, False)
            self._rows = grown(self._rows, used, count, 0)

    def _distinct(self, slots: Slots) -> Slots:
        """Each slot once, where it comes last: cheaper than sorting them."""
        rows = np.arange(len(slots))
        self._rows[slots] = rows
        newest: Mask = self._rows[slots] == rows
        return slots[newest]
