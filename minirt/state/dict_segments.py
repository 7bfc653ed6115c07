"""Incremental snapshots of state in dicts; the idea is that of `minirt.state.segments`.

To note for each key which file holds its newest version would take as much memory as the state. So the
stretch goes over the keys in *rounds*: what is written since a round began, changes and stretches, is
everything once the round is over. Then the files from before it can go.

Nobody reads a stretch of the last round once this round has *passed* it: its keys were written again. For
a dict keeps the order of its keys. Let a key that is still there lie in such a stretch. If it was not put
into the dict anew since that round began, then at least as many keys lay ahead of it as do now, so this
round has come by. If it was, it counted as changed, and what files hold of changes is always read.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from typing import Any, NamedTuple

from minirt.state import segments

_STRETCHES = 64


def is_small(table: Collection[Any]) -> bool:
    """Whether the table is written as a whole each time."""
    return len(table) <= segments.STRETCH_MIN


class Written(NamedTuple):
    """The keys that a snapshot writes, also of those that are gone: each is in one of the sets."""

    changed: Set[Any]
    stretch: Set[Any]


class _File(NamedTuple):
    """A file that holds keys; `passed_at` is the place in a round where its stretch is passed."""

    path: str
    has_stretch: bool
    passed_at: int | None


class DictSegments:
    """Knows which files hold the state of a dict. As with `Segments`, keys that are not confirmed have
    changed again."""

    def __init__(self) -> None:
        self._files: list[_File] = []
        """Those that hold the state without its latest changes, oldest first; none if nothing is stored."""
        self._round_began = 0
        """The place in `_files` of the first file of the round."""
        self._keys: list[Any] = []
        self._position = 0
        self._changed: set[Any] = set()
        self._handed_over: Sequence[Collection[Any]] | None = None
        self._whole_handed_over = False
        self._unstored = False
        """Whether something is in no file that is known, and not among the changed keys either."""
        self._stretch_handed_over = False
        self._passed_at: int | None = None
        """Where the stretch that was handed over is passed; None if an earlier life has written it."""

    def next(self, table: Collection[Any], changed: set[Any] | None) -> Written | None:
        """The keys to be written by a snapshot; None for all there are.

        `changed` are those that changed since the last call, None if they are not known; the set is the
        caller's no more. What is returned counts as handed over, and nobody changes it.
        """
        self._take_back()
        if changed is not None and self._files and not self._unstored:
            changed |= self._changed
            if 2 * len(changed) < len(table) and not is_small(table):
                stretch = set(self._next_stretch(table, len(changed))) - changed
                self._handed_over, self._changed = (changed, stretch), set()
                self._stretch_handed_over = bool(stretch)
                self._passed_at = self._position
                return Written(changed, stretch)
        self._forget()
        self._keys = list(table)
        self._whole_handed_over = True
        return None

    @property
    def keys(self) -> Sequence[Any]:
        """The keys of the round, those that the table had when it began; not to be changed."""
        return self._keys

    def restored(self, keys: Sequence[Collection[Any]] | None, *, has_stretch: bool) -> None:
        """A snapshot with these keys, None for all, was taken over, and counts as handed over.

        A key may be in several collections, and in each more than once. Nobody changes these any more.
        """
        self._take_back()
        if keys is None:
            self._forget()
            self._whole_handed_over = True
        else:
            self._handed_over = keys
            self._stretch_handed_over, self._passed_at = has_stretch, None

    def stored(self, path: str) -> None:
        """Note that this file holds the keys that were handed over last."""
        if self._whole_handed_over:
            self._files.append(_File(path, has_stretch=False, passed_at=None))
        elif self._handed_over is not None:
            self._files.append(_File(path, self._stretch_handed_over, self._passed_at))
        if self._whole_handed_over and self._keys:
            # A round has begun with the keys that are in this file.
            self._round_began = len(self._files)
        self._whole_handed_over = False
        self._handed_over = None

    def paths(self) -> list[str]:
        """The files that the state as of the last `next` builds on."""
        return [file.path for file in self._files]

    def stretches(self) -> list[str]:
        """Those of them whose stretch it builds on as well."""
        return [file.path for place, file in enumerate(self._files) if self._counts(place, file)]

    def _counts(self, place: int, file: _File) -> bool:
        """Whether the stretch of a file may hold what is nowhere else."""
        passed = (
            place < self._round_began
            and file.passed_at is not None
            and file.passed_at <= self._position
        )
        return file.has_stretch and not passed

    def _take_back(self) -> None:
        self._unstored |= self._whole_handed_over
        self._whole_handed_over = False
        if self._handed_over is None:
            return
        if self._files:
            self._changed.update(*self._handed_over)
        else:  # All of it will be written anyway.
            self._unstored = True
        self._handed_over = None

    def _forget(self) -> None:
        self._files, self._round_began = [], 0
        self._keys, self._position = [], 0
        self._changed, self._unstored = set(), False

    def _next_stretch(self, table: Collection[Any], changes: int) -> list[Any]:
        if self._position >= len(self._keys):
            del self._files[: self._round_began]
            self._round_began = len(self._files)
            self._keys, self._position = list(table), 0
        length = max(segments.STRETCH_MIN, -(-len(table) // _STRETCHES), changes)
        start, self._position = self._position, self._position + length
        return self._keys[start : self._position]
