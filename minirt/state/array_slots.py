"""The slots of a table of array state: which keys have one, how they are stored and given back.

A table is stored in segments: record batches of keys and accumulators. Loading one replaces what its keys
had before, so they are loaded one after the other, the newest last. A segment names keys that are gone.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
import pyarrow as pa

from minirt.aggregates import Aggregate
from minirt.data.errors import UnlikeTypesError
from minirt.data.hashing import U64
from minirt.data.keys import group_columns, hash_columns
from minirt.errors import ConfigurationError, UserCodeError
from minirt.kernels.contract import Slots
from minirt.state import segments
from minirt.state.accumulator import Accumulator
from minirt.state.accumulators import Arrivals
from minirt.state.array_contents import Contents, Layout, Marks
from minirt.state.array_layout import (
    ARRAY_TABLE,
    GONE,
    PENDING,
    TIME,
    column_of,
    columns_of,
    key_part,
    pack_table,
    part,
    part_of,
    total_of,
)
from minirt.state.array_moves import Move
from minirt.state.frozen import FrozenSlots
from minirt.state.numbers import Mask
from minirt.state.sections import Section, unpack_columns
from minirt.state.segments import Segments
from minirt.state.slot_arrays import FIRST_ROOM

_GONE_MIN = 1024
"""So many slots may be of keys that are gone before the others are moved together."""


class RepeatedKeyError(Exception):
    """The key in this row has come before."""

    def __init__(self, row: int) -> None:
        super().__init__(f"the key in row {row} has come before")
        self.row = row


class ArraySlots:
    """The keys of one subtask. `keys` names their columns; `label` is the operator's, for messages.

    Besides the aggregates it holds for each key the event time of its newest record, and whether its
    result is *pending*: changed since it was given out.
    """

    def __init__(
        self,
        keys: Sequence[str],
        aggregates: Sequence[Aggregate],
        label: str,
        *,
        routing: int | None = None,
        arrivals: Arrivals | None = None,
        optional: Sequence[Aggregate] = (),
    ) -> None:
        """The first `routing` key columns tell the key group, all by default. `arrivals` as for
        `accumulator`. Of the `optional` aggregates, all of integers, a snapshot may hold others than the
        table has."""
        routing = len(keys) if routing is None else routing
        self._layout = Layout(keys, aggregates, label, routing, arrivals)
        self._keys = keys
        self._routing = routing
        self._aggregates = aggregates
        self._optional = frozenset(map(part_of, optional))
        self._label = label
        self._contents: Contents | None = None
        self._segments = Segments()
        self._frozen: Callable[[], FrozenSlots | None] = lambda: None
        """The last snapshot, until it is stored or given up."""
        self._marks = Marks()
        self._timed = False
        self._gone_count = 0
        self._move: Move | None = None
        """What moves the slots together now."""
        self._rows: Slots = np.zeros(1024, np.intp)
        """By slot, a row of the batch in work."""

    def list_keys(self, keys: Sequence[pa.Array]) -> Slots:
        """The slots of these keys; new ones are listed, as keys without records."""
        keys = list(keys)
        contents = self._fitting(keys, None)
        slots = contents.index.slots(keys, hash_columns(keys))
        self._make_room(contents)
        if self._gone_count:
            self._before_change(slots)
            self._revive(contents, slots)
        self._segments.change(slots)
        return slots

    def fill(self, keys: Sequence[pa.Array], held: Sequence[Sequence[pa.Array]]) -> Slots:
        """List new keys, each with what every aggregate holds of it, in columns as accumulators store them.

        Raises RepeatedKeyError for a key that there is already.
        """
        keys, before = list(keys), self.used
        contents = self._fitting(keys, [columns[0] for columns in held])
        slots = contents.index.slots(keys, hash_columns(keys))
        if self.used < before + len(slots):
            raise RepeatedKeyError(_repeated(slots, before))
        self._make_room(contents)
        for accumulator, columns in zip(contents.accumulators, held, strict=True):
            accumulator.load(slots, columns)
        self._segments.change(slots)
        return slots

    def __len__(self) -> int:
        """How many keys there are."""
        return self.used - self._gone_count

    @property
    def used(self) -> int:
        """All slots are below it, those of keys that are gone included."""
        return 0 if self._contents is None else len(self._contents.index)

    def drop(self, slots: Slots) -> Slots | None:
        """As `forget`, followed by all of `tidy`.

        Returns None, or which old slots are now 0, 1, 2 and so on, because they were moved together: then
        what the caller knows by slot is out of date.
        """
        self.forget(slots)
        if not self._crowded:
            return None
        self._complete_frozen()
        return _returned(self._move_together())

    def forget(self, slots: Slots) -> None:
        """Forget the keys in these slots, each named once."""
        if not len(slots):
            return
        self._before_change(slots)
        self._marks.gone[slots] = True
        self._marks.begin_anew(slots)
        self._gone_count += len(slots)
        self._segments.change(slots)

    def tidy(self) -> Iterator[None]:
        """Give back the slots of keys that are gone, if these are many, in steps between which the table
        may be used in every way. The slots of all keys are others afterwards.
        """
        if self._crowded:
            yield from self._move_together()

    def live(self, start: int = 0, stop: int | None = None) -> Slots:
        """The slots of all keys, or of those from `start` to before `stop`."""
        stop = self.used if stop is None else min(stop, self.used)
        return start + np.flatnonzero(~self._marks.gone[start:stop])

    def keys(self, slots: Slots) -> list[pa.Array]:
        """The key columns of these slots."""
        assert self._contents is not None
        return self._contents.index.keys(slots)

    def hashes(self, slots: Slots) -> U64:
        """The hashes of the keys in these slots."""
        assert self._contents is not None
        return self._contents.index.hashes[slots]

    @property
    def contents(self) -> tuple[list[pa.DataType], list[Accumulator]] | None:
        """The types of the results, and the accumulators; None before the first record."""
        held = self._contents
        return None if held is None else (held.result_types, held.accumulators)

    def snapshot(self, expired: Callable[[Slots], Mask] | None = None) -> Section | None:
        """The section to be stored now, besides the files in `builds_on`; None if there are no keys.

        What `expired` is true for of some slots, as they were now, is stored as keys that are gone.
        """
        contents, total = self._contents, len(self)
        if contents is None or not total:
            return None
        self._complete_frozen()
        waiting = self._segments.next()
        gone = partial(self._gone, expired) if self._gone_count or expired is not None else None
        # If nothing older counts any more, nobody has to be told.
        tells_gone = gone is not None and not waiting.all()
        copy = partial(self._stored, contents, self._timed, gone, tells_gone)
        frozen = FrozenSlots(waiting.copy(), copy)
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
        total = total_of(data)
        for stored in unpack_columns(ARRAY_TABLE, data):
            self._check_columns(stored)
            if groups is None and self._contents is not None:
                for room in (self._contents, self._marks, self._segments):
                    room.reserve(total)
            elif groups is not None:
                routing = self._key_arrays(stored)[: self._routing]
                group = group_columns(routing, max_parallelism)
                mine = np.flatnonzero((group >= groups.start) & (group < groups.stop))
                stored = stored.take(pa.array(mine))
            loaded.append(self._load(stored, hash_columns(self._key_arrays(stored))))
        self._segments.hand_over(np.concatenate(loaded))

    def _stored(
        self,
        contents: Contents,
        timed: bool,
        gone: Callable[[Slots], Mask] | None,
        tells_gone: bool,
        slots: Slots,
    ) -> pa.RecordBatch:
        """The whole content of these slots; of those that are gone nothing, if nobody is told."""
        of_gone = None if gone is None else gone(slots)
        if of_gone is not None and not tells_gone:
            slots = slots[~of_gone]
        columns = dict(zip(map(key_part, self._keys), contents.index.keys(slots), strict=True))
        for aggregate, held in zip(self._aggregates, contents.accumulators, strict=True):
            for place, array in enumerate(held.stored(slots)):
                columns[column_of(aggregate, place)] = array
        columns[PENDING] = pa.array(self._marks.pending[slots])
        if timed:
            columns[TIME] = pa.array(self._marks.times[slots])
        if tells_gone:
            columns[GONE] = pa.array(of_gone)
        return pa.RecordBatch.from_pydict(columns)

    def _gone(self, expired: Callable[[Slots], Mask] | None, slots: Slots) -> Mask:
        gone: Mask = self._marks.gone[slots]
        return gone if expired is None else gone | expired(slots)

    def _before_change(self, slots: Slots) -> None:
        if self._move is not None:
            self._move.change(slots)
        frozen = self._frozen()
        if frozen is not None:
            frozen.before_change(slots)

    @property
    def _being_copied(self) -> bool:
        """Whether a snapshot is to copy more."""
        frozen = self._frozen()
        return frozen is not None and not frozen.done

    def _complete_frozen(self) -> None:
        frozen = self._frozen()
        if frozen is not None:
            frozen.complete()

    def _check_columns(self, stored: pa.RecordBatch) -> None:
        found = {part(name) for name in stored.schema.names}
        wanted = {*map(key_part, self._keys), *map(part_of, self._aggregates), PENDING}
        if (found ^ wanted) - self._optional - {TIME, GONE}:
            raise ConfigurationError(
                f"operator {self._label}: the checkpoint holds state of other keys or aggregates: "
                f"{', '.join(sorted(found - {PENDING, TIME, GONE}))}; give the operator that computes "
                "something new a new uid"
            )

    def _key_arrays(self, stored: pa.RecordBatch) -> list[pa.Array]:
        return [stored.column(key_part(name)) for name in self._keys]

    def _load(self, stored: pa.RecordBatch, hashes: U64) -> Slots:
        """Replace the content of the stored keys; returns their slots."""
        keys = self._key_arrays(stored)
        columns = [columns_of(stored, aggregate) for aggregate in self._aggregates]
        none = pa.nulls(0, pa.int64())
        contents = self._fitting(keys, [arrays[0] if arrays else none for arrays in columns])
        slots = contents.index.slots(keys, hashes)
        self._make_room(contents)
        loaded = zip(self._aggregates, contents.accumulators, columns, strict=True)
        for aggregate, held, arrays in loaded:
            if arrays:
                with self._naming(aggregate):
                    held.load(slots, arrays)
            else:
                held.clear(slots)
        self._marks.pending[slots] = stored.column(PENDING).to_numpy(zero_copy_only=False)
        if TIME in stored.schema.names:
            self._marks.times[slots] = stored.column(TIME).to_numpy()
            self._timed = True
        gone = np.zeros(len(slots), np.bool_)
        if GONE in stored.schema.names:
            gone = stored.column(GONE).to_numpy(zero_copy_only=False)
        self._gone_count += int(gone.sum()) - int(self._marks.gone[slots].sum())
        self._marks.gone[slots] = gone
        return slots

    def _revive(self, contents: Contents, slots: Slots) -> None:
        """What was dropped of keys that have come again is not to be seen."""
        if not self._gone_count:
            return
        again = np.unique(slots[self._marks.gone[slots]])
        for held in contents.accumulators:
            held.clear(again)
        self._marks.gone[again] = False
        self._gone_count -= len(again)

    def _begin_anew(self, contents: Contents, slots: Slots) -> None:
        """Forget what these slots hold, but for their keys."""
        for held in contents.accumulators:
            held.clear(slots)
        self._marks.begin_anew(slots)

    @property
    def _crowded(self) -> bool:
        """Whether so many slots are of keys that are gone that the others had better be moved together."""
        return self._gone_count > (max(_GONE_MIN, len(self)) if len(self) else 0)

    def _move_together(self) -> Generator[None, None, Slots | None]:
        """Give back the slots of keys that are gone. The next snapshot stores all others.

        Returns the old slot of each new one; None if columns turned out to be of other types meanwhile.
        """
        contents = self._contents
        assert contents is not None
        move = self._move = Move(contents, self._marks, len(self))
        for all_is_copied in move.steps():
            # Not while a snapshot has to copy objects that these copies share with what it knows.
            if all_is_copied and not self._being_copied:
                break
            yield
            if self._move is not move:
                return None
        marks = self._go_on_with(move)
        # To give back large arrays takes time as well.
        yield
        while contents.accumulators:
            contents.accumulators.pop()
            yield
        del contents, marks
        return move.kept

    def _go_on_with(self, move: Move) -> Marks:
        """Returns the marks as they were."""
        marks, self._marks, self._contents, self._move = self._marks, move.marks, move.into, None
        count = len(move.kept)
        self._gone_count = int(np.count_nonzero(self._marks.gone[:count]))
        self._rows = np.empty(max(count, FIRST_ROOM), np.intp)
        self._segments = move.segments
        return marks

    def _fitting(self, keys: list[pa.Array], values: list[pa.Array] | None) -> Contents:
        """The contents, begun if need be, once the columns are known to be of fitting types.

        Without values, only keys are looked at.
        """
        contents = self._contents
        if contents is not None and values is not None and contents.is_of(keys, values):
            return contents
        if values is None:
            known = contents.value_types if contents is not None else []
            values = [pa.nulls(0, type) for type in known]
        if contents is None:
            types = ([array.type for array in arrays] for arrays in (keys, values))
            contents = self._contents = self._layout.begin(*types)
        late_keys, late_values = self._layout.unfitting(contents, keys, values)
        if late_keys or late_values:
            self._complete_frozen()
            self._move = None
        for place, type in late_keys.items():
            contents.change_key_type(place, type)
        for place, type in late_values.items():
            aggregate = self._aggregates[place]
            with self._naming(aggregate):
                held = self._layout.accumulator(aggregate, type)
                result = self._layout.result_type(aggregate, type)
                contents.change_value_type(place, type, result, held)
        return contents

    @contextmanager
    def _naming(self, aggregate: Aggregate) -> Iterator[None]:
        """Name the aggregate of which a value does not fit. Raises UserCodeError."""
        try:
            yield
        except UnlikeTypesError as error:
            of_column = UnlikeTypesError(
                str(aggregate.column), error.one, error.other, *error.value
            )
            raise UserCodeError(
                f"operator {self._label}: {aggregate.output!r}: {of_column}"
            ) from error

    @property
    def types(self) -> tuple[list[pa.DataType], list[pa.DataType]] | None:
        """The types of the key columns and of the values; None before the first record."""
        held = self._contents
        return None if held is None else ([*held.key_types], [*held.value_types])

    def take_types(self, types: tuple[list[pa.DataType], list[pa.DataType]]) -> None:
        """Have the columns be of types that another table of the operator has, which are not narrower.

        Raises UserCodeError for what is held and would not be the same.
        """
        if self._contents is not None:
            keys, values = ([pa.nulls(0, type) for type in each] for each in types)
            self._make_room(self._fitting(keys, values))

    def _make_room(self, contents: Contents) -> None:
        count = len(contents.index)
        self._segments.make_room(count)
        for held in contents.accumulators:
            held.make_room(count)
        self._marks.make_room(count)
        if count > len(self._rows):
            self._rows = np.empty(2 * count, np.intp)


def _returned(steps: Generator[None, None, Slots | None]) -> Slots | None:
    """What all of these steps come to."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            returned: Slots | None = end.value
            return returned


def _repeated(slots: Slots, before: int) -> int:
    """The first row whose slot is that of a row above it, or below `before`."""
    first = np.zeros(len(slots), np.bool_)
    first[np.unique(slots, return_index=True)[1]] = True
    return int(np.flatnonzero(~first | (slots < before))[0])
