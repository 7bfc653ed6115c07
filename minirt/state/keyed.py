"""Keyed state in memory: one table a state name, from key to value.

A snapshot holds a table as a whole, or what has changed in it: keys that are gone, and keys with values.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from functools import partial
from itertools import compress
from sys import getsizeof
from typing import Any

from minirt.data.errors import UnsupportedRecordError
from minirt.data.keys import distinct_keys, key_groups
from minirt.state.dict_segments import DictSegments, is_small
from minirt.state.frozen import FrozenKeys, Trim
from minirt.state.keyed_changes import pack_changes, unpack_changes
from minirt.state.sections import Section, join_chunks, kind_of, pack_chunk, unpack_section
from minirt.state.stored import KEYED_TABLE, STRETCH

_FEW_KEYS = 1 << 16
"""So many keys are put into a table again within a few milliseconds."""

_ROOMY_BYTES = 512
"""Of a dict, for each key: several times what one takes that grew to its size."""

_KEYS_MIN = 1024


class KeyedState:
    """The state of the keys of one subtask, those whose key group lies in `groups`.

    `key` is the current key. `allow_pickle` lets values of any type be stored, as pickles.
    """

    def __init__(self, max_parallelism: int, groups: range, *, allow_pickle: bool = False) -> None:
        self.key: Any = None
        self._max_parallelism = max_parallelism
        self._groups = groups
        self._allow_pickle = allow_pickle
        self._tables: dict[str, dict[Any, Any]] = {}
        self._segments: dict[str, DictSegments] = {}
        self._changed: set[Any] | None = None
        """The keys that may have changed since the last snapshot; None if these are not counted."""
        self._trims: dict[str, Callable[[], Trim | None]] = {}
        self._frozen: list[weakref.ref[FrozenKeys]] = []
        """The parts of the last snapshot that are made later, until it is stored or given up."""

    def table(self, name: str) -> dict[Any, Any]:
        """The values of the state `name` by key; always the same dict, free to be read and changed."""
        self._segments.setdefault(name, DictSegments())
        return self._tables.setdefault(name, {})

    def trim(self, name: str, as_of_now: Callable[[], Trim | None]) -> None:
        """Leave out of snapshots of a table what the function, asked at each of them, says."""
        self._trims[name] = as_of_now

    def empty(self, name: str) -> None:
        """Forget all that a table holds, if there is one of this name."""
        table = self._tables.get(name)
        if table:
            self.change(list(table))
            table.clear()

    def shrink(self) -> None:
        """Give back the memory of tables that have lost nearly all of their keys.

        A dict never does so by itself. Call it between records.
        """
        if self._live():  # Another thread reads the tables.
            return
        for table in self._tables.values():
            if len(table) <= _FEW_KEYS and getsizeof(table) > _ROOMY_BYTES * (
                len(table) + _KEYS_MIN
            ):
                left = list(table.items())
                table.clear()
                table.update(left)

    def change(self, keys: Collection[Any]) -> None:
        """Note that the state of these keys may be about to change.

        Costs little where snapshots are whole anyway, and while none is being stored.
        """
        if self._frozen:
            self._before_change(keys)
        if self._changed is None:
            return
        self._changed.update(keys)
        if 2 * len(self._changed) >= max(map(len, self._tables.values()), default=0):
            self._changed = None

    def snapshot(self) -> dict[str, Section]:
        """A section or two of each table that holds or held anything, besides what `builds_on` names.

        Raises UnsupportedRecordError for values of types that cannot be stored; so do sections that are
        made later.
        """
        for frozen in self._live():
            frozen.complete()
        self._frozen = []
        changed, self._changed = self._changed, set()
        several = len(self._tables) > 1
        sections: dict[str, Section] = {}
        for name, table in self._tables.items():
            own = changed.copy() if several and changed is not None else changed
            written = self._segments[name].next(table, own)
            if written is not None:
                sections[name] = self._section(name, table, written.changed)
                if written.stretch:
                    sections[name + STRETCH] = self._section(name, table, written.stretch)
            elif table:
                sections[name] = self._section(name, table, None)
        if all(map(is_small, self._tables.values())):
            self._changed = None
        return sections

    def builds_on(self) -> dict[str, list[str]]:
        """By section, the files that the last snapshot needs besides itself."""
        found: dict[str, list[str]] = {}
        for name, segments in self._segments.items():
            found |= {name: segments.paths(), name + STRETCH: segments.stretches()}
        return found

    def on_stored(self, path: str) -> None:
        """Note that this file holds the last snapshot, or the last restored one, and that it counts as
        stored."""
        for segments in self._segments.values():
            segments.stored(path)

    def restore(self, sections: Mapping[str, bytes], *, filter_groups: bool) -> None:
        """Merge a snapshot, of this or of another subtask, in the order in which they build on each other.

        `filter_groups` keeps only what lies in the own key groups; without it all is known to.
        Raises MalformedDataError.
        """
        for name in dict.fromkeys(each.removesuffix(STRETCH) for each in sections):
            table, names = self.table(name), (name, name + STRETCH)
            named = [
                self._take_over(table, sections[each], filter_groups=filter_groups)
                for each in names
                if each in sections
            ]
            changed = [keys for keys in named if keys is not None]
            self._segments[name].restored(
                changed if len(changed) == len(named) else None, has_stretch=names[1] in sections
            )
        self._changed = set()

    def _take_over(
        self, table: dict[Any, Any], section: bytes, *, filter_groups: bool
    ) -> list[Any] | None:
        """Returns the keys that the section names, also of those that are gone; None if it is of all."""
        named: list[Any] | None = None
        present = section
        if kind_of(section) != KEYED_TABLE:
            gone, present = unpack_changes(section)
            named = distinct_keys(gone)
            for key in named:
                table.pop(key, None)
        for stored, values in unpack_section(KEYED_TABLE, present, allow_pickle=self._allow_pickle):
            keys = distinct_keys(stored)
            if named is not None:
                named += keys
            entries = zip(keys, values, strict=True)
            if filter_groups:
                own = owned(keys, self._max_parallelism, self._groups)
                table.update(compress(entries, own))
            else:
                table.update(entries)
        return named

    def entries(self) -> dict[str, int]:
        """How many keys every state holds a value for."""
        return {name: len(table) for name, table in self._tables.items()}

    def _section(self, name: str, table: dict[Any, Any], only: Set[Any] | None) -> Section:
        """These keys of a table, None for all, as they are now; made later unless the table is small."""
        keys = self._segments[name].keys if only is None else only
        trim = self._trims[name]() if name in self._trims else None
        frozen = FrozenKeys(table, keys, only, partial(self._pack, name), trim)
        total = len(table)

        def make() -> bytes:
            entries = join_chunks(KEYED_TABLE, frozen.pieces())
            return entries if only is None else pack_changes(total, frozen.gone, entries)

        if is_small(table):
            frozen.complete()
            return make()
        self._frozen.append(weakref.ref(frozen))
        return make

    def _live(self) -> list[FrozenKeys]:
        """The snapshots that are still to be stored."""
        return [frozen for reference in self._frozen if (frozen := reference()) is not None]

    def _before_change(self, keys: Collection[Any]) -> None:
        live = self._live()
        for frozen in live:
            frozen.before_change(keys)
        if not live:
            self._frozen = []

    def _pack(self, name: str, keys: Sequence[Any], values: Sequence[Any]) -> bytes:
        try:
            return pack_chunk(keys, values, allow_pickle=self._allow_pickle)
        except UnsupportedRecordError as error:
            raise UnsupportedRecordError(f"state {name!r} cannot be stored: {error}") from error


def owned(keys: list[Any], max_parallelism: int, groups: range) -> list[bool]:
    """For every key, whether its key group is one of `groups`."""
    found = key_groups(keys, max_parallelism)
    mask: list[bool] = ((found >= groups.start) & (found < groups.stop)).tolist()
    return mask
