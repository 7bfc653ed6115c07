"""Keyed state in memory: one table a state name, from key to value.

A snapshot holds a table as a whole, or what has changed in it: keys that are gone, and keys with values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from itertools import compress
from typing import Any

from minirt.data.codec import UnsupportedRecordError
from minirt.data.keys import key_groups
from minirt.state.dict_segments import DictSegments, is_small
from minirt.state.keyed_changes import pack_changes, unpack_changes
from minirt.state.sections import kind_of, pack_section, unpack_section
from minirt.state.stored import KEYED_TABLE


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

    def table(self, name: str) -> dict[Any, Any]:
        """The values of the state `name` by key; always the same dict, free to be read and changed."""
        self._segments.setdefault(name, DictSegments())
        return self._tables.setdefault(name, {})

    def change(self, keys: Collection[Any]) -> None:
        """The state of these keys may have changed. Costs little where snapshots are whole anyway."""
        if self._changed is None:
            return
        self._changed.update(keys)
        if 2 * len(self._changed) >= max(map(len, self._tables.values()), default=0):
            self._changed = None

    def snapshot(self) -> dict[str, bytes]:
        """One section a table that holds or held anything, besides what the files in `builds_on` hold.

        Raises UnsupportedRecordError for values of types that cannot be stored.
        """
        changed, self._changed = self._changed, set()
        sections = {}
        for name, table in self._tables.items():
            keys = self._segments[name].next(table, changed)
            if keys is not None:
                sections[name] = self._pack_changes(name, table, keys)
            elif table:
                sections[name] = self._pack(name, table, table.values())
        if all(map(is_small, self._tables.values())):
            self._changed = None
        return sections

    def builds_on(self) -> dict[str, list[str]]:
        """By section, the files that the last snapshot needs besides itself."""
        return {name: segments.paths() for name, segments in self._segments.items()}

    def on_stored(self, path: str) -> None:
        """The last snapshot, or what was restored last, is in this file, and no more of it has changed."""
        for segments in self._segments.values():
            segments.stored(path)

    def restore(self, sections: Mapping[str, bytes], *, filter_groups: bool) -> None:
        """Merge a snapshot, of this or of another subtask, in the order in which they build on each other.

        `filter_groups` keeps only what lies in the own key groups; without it all is known to.
        Raises MalformedDataError.
        """
        for name, section in sections.items():
            table = self.table(name)
            changed: set[Any] | None = None
            present = section
            if kind_of(section) != KEYED_TABLE:
                gone, present = unpack_changes(section)
                changed = set(gone)
                for key in changed:
                    table.pop(key, None)
            chunks = unpack_section(KEYED_TABLE, present, allow_pickle=self._allow_pickle)
            for keys, values in chunks:
                if changed is not None:
                    changed.update(keys)
                entries = zip(keys, values, strict=True)
                if filter_groups:
                    own = owned(keys, self._max_parallelism, self._groups)
                    table.update(compress(entries, own))
                else:
                    table.update(entries)
            self._segments[name].restored(changed)
        self._changed = set()

    def entries(self) -> dict[str, int]:
        """How many keys every state holds a value for."""
        return {name: len(table) for name, table in self._tables.items()}

    def _pack_changes(self, name: str, table: dict[Any, Any], keys: Set[Any]) -> bytes:
        gone = [key for key in keys if key not in table]
        there = [key for key in keys if key in table] if gone else keys
        entries = self._pack(name, there, map(table.__getitem__, there))
        return pack_changes(len(table), gone, entries)

    def _pack(self, name: str, keys: Iterable[Any], values: Iterable[Any]) -> bytes:
        try:
            return pack_section(KEYED_TABLE, keys, values, allow_pickle=self._allow_pickle)
        except UnsupportedRecordError as error:
            raise UnsupportedRecordError(f"state {name!r} cannot be stored: {error}") from error


def owned(keys: list[Any], max_parallelism: int, groups: range) -> list[bool]:
    """For every key, whether its key group is one of `groups`."""
    found = key_groups(keys, max_parallelism)
    mask: list[bool] = ((found >= groups.start) & (found < groups.stop)).tolist()
    return mask
