"""Panes of array state, merged into windows that overlap.

A window of many panes is merged from blocks: a block holds four smaller ones, merged once and kept as
long as none of them changes. So a window takes a few merges for each power of four among its panes, and
what has to be kept besides the panes is about a third of them. As in the "pane" and "pair" methods of
Krishnamurthy, Wu and Franklin, "On-the-Fly Sharing for Streamed Aggregation" (2006), records are added
up once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minirt.kernels.contract import Slots
from minirt.state.accumulator import Accumulator
from minirt.state.array_table import ArrayTable

_WIDTH = 4
"""How many blocks one block holds."""

_KEYS_MIN = 1024
"""So many keys may be listed that have no records left before the list is made anew."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some keys with what they have come to. `keys` ascend; `slots` are those in the accumulators."""

    keys: Slots
    slots: Slots
    types: Sequence[pa.DataType]
    accumulators: Sequence[Accumulator]
    in_order: bool = False
    """Whether `slots` are 0, 1, 2 and so on."""


class MergedPanes:
    """Windows of panes that are tables of one kind, by number. Nothing of it is stored."""

    def __init__(self, panes: Mapping[int, ArrayTable], empty: ArrayTable) -> None:
        self._panes = panes
        self._empty = empty
        self._listed = empty.of_keys()
        self._parts: dict[int, Part] = {}
        self._blocks: dict[tuple[int, int], Part] = {}
        """By level and number."""
        self._levels = 0
        """The highest level at which there was a block."""

    def changed(self, pane: int) -> None:
        """More was added to a pane, or it is gone."""
        self._parts.pop(pane, None)
        block = pane
        for level in range(1, self._levels + 1):
            block //= _WIDTH
            self._blocks.pop((level, block), None)

    def window(self, first: int, stop: int) -> Part | None:
        """These panes merged, the earlier ones first; None if none of them holds anything."""
        parts = [part for part in self._cover(first, stop) if part is not None]
        return self._merged(parts) if parts else None

    def keys(self, part: Part) -> list[pa.Array]:
        """The key columns of a part."""
        return self._listed.keys(part.keys)

    def groups(self, part: Part, max_parallelism: int) -> npt.NDArray[np.int64]:
        """The key group of each key."""
        return self._listed.groups_of(part.keys, max_parallelism)

    def by_key(self, part: Part, places: Slots) -> Slots:
        """These places of a part in an order that goes by their keys, see `ArrayTable.key_order`."""
        return places[self._listed.key_order(part.keys[places])]

    def places(self, part: Part, batch: pa.RecordBatch) -> Slots:
        """Where in the part the keys of these records are, each once; they must be in it."""
        return np.searchsorted(part.keys, np.unique(self._listed.add_rows(batch, None)))

    def forget_unused(self, part: Part) -> None:
        """Make the list of keys anew if it has far more than were in the last window."""
        if self._listed.used > 2 * len(part.keys) + _KEYS_MIN:
            self._listed = self._empty.of_keys()
            self._parts.clear()
            self._blocks.clear()

    def _cover(self, first: int, stop: int) -> Iterator[Part | None]:
        """The largest blocks that make up these panes, in their order."""
        while first < stop:
            level, width = 0, 1
            while first % (width * _WIDTH) == 0 and first + width * _WIDTH <= stop:
                level, width = level + 1, width * _WIDTH
            yield self._block(level, first // width)
            first += width

    def _block(self, level: int, number: int) -> Part | None:
        if level == 0:
            return self._part(number)
        if (level, number) not in self._blocks:
            within = range(number * _WIDTH, (number + 1) * _WIDTH)
            parts = [part for each in within if (part := self._block(level - 1, each)) is not None]
            if not parts:
                return None
            self._blocks[level, number] = self._merged(parts)
            self._levels = max(self._levels, level)
        return self._blocks[level, number]

    def _part(self, pane: int) -> Part | None:
        table = self._panes.get(pane)
        contents = None if table is None else table.contents
        if table is None or contents is None or not len(table):
            return None
        if pane not in self._parts:
            slots = table.live()
            listed = self._listed.list_keys(table.keys(slots))
            # In order, for less than it costs to sort them.
            slot_of = np.full(self._listed.used, -1, np.intp)
            slot_of[listed] = slots
            keys = np.flatnonzero(slot_of >= 0)
            self._parts[pane] = Part(keys, slot_of[keys], *contents)
        return self._parts[pane]

    def _merged(self, parts: Sequence[Part]) -> Part:
        if len(parts) == 1:
            return parts[0]
        keys = self._united([part.keys for part in parts])
        place_of = np.empty(self._listed.used, np.intp)
        place_of[keys] = np.arange(len(keys))
        newest = max(self._panes.values(), key=_known_types)
        types, accumulators = newest.fresh()
        for held in accumulators:
            held.make_room(len(keys))
        for part in parts:
            alike = part.in_order and len(part.keys) == len(keys)
            slots = place_of[part.keys]
            for place, held in enumerate(accumulators):
                # A column of nothing but nulls adds nothing, and may have no type of its own.
                if part.types[place] != types[place]:
                    continue
                with newest.naming_sums(place, lambda slots: self._listed.keys(keys[slots])):
                    if alike:
                        held.merge_first(len(keys), part.accumulators[place])
                    else:
                        held.merge(slots, part.accumulators[place], part.slots)
        return Part(keys, np.arange(len(keys)), types, accumulators, in_order=True)

    def _united(self, lists: Sequence[Slots]) -> Slots:
        """The keys that are in any of these lists, in order."""
        longest = max(lists, key=len)
        if len(longest) == self._listed.used:
            return longest
        there = np.zeros(self._listed.used, np.bool_)
        for keys in lists:
            there[keys] = True
        return np.flatnonzero(there)


def _known_types(table: ArrayTable) -> int:
    """How many of the columns of a table have a type by now."""
    contents = table.contents
    return -1 if contents is None else sum(not pa.types.is_null(type) for type in contents[0])
