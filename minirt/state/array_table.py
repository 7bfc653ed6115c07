"""State in arrays: for every key one slot, and for every slot what the aggregates have come to.

A table is stored as record batches of keys and accumulators. Loading one replaces what its keys had
before, so batches may be loaded one after the other, the newest last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minirt.aggregates import Aggregate
from minirt.data.keys import check_key_type, hash_columns
from minirt.errors import ConfigurationError, UserCodeError
from minirt.state.accumulators import Accumulator, accumulator
from minirt.state.key_index import KeyIndex, Slots
from minirt.state.numbers import Mask, grown

Times = npt.NDArray[np.int64]

_TIME, _PENDING = "@time", "@pending"


@dataclass(slots=True)
class _Contents:
    """What there is once the types of the columns are known."""

    key_types: list[pa.DataType]
    result_types: list[pa.DataType]
    index: KeyIndex
    accumulators: list[Accumulator]


class ArrayTable:
    """The keys of one subtask. `keys` names their columns; `label` is the operator's, for messages.

    Besides the aggregates it holds for each key the event time of its last record, and whether its
    result is *pending*: changed since it was given out.
    """

    def __init__(self, keys: Sequence[str], aggregates: Sequence[Aggregate], label: str) -> None:
        self._keys = keys
        self._aggregates = aggregates
        self._label = label
        self._contents: _Contents | None = None
        self._times: Times = np.zeros(1024, np.int64)
        self._timed = False
        self._pending: Mask = np.zeros(1024, np.bool_)
        self._rows: Slots = np.zeros(1024, np.intp)
        """By slot, a row of the batch in work."""

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
        for held, array in zip(contents.accumulators, values, strict=True):
            held.add(slots, array)
        changed = self._distinct(slots)
        if times is not None:
            self._times[slots] = times
            self._timed = True
        return changed

    def results(self, slots: Slots) -> tuple[pa.RecordBatch, Times | None]:
        """Keys and results of these slots, with the event times of their last records."""
        contents = self._contents
        assert contents is not None
        columns = [*contents.index.keys(slots), *(a.result(slots) for a in contents.accumulators)]
        names = [*self._keys, *(aggregate.output for aggregate in self._aggregates)]
        batch = pa.RecordBatch.from_arrays(columns, names)
        return batch, self._times[slots] if self._timed else None

    def hold_back(self, slots: Slots) -> None:
        """The results of these slots are pending."""
        self._pending[slots] = True

    def all(self) -> Slots:
        """Every slot there is."""
        return np.arange(len(self))

    def pending(self) -> Slots:
        """The slots whose results are pending."""
        return np.flatnonzero(self._pending[: len(self)])

    def give_out(self, slots: Slots) -> tuple[pa.RecordBatch, Times | None]:
        """As `results`, which then are no longer pending."""
        self._pending[slots] = False
        return self.results(slots)

    def stored(self, slots: Slots) -> pa.RecordBatch:
        """All there is to know of these slots."""
        contents = self._contents
        assert contents is not None
        columns = dict(zip(self._keys, contents.index.keys(slots), strict=True))
        for aggregate, held in zip(self._aggregates, contents.accumulators, strict=True):
            for place, array in enumerate(held.stored(slots)):
                columns[_stored_name(aggregate, place)] = array
        columns[_PENDING] = pa.array(self._pending[slots])
        if self._timed:
            columns[_TIME] = pa.array(self._times[slots])
        return pa.RecordBatch.from_pydict(columns)

    def load(self, stored: pa.RecordBatch, groups: range | None, max_parallelism: int) -> Slots:
        """Take over what was stored, only that of these key groups unless None; returns the slots.

        Raises ConfigurationError if it was stored by other aggregates.
        """
        columns = [
            [stored.column(name) for name in stored.schema.names if _is_of(aggregate, name)]
            for aggregate in self._aggregates
        ]
        wanted = {*self._keys, *(_stored_name(a, 0) for a in self._aggregates)}
        missing = wanted - set(stored.schema.names)
        if missing:
            raise ConfigurationError(
                f"operator {self._label}: the checkpoint holds state of other keys or aggregates, "
                f"{', '.join(stored.schema.names)}; give the operator that computes something new a "
                "new uid"
            )
        keys = [stored.column(name) for name in self._keys]
        hashes = hash_columns(keys)
        if groups is not None:
            group = hashes % np.uint64(max_parallelism)
            mine = np.flatnonzero((group >= groups.start) & (group < groups.stop))
            rows = pa.array(mine)
            stored, hashes = stored.take(rows), hashes[mine]
            keys = [array.take(rows) for array in keys]
            columns = [[array.take(rows) for array in arrays] for arrays in columns]
        contents = self._fitting(keys, [arrays[0] for arrays in columns])
        slots = contents.index.slots(keys, hashes)
        self._make_room(contents)
        for held, arrays in zip(contents.accumulators, columns, strict=True):
            held.load(slots, arrays)
        self._pending[slots] = stored.column(_PENDING).to_numpy(zero_copy_only=False)
        if _TIME in stored.schema.names:
            self._times[slots] = stored.column(_TIME).to_numpy()
            self._timed = True
        return slots

    def _column(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        if name not in batch.schema.names:
            raise UserCodeError(
                f"operator {self._label}: a batch has no column {name!r}, only "
                f"{', '.join(batch.schema.names)}"
            )
        array = batch.column(name)
        return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array

    def _fitting(self, keys: Sequence[pa.Array], values: Sequence[pa.Array]) -> _Contents:
        """The contents, begun if need be, after a look at the types of a batch."""
        key_types = [array.type for array in keys]
        if self._contents is None:
            for name, type in zip(self._keys, key_types, strict=True):
                problem = check_key_type(type)
                if problem is not None:
                    raise UserCodeError(f"operator {self._label}: column {name!r}: {problem}")
            self._contents = _Contents(
                key_types,
                self._result_types(values),
                KeyIndex(key_types),
                [accumulator(a, v.type) for a, v in zip(self._aggregates, values, strict=True)],
            )
        contents = self._contents
        before = [*contents.key_types, *contents.result_types]
        now = [*key_types, *self._result_types(values)]
        if before != now:
            names = [*self._keys, *(aggregate.output for aggregate in self._aggregates)]
            changed = next(i for i in range(len(now)) if before[i] != now[i])
            raise UserCodeError(
                f"operator {self._label}: {names[changed]!r} was of type {before[changed]} so far and "
                f"is of type {now[changed]} in a batch; cast the column to one type"
            )
        return contents

    def _result_types(self, values: Sequence[pa.Array]) -> list[pa.DataType]:
        try:
            return [
                aggregate.result_type(array.type)
                for aggregate, array in zip(self._aggregates, values, strict=True)
            ]
        except ConfigurationError as error:
            raise UserCodeError(f"operator {self._label}: {error}") from error

    def _make_room(self, contents: _Contents) -> None:
        count = len(contents.index)
        for held in contents.accumulators:
            held.make_room(count)
        used = len(self._times)
        if count > used:
            self._times = grown(self._times, used, count, 0)
            self._pending = grown(self._pending, used, count, False)
            self._rows = grown(self._rows, used, count, 0)

    def _distinct(self, slots: Slots) -> Slots:
        """Each slot once, where it comes last: cheaper than sorting them."""
        rows = np.arange(len(slots))
        self._rows[slots] = rows
        newest: Mask = self._rows[slots] == rows
        return slots[newest]


def _stored_name(aggregate: Aggregate, place: int) -> str:
    return f"{aggregate.output}#{place}"


def _is_of(aggregate: Aggregate, stored: str) -> bool:
    return stored.rpartition("#")[0] == aggregate.output
