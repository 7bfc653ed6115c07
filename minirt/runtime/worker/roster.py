"""Which subtasks of a worker may have something to do.

A worker asks only those that something has happened to since it asked them last: a frame has come or left,
credit, a command, mail or the result of an upload has come, they have worked, or a moment has come that
they wait for. So a turn costs what is ready, and not what exists.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from minirt.protocol.ids import SubtaskId
from minirt.runtime.subtask.subtask import Subtask

_STALE_ALARMS_MAX = 64
"""How many alarms that count no more may be kept, besides as many as there are subtasks."""


class Roster:
    """The subtasks of one worker, in the order of their turns. Times are of its monotonic clock."""

    def __init__(self, subtasks: Sequence[Subtask]) -> None:
        self._subtasks = subtasks
        self._places = {subtask.id: place for place, subtask in enumerate(subtasks)}
        self._stirred: dict[int, None] = {}
        """Those that were not looked at since something has happened to them."""
        self._listed: set[int] = set()
        """Those that wait for their turn: they may be able to work."""
        self._this_turn: list[int] = []
        """Heaps of these places: of those whose turn comes before the next one of the first subtask ..."""
        self._next_turn: list[int] = []
        """... and of the others."""
        self._at = -1
        """Whose turn it is; -1 between two rounds."""
        self._alarms: list[tuple[float, int]] = []
        """A heap. Only those count that `_alarm_at` has as well."""
        self._alarm_at: list[float | None] = [None for _ in subtasks]
        for place, subtask in enumerate(subtasks):
            subtask.changed = subtask.outputs.changed = partial(self._stir, place)
            self._stir(place)

    def stir(self, id: SubtaskId) -> None:
        """Something has happened to a subtask: it may have something to do now."""
        self._stir(self._places[id])

    def stir_all(self) -> None:
        """Something has happened that may concern any of them."""
        for place in range(len(self._subtasks)):
            self._stir(place)

    def stirred(self) -> list[Subtask]:
        """Those that something has happened to, and that nobody has looked at since."""
        return [self._subtasks[place] for place in self._stirred]

    def look(self, now: float, passed_over: Collection[Subtask]) -> Iterator[Subtask]:
        """The same, and those whose moment has come; all but some count as looked at."""
        while self._alarms and self._alarms[0][0] <= now:
            at, place = heapq.heappop(self._alarms)
            if self._alarm_at[place] == at:
                self._alarm_at[place] = None
                self._stir(place)
        for place in [*self._stirred]:
            subtask = self._subtasks[place]
            if subtask not in passed_over:
                del self._stirred[place]
                yield subtask

    def expect(self, subtask: Subtask, at: float | None) -> None:
        """This subtask has something to do at that time; with None, not before something happens to it."""
        place = self._places[subtask.id]
        if self._alarm_at[place] == at:
            return
        self._alarm_at[place] = at
        if at is None:
            return
        heapq.heappush(self._alarms, (at, place))
        if len(self._alarms) > 2 * len(self._subtasks) + _STALE_ALARMS_MAX:
            count = enumerate(self._alarm_at)
            self._alarms = [(at, place) for place, at in count if at is not None]
            heapq.heapify(self._alarms)

    @property
    def next_alarm_at(self) -> float | None:
        """The first moment that any of them waits for, or an earlier one."""
        return self._alarms[0][0] if self._alarms else None

    def next(self) -> Subtask | None:
        """Whose turn it is to work, if it can; None at the end of a round, in which each has one turn."""
        if self._this_turn:
            self._at = heapq.heappop(self._this_turn)
            self._listed.discard(self._at)
            return self._subtasks[self._at]
        self._this_turn, self._next_turn = self._next_turn, []
        self._at = -1
        return None

    def any_can(self, work: Callable[[Subtask], bool]) -> bool:
        """Whether any that is listed can work; to be asked between two rounds.

        Those before it that cannot leave the list until something happens to them.
        """
        while self._this_turn:
            place = self._this_turn[0]
            if work(self._subtasks[place]):
                return True
            self._listed.discard(heapq.heappop(self._this_turn))
        return False

    def _stir(self, place: int) -> None:
        self._stirred[place] = None
        if place not in self._listed:
            self._listed.add(place)
            turn = self._this_turn if place > self._at else self._next_turn
            heapq.heappush(turn, place)
