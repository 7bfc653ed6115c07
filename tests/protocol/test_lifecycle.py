"""The table of the life of a checkpoint is what the frame of all modes really does, no more and no less.

Every sequence of events, up to a length, goes through a real BarrierHandler in each mode. The steps that it
takes must be the rows of the table that the documentation shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from minirt.modes import MODES
from minirt.modes.aligned_with_timeout import AlignedWithTimeout
from minirt.protocol.barrier_handler import LIFECYCLE, BarrierHandler
from minirt.protocol.barriers import Barrier, Command, WatchOutputs

TIMEOUT_S = 10.0
LATE_S = 11.0
"""After the timeout of the mode that has one."""

TIMED = AlignedWithTimeout(timeout=TIMEOUT_S)
EVENTS_MAX = 5

BARRIER = ("arrived", "reached")

Event = tuple[str, int, int]
"""What happens, to which checkpoint, in which channel."""


class Walk:
    """A handler that is led through events, and the steps that it took."""

    def __init__(self, channels: int, mode: str) -> None:
        self.handler = BarrierHandler(range(channels), {**MODES, TIMED.name: TIMED})
        self.channels, self.mode = channels, mode
        self.now = 0.0
        self.newest = 0
        self.arrived: set[tuple[int, int]] = set()
        self.reached: set[tuple[int, int]] = set()
        self.ended: set[int] = set()
        self.steps: list[tuple[str, str, str]] = []

    @property
    def state(self) -> str:
        current = self.handler.current
        if current is None:
            return "none"
        return "sending" if current.outputs_watched else "collecting"

    def possible(self) -> Iterator[Event]:
        """The events that a subtask can meet next: barriers of a channel come in order."""
        for channel in range(self.channels):
            if channel in self.ended:
                continue
            for id in (1, 2):
                later = {(later_id, channel) for later_id in (1, 2) if later_id > id}
                if (id, channel) not in self.arrived and not later & self.arrived:
                    yield "arrived", id, channel
                elif (id, channel) in self.arrived - self.reached and not later & self.reached:
                    yield "reached", id, channel
            yield "ended", 0, channel
        if self.handler.current is not None:
            id = self.handler.current.barrier.checkpoint_id
            yield "timer", id, 0
            yield "late timer", id, 0
            yield "abort", id, 0
            if self.state == "sending":
                yield "passed", id, 0

    def meet(self, event: Event) -> None:
        before, stale, newer = self.state, self._is_stale(event), self._is_newer(event)
        commands = self._tell(event)
        after = self.state
        if stale or (event[0] == "ended" and before != "collecting"):
            assert (commands, after) == ([], before), event
        watched = any(isinstance(command, WatchOutputs) for command in commands)
        name = _name(event[0], before, after, stale=stale, newer=newer, watched=watched)
        if name is not None:
            self.steps.append((before, name, after))

    def _is_stale(self, event: Event) -> bool:
        what, id, _ = event
        return what in BARRIER and id <= self.newest and id != self._current_id

    def _is_newer(self, event: Event) -> bool:
        what, id, _ = event
        return what in BARRIER and self._current_id is not None and id > self._current_id

    @property
    def _current_id(self) -> int | None:
        current = self.handler.current
        return None if current is None else current.barrier.checkpoint_id

    def _tell(self, event: Event) -> list[Command]:
        what, id, channel = event
        handler, barrier = self.handler, Barrier(id, self.mode, created_at=0.0)
        match what:
            case "arrived":
                self.arrived.add((id, channel))
                self.newest = max(self.newest, id)
                return handler.on_arrived(channel, barrier, self.now)
            case "reached":
                self.reached.add((id, channel))
                return handler.on_reached(channel, barrier, self.now)
            case "ended":
                self.ended.add(channel)
                return handler.on_channel_ended(channel, self.now)
            case "timer":
                return handler.on_timer(id, self.now)
            case "late timer":
                self.now = LATE_S
                return handler.on_timer(id, self.now)
            case "passed":
                return handler.on_outputs_passed(id)
        return handler.on_abort(id)


def _name(
    what: str, before: str, after: str, *, stale: bool, newer: bool, watched: bool
) -> str | None:
    """What the table calls the step; None for the end of a channel that no checkpoint waits for."""
    if stale:
        return "stale barrier"
    if what == "abort":
        return "abort"
    if what == "passed":
        return "own barriers sent"
    if what.endswith("timer"):
        if before == after:
            return "timer"
        return "own barriers overtake" if before == "sending" else "timer, all barriers here"
    if newer or before == "none":
        if what == "ended":
            return None
        return ("newer" if newer else "first") + " barrier" + (", the only one" * (after == "none"))
    if before == "sending":
        return None
    if after == "collecting":
        return "barrier"
    return "last barrier, own ones watched" if watched else "last barrier"


def walked(channels: int, mode: str, events: tuple[Event, ...]) -> Walk:
    walk = Walk(channels, mode)
    for event in events:
        walk.meet(event)
    return walk


@pytest.fixture(scope="module")
def steps() -> set[tuple[str, str, str]]:
    """Those of all sequences of events, in all modes, with one channel and with two."""
    found: set[tuple[str, str, str]] = set()
    for mode, channels in product(MODES, (1, 2)):
        paths: list[tuple[Event, ...]] = [()]
        for _ in range(EVENTS_MAX):
            walks = [(path, walked(channels, mode, path)) for path in paths]
            found.update(step for _, walk in walks for step in walk.steps)
            paths = [(*path, event) for path, walk in walks for event in walk.possible()]
    return found


def test_the_table_has_every_step_that_the_frame_takes(steps):
    assert steps - set(LIFECYCLE) == set()


@pytest.mark.parametrize("row", LIFECYCLE, ids=lambda row: " ".join(row))
def test_the_frame_takes_every_step_of_the_table(row, steps):
    assert row in steps


def test_the_table_has_each_row_once():
    assert len(set(LIFECYCLE)) == len(LIFECYCLE)
