"""The order in which everything happens: one actor a step, drawn from the seed."""

from __future__ import annotations

import heapq
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random

from minirt.operators.common.calling import EndOfProcess
from minirt.testing.clock import ProcessClock, SimulatedClock

_NEAR_STEPS = 50
_STALLED_S = 30 * 86_400.0
"""Who has nothing to do for so long stands still; that state expires some day is no progress."""
_WRONG_STEPS = 400
_WRONG_BY_S = (-3600.0, -1.0, -0.05, 0.05, 1.0, 3600.0)


class StalledError(EndOfProcess):
    """The simulation made no progress. Not for anyone inside the simulation to catch."""


class Actor(ABC):
    """Something that can act: a subtask, a channel, a worker's loop, a coordinator."""

    ready = False
    """Whether the schedule considers it at all; kept by the schedule."""

    @property
    @abstractmethod
    def gone(self) -> bool:
        """Whether it will never act again."""

    @property
    @abstractmethod
    def wake_at(self) -> float | None:
        """When it may have something to do although nothing arrives, by the clock of the schedule."""

    @abstractmethod
    def act(self) -> bool:
        """Do one small thing; False if there is nothing to do until it is woken, or `wake_at`."""

    def drop(self) -> None:
        """It will not act again, although it could."""


class Schedule:
    """Runs actors one at a time. `every_step` is called before each of them: the place for crashes.

    An actor that had nothing to do rests until `wake` or its time. Should nobody have woken it although
    it has something to do, it is found before the clock jumps far.
    """

    def __init__(self, random: Random, clock: SimulatedClock, steps_max: int) -> None:
        self.random = random
        self.clock = clock
        self.steps = 0
        self.every_step: Callable[[], None] = _nothing
        self._steps_max = steps_max
        self._actors: list[Actor] = []
        self._ready: list[Actor] = []
        self._order = itertools.count()
        self._alarms: list[tuple[float, int, Actor]] = []
        self._later: list[tuple[int, int, Callable[[], None]]] = []
        self._notes: list[tuple[int, float, str, str]] = []

    @property
    def notes(self) -> list[str]:
        """What has happened so far, a line each."""
        return [f"{step:6} {at:10.4f} {who}: {what}" for step, at, who, what in self._notes]

    def new_process(self) -> ProcessClock:
        """The clocks of a process that begins; its monotonic one may show anything."""
        return ProcessClock(self.clock, self.random.choice((-900.0, 0.0, 86_400.0)))

    def set_clock_wrong(self) -> None:
        """Somebody sets the wall clock, and later sets it right: else its timers might wait for ever."""
        by_s = self.random.choice(_WRONG_BY_S)
        self.clock.set_wall(by_s)
        self.later(_WRONG_STEPS, lambda: self.clock.set_wall(-by_s))

    def note(self, who: str, what: str) -> None:
        self._notes.append((self.steps, self.clock.elapsed, who, what))

    def add(self, *actors: Actor) -> None:
        self._actors = [actor for actor in self._actors if not actor.gone] + list(actors)
        for actor in actors:
            self.wake(actor)

    def wake(self, actor: Actor) -> None:
        """Something has arrived for the actor."""
        if not actor.ready:
            actor.ready = True
            self._ready.append(actor)

    def wake_all(self) -> None:
        """Let every actor look whether it has something to do."""
        for actor in self._actors:
            self.wake(actor)

    def later(self, steps_max: int, action: Callable[[], None]) -> None:
        """Have something done within the next `steps_max` steps."""
        at = self.steps + 1 + int(self.random.random() * steps_max)
        heapq.heappush(self._later, (at, next(self._order), action))

    def run(
        self, steps: int, until: Callable[[], bool], longest_wait_s: float = _STALLED_S
    ) -> None:
        """Take so many steps; fewer if `until` holds before, or nothing is left to do.

        Nobody waits longer than `longest_wait_s` for something to do: then the caller goes on.
        """
        for _ in range(steps):
            if until() or not self._advance(longest_wait_s):
                return

    def end(self) -> None:
        """Nobody acts any more."""
        for actor in self._actors:
            actor.drop()

    def step(self) -> None:
        """One thing happens. Raises StalledError if nothing can."""
        if not self._advance():
            raise StalledError("made no progress: nobody has anything to do or to wait for")

    def _advance(self, longest_wait_s: float = _STALLED_S) -> bool:
        self.steps += 1
        if self.steps > self._steps_max:
            raise StalledError(f"made no progress: not over after {self._steps_max} steps")
        self.clock.tick()
        self.every_step()
        happened = self._do_later()
        return self._act() or bool(self._later) or self._jump(longest_wait_s) or happened

    def _do_later(self) -> bool:
        """Whether anything was due: whoever looks after each step may start something because of it."""
        happened = False
        while self._later and self._later[0][0] <= self.steps:
            heapq.heappop(self._later)[2]()
            happened = True
        return happened

    def _act(self) -> bool:
        now, alarms = self.clock.monotonic(), self._alarms
        while alarms and alarms[0][0] <= now:
            self.wake(heapq.heappop(alarms)[2])
        ready, draw = self._ready, self.random.random
        while ready:
            index = int(draw() * len(ready))
            actor = ready[index]
            if actor.act():
                return True
            self._rest(actor)
        return False

    def _rest(self, actor: Actor) -> None:
        """Steps may have been nested in the actor's act: its place in the list is not what it was."""
        if not actor.ready:
            return
        actor.ready = False
        self._ready.remove(actor)
        at = actor.wake_at
        if at is not None and at > self.clock.monotonic():
            heapq.heappush(self._alarms, (at, next(self._order), actor))

    def _jump(self, longest_wait_s: float) -> bool:
        """Let time pass until somebody has something to do; False if nobody will for so long."""
        near = self.clock.monotonic() + _NEAR_STEPS * self.clock.step_s
        if not self._alarms or self._alarms[0][0] > near:
            self.wake_all()
            if self._act():
                return True
        if not self._alarms or self._alarms[0][0] > self.clock.monotonic() + longest_wait_s:
            return False
        self.clock.jump(self._alarms[0][0])
        return True


def _nothing() -> None:
    return None
