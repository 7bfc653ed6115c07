"""The clock of a subtask that may have to do again what it did: it shows the same once more.

What is done in one piece (records of a channel, a step of event time, what is due by the clock) sees one
time. It is written down when it is first asked for, so nothing is where nobody asks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from minirt.errors import ProtocolError
from minirt.protocol.service_order import Determinant, Done, Fired, Read
from minirt.runtime.input.service_log import ServiceLog


class LoggedClock:
    """`again` is what is left to be done again, which the input takes its part of as well."""

    def __init__(
        self, wall: Callable[[], float], log: ServiceLog, again: deque[Determinant] | None
    ) -> None:
        self._wall = wall
        self._log = log
        self._again = deque[Determinant]() if again is None else again
        self._shown: int | None = None
        """What it shows for the piece of work that is under way, once it was asked."""
        self._fired: Fired | None = None

    def begin(self) -> None:
        """Another piece of work begins, or none is under way."""
        self._shown = self._fired = None

    def read(self) -> int:
        """What it shows, in milliseconds since 1970."""
        if self._shown is None:
            self._shown = self._next()
        return self._shown

    def fire(self, place: int) -> None:
        """The operator at this place begins to do what is due."""
        fired = Fired(place, int(self._wall() * 1000))
        self._log.add(fired)
        self.fire_again(fired)

    def fire_again(self, fired: Fired) -> None:
        """It did so in an earlier life."""
        self._fired, self._shown = fired, fired.ms

    @property
    def under_way(self) -> tuple[Done, ...]:
        """What whoever goes on from here has to know of the clock."""
        if self._fired is not None:
            return (self._fired,)
        return () if self._shown is None else (Read(self._shown),)

    def _next(self) -> int:
        """Where the log ends, nobody has seen what came of an answer."""
        if self._again:
            known = self._again.popleft()
            if isinstance(known, Read):
                return known.ms
            raise ProtocolError(
                "a subtask that came back asks for the clock where it did not before: is a function not "
                "deterministic?"
            )
        read = Read(int(self._wall() * 1000))
        self._log.add(read)
        return read.ms
