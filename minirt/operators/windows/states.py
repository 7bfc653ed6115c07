"""What a WindowProcess keeps for each window of a key, until the window is closed."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import Any

from minirt.data.custody import Custody
from minirt.functions import WindowProcess
from minirt.state.binding import bind_states, declarations
from minirt.state.keyed import KeyedState
from minirt.state.kinds_of_state import KindsOfState

TABLE = "states of windows"
_SCRATCH_KEY = 0

Values = dict[str, Any]
"""By the name of a state, what it holds."""


def has_state(process: WindowProcess | None) -> bool:
    return process is not None and bool(declarations(type(process)))


class WindowStates:
    """The states of a process are those of one window at a time, taken out of the state of its key.

    A key has a list of windows: where each begins and ends (None without bounds), and its states.
    """

    def __init__(
        self, process: WindowProcess, state: KeyedState, custody: Custody, *, by_end: bool
    ) -> None:
        """`by_end` says that `forget_until` is going to be called: windows close as their end is told."""
        self._state = state
        self._by_end = by_end
        self._windows = state.table(TABLE)
        self._scratch = KeyedState(1, range(1))
        self._scratch.key = _SCRATCH_KEY
        bind_states(process, self._scratch, custody)
        self._names = [handle._name or name for name, handle in declarations(type(process)).items()]
        self._ends: list[tuple[int, int, Any]] = []
        """A heap of the ends of windows that have state, each with a number and a key."""
        self._numbers = count()
        self._noted: set[tuple[int, Any]] = set()

    def restored(self, kinds: KindsOfState) -> None:
        """The state of all keys is there. Raises ConfigurationError for states of another kind."""
        for key, windows in self._windows.items():
            for _, end, values in windows:
                for name, value in values.items():
                    kinds.check_values(name, (value,))
                self._note_end(end, key)

    def enter(
        self, key: Any, start: int | None, end: int | None, merge: Callable[[Values], None]
    ) -> None:
        """The states of this window are the current ones.

        Those of sessions that are part of it now come together by `merge`, the earliest being its own.
        """
        self._state.change((key,))
        mine: list[list[Any]] = []
        others: list[list[Any]] = []
        for window in self._windows.get(key, ()):
            (mine if _within(window, start, end) else others).append(window)
        self._put(key, others)
        within = [values for _, _, values in sorted(mine, key=_begins)]
        for name in self._names:
            table = self._scratch.table(name)
            table.clear()
            if within and name in within[0]:
                table[_SCRATCH_KEY] = within[0][name]
        for values in within[1:]:
            merge(values)

    def leave(self, key: Any, start: int | None, end: int | None) -> None:
        """Keep the current states as those of this window."""
        values: Values = {}
        for name in self._names:
            table = self._scratch.table(name)
            if _SCRATCH_KEY in table:
                values[name] = table.pop(_SCRATCH_KEY)
        if values:
            self._windows.setdefault(key, []).append([start, end, values])
            self._note_end(end, key)

    def forget(self, key: Any, start: int | None, end: int | None) -> None:
        """Windows of the key within these bounds are closed."""
        windows = self._windows.get(key)
        if windows is not None:
            self._state.change((key,))
            self._put(key, [window for window in windows if not _within(window, start, end)])

    def forget_until(self, end: int) -> None:
        """All windows that end up to here are closed."""
        while self._ends and self._ends[0][0] <= end:
            due, _, key = heapq.heappop(self._ends)
            self._noted.discard((due, key))
            windows = self._windows.get(key)
            if windows is not None:
                self._state.change((key,))
                self._put(key, [w for w in windows if w[1] is None or w[1] > end])

    def _put(self, key: Any, windows: list[list[Any]]) -> None:
        if windows:
            self._windows[key] = windows
        else:
            self._windows.pop(key, None)

    def _note_end(self, end: int | None, key: Any) -> None:
        if self._by_end and end is not None and (end, key) not in self._noted:
            self._noted.add((end, key))
            heapq.heappush(self._ends, (end, next(self._numbers), key))


def _within(window: list[Any], start: int | None, end: int | None) -> bool:
    if start is None or end is None:
        return window[0] is None
    return window[0] is not None and start <= window[0] and window[1] <= end


def _begins(window: list[Any]) -> int:
    return window[0] or 0
