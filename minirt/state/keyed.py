"""Keyed state in memory: one table a state name, from key to value."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import compress
from typing import Any

from minirt.data.codec import UnsupportedRecordError
from minirt.data.keys import key_groups
from minirt.state.sections import pack_section, unpack_section
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

    def table(self, name: str) -> dict[Any, Any]:
        """The values of the state `name` by key; always the same dict, free to be read and changed."""
        return self._tables.setdefault(name, {})

    def snapshot(self) -> dict[str, bytes]:
        """Everything, frozen as bytes: one section a table that holds anything.

        Raises UnsupportedRecordError for values of types that cannot be stored.
        """
        return {name: self._pack(name, table) for name, table in self._tables.items() if table}

    def restore(self, sections: Mapping[str, bytes], *, filter_groups: bool) -> None:
        """Merge a snapshot, of this or of another subtask.

        `filter_groups` keeps only what lies in the own key groups; without it all is known to.
        Raises MalformedDataError.
        """
        for name, section in sections.items():
            table = self.table(name)
            chunks = unpack_section(KEYED_TABLE, section, allow_pickle=self._allow_pickle)
            for keys, values in chunks:
                entries = zip(keys, values, strict=True)
                if filter_groups:
                    own = owned(keys, self._max_parallelism, self._groups)
                    table.update(compress(entries, own))
                else:
                    table.update(entries)

    def entries(self) -> dict[str, int]:
        """How many keys every state holds a value for."""
        return {name: len(table) for name, table in self._tables.items()}

    def _pack(self, name: str, table: dict[Any, Any]) -> bytes:
        try:
            return pack_section(KEYED_TABLE, table, table.values(), allow_pickle=self._allow_pickle)
        except UnsupportedRecordError as error:
            raise UnsupportedRecordError(f"state {name!r} cannot be stored: {error}") from error


def owned(keys: list[Any], max_parallelism: int, groups: range) -> list[bool]:
    """For every key, whether its key group is one of `groups`."""
    found = key_groups(keys, max_parallelism)
    mask: list[bool] = ((found >= groups.start) & (found < groups.stop)).tolist()
    return mask
