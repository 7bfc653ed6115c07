"""Incremental snapshots of state in dicts; the idea is that of `minirt.state.segments`.

To note for each key which file holds its newest version would take as much memory as the state. So the
stretch goes over the keys in *rounds*: what is written since a round began, changes and stretches, is
everything once the round is over. Then the files from before it can go.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from typing import Any

from minirt.state import segments

_STRETCHES = 64


def is_small(table: Collection[Any]) -> bool:
    """Whether the table is written as a whole each time."""
    return len(table) <= segments.STRETCH_MIN


class DictSegments:
    """Knows which files hold the state of a dict. As with `Segments`, keys that are not confirmed have
    changed again."""

    def __init__(self) -> None:
        self._paths: list[str] = []
        """The files that hold the state without its latest changes; none if nothing is stored."""
        self._round_began = 0
        """The place in `_paths` of the first file of the round."""
        self._keys: list[Any] = []
        self._position = 0
        self._changed: set[Any] = set()
        self._handed_over: Collection[Any] | None = None
        self._whole_handed_over = False

    def next(self, table: Collection[Any], changed: set[Any] | None) -> Set[Any] | None:
        """The keys to be written by a snapshot, also of those that are gone; None for all there are.

        `changed` are those that changed since the last call, None if they are not known; the set is the
        caller's no more. What is returned counts as handed over, and nobody changes it.
        """
        self._take_back()
        if changed is not None and self._paths:
            changed |= self._changed
            if 2 * len(changed) < len(table) and not is_small(table):
                changed.update(self._next_stretch(table, len(changed)))
                self._handed_over, self._changed = changed, set()
                return changed
        self._forget()
        self._keys = list(table)
        self._whole_handed_over = True
        return None

    @property
    def keys(self) -> Sequence[Any]:
        """The keys of the round, those that the table had when it began; not to be changed."""
        return self._keys

    def restored(self, keys: Collection[Any] | None) -> None:
        """A snapshot with these keys, None for all, was taken over, and counts as handed over.

        A key may be among them more than once, and nobody changes them any more.
        """
        self._take_back()
        if keys is None:
            self._forget()
            self._whole_handed_over = True
        elif self._paths:
            self._handed_over = keys

    def stored(self, path: str) -> None:
        """Note that this file holds the keys that were handed over last."""
        if self._whole_handed_over or (self._handed_over is not None and self._paths):
            self._paths.append(path)
        if self._whole_handed_over and self._keys:
            # A round has begun with the keys that are in this file.
            self._round_began = len(self._paths)
        self._whole_handed_over = False
        self._handed_over = None

    def paths(self) -> list[str]:
        """The files that the state as of the last `next` builds on."""
        return list(self._paths)

    def _take_back(self) -> None:
        self._whole_handed_over = False
        if self._handed_over is not None:
            self._changed.update(self._handed_over)
            self._handed_over = None

    def _forget(self) -> None:
        self._paths, self._round_began = [], 0
        self._keys, self._position = [], 0
        self._changed = set()

    def _next_stretch(self, table: Collection[Any], changes: int) -> list[Any]:
        if self._position >= len(self._keys):
            del self._paths[: self._round_began]
            self._round_began = len(self._paths)
            self._keys, self._position = list(table), 0
        length = max(segments.STRETCH_MIN, -(-len(table) // _STRETCHES), changes)
        start, self._position = self._position, self._position + length
        return self._keys[start : self._position]
