"""Moves the keys of a table together, so that the memory of those that are gone is given back.

They are copied into arrays of their own, piece by piece, while the table is used. What changes meanwhile
is copied again, and once nothing is left to be copied the table uses the copies. So no step takes longer
than a piece, however many keys there are. Source of the method: Nettles and O'Toole, "Real-Time
Replication Garbage Collection", 1993.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from minirt.kernels.contract import Slots
from minirt.state.array_contents import Contents, Marks
from minirt.state.key_index import KeyIndex
from minirt.state.numbers import enlarged
from minirt.state.segments import Segments

PIECE_SLOTS = 16384
"""How many slots are looked at in one step, a few milliseconds' worth."""


class Move:
    """Copies what is alive of `source`, whose owner calls `change` for slots that are about to change."""

    def __init__(self, source: Contents, marks: Marks, live: int) -> None:
        """`live` is about how many keys there are."""
        self._source = source
        self._source_marks = marks
        self._room = live + live // 4
        self._position = 0
        """All slots before this one were copied, but for those that are gone."""
        self._again: list[Slots] = []
        """Slots before it that have changed since."""
        self._kept: Slots = np.empty(self._room, np.intp)
        self.into = Contents(
            source.key_types,
            source.value_types,
            source.result_types,
            KeyIndex(source.key_types),
            [],
        )
        self.marks = marks.emptied(self._room)
        self.segments = Segments(self._room)

    @property
    def kept(self) -> Slots:
        """By slot of the copy, the slot that it was."""
        return self._kept[: len(self.into.index)]

    def change(self, slots: Slots) -> None:
        """These slots are about to change."""
        known = slots[slots < self._position]
        if len(known):
            self._again.append(known)

    def steps(self) -> Iterator[bool]:
        """Copy in steps, without end. Each tells whether all is copied by now."""
        source, into = self._source, self.into
        for _ in into.index.begin(self._room, source.index):
            yield False
        for held in source.accumulators:
            into.accumulators.append(held.emptied(self._room))
            yield False
        while True:
            yield self._step()

    def _step(self) -> bool:
        """Copy a piece, and again what has changed."""
        used = len(self._source.index)
        again, self._again = self._again, []
        stop = min(self._position + PIECE_SLOTS, used)
        live = self._position + np.flatnonzero(~self._source_marks.gone[self._position : stop])
        self._position = stop
        if again:
            self._copy(np.unique(np.concatenate(again)))
        self._copy(live)
        return stop == used

    def _copy(self, slots: Slots) -> None:
        if not len(slots):
            return
        source, into = self._source, self.into
        index = source.index
        places = into.index.slots(index.keys(slots), index.hashes[slots])
        count = len(into.index)
        if count > len(self._kept):
            self._kept = enlarged(self._kept, len(self._kept), count)
        self._kept[places] = slots
        copies, originals = (
            (self.marks, *into.accumulators),
            (self._source_marks, *source.accumulators),
        )
        for held, theirs in zip(copies, originals, strict=True):
            held.make_room(count)
            held.take_over(places, theirs, slots)
        self.segments.make_room(count)
        self.segments.change(places)
