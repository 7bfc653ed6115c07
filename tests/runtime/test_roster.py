"""A turn of a worker costs what is ready, and not what exists; and nobody who is ready is passed over."""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.monitoring.subtask_metrics import SubtaskMetrics, TimeAccount
from minirt.operators.common.mailbox import Mailbox
from minirt.protocol.ids import SubtaskId
from minirt.runtime.worker.roster import Roster
from minirt.runtime.worker.worker import Worker


class Stub:
    """In place of a subtask: it works as often as it has pieces, and counts what it is asked."""

    name = "stub"

    def __init__(self, place: int, asked: Counter[str]) -> None:
        self.id = SubtaskId(place, 0)
        self.metrics = SubtaskMetrics()
        self.outputs: Any = SimpleNamespace(full=False)
        self.input: Any = SimpleNamespace(held_by_drift=False)
        self.changed: Any = None
        self.pieces = 0
        self.due_at: float | None = None
        self.next: Stub | None = None
        """Who gets a piece for each that it has worked on."""
        self._asked = asked

    @property
    def runnable(self) -> bool:
        self._asked["runnable"] += 1
        return self.pieces > 0

    @property
    def has_input(self) -> bool:
        return self.pieces > 0

    @property
    def wake_at(self) -> float | None:
        self._asked["wake_at"] += 1
        return self.due_at

    def on_time(self) -> None:
        self._asked["on_time"] += 1

    def give(self, pieces: int) -> None:
        self.pieces += pieces
        self.changed()

    def run_slice(self) -> None:
        self._asked["run_slice"] += 1
        self.pieces -= 1
        if self.next is not None:
            self.next.give(1)

    def close(self) -> None:
        """Nothing is open."""


class Turns(Worker):
    """A worker without sockets and processes, which stops after so many turns."""

    def __init__(self, subtasks: list[Stub], turns: int) -> None:
        self.subtasks: Any = subtasks
        self.clock: Any = SimpleNamespace(monotonic=lambda: 1.0)
        self._left = turns
        self._stopping = False
        self._working = []
        self._served = True
        self._heartbeat_at = 1000.0
        self._mail = deque()
        self._uploaded = Mailbox()
        self._uploader: Any = SimpleNamespace(tell_results=lambda: None)
        self._on_control: Any = lambda: None
        self._selector: Any = SimpleNamespace(select=lambda timeout: [])
        self._wiring: Any = SimpleNamespace(move_frames=lambda: None)
        self._time = {one.id: TimeAccount(one.metrics, 0.0) for one in subtasks}
        self._long_calls: Any = SimpleNamespace(watched=contextlib.nullcontext)
        self._roster = Roster(self.subtasks)

    def _take_turns(self) -> None:
        super()._take_turns()
        self._left -= 1
        self._stopping = self._left == 0

    def _report(self) -> None:
        """Nobody hears it."""


def cost_of_turns(subtasks: int, ready: int) -> Counter[str]:
    """What is asked in 50 turns in which so many of the subtasks work, once all were looked at."""
    asked: Counter[str] = Counter()
    stubs = [Stub(place, asked) for place in range(subtasks)]
    worker = Turns(stubs, 2)
    worker.run()
    asked.clear()
    worker._stopping, worker._left = False, 50
    for stub in stubs[:ready]:
        stub.give(50)
    worker.run()
    assert [stub.pieces for stub in stubs] == [0] * subtasks
    return asked


@pytest.mark.parametrize("ready", [1, 7])
def test_a_turn_costs_the_same_however_many_subtasks_have_nothing_to_do(ready: int) -> None:
    assert cost_of_turns(250, ready) == cost_of_turns(ready, ready)


def test_the_cost_of_a_turn_grows_no_quicker_than_what_is_ready() -> None:
    one, many = cost_of_turns(250, 1), cost_of_turns(250, 100)
    assert many["run_slice"] == 100 * one["run_slice"]
    # Between two slices those are looked at that something has happened to: here the one that worked.
    assert all(many[what] <= 100 * (one[what] + 2) for what in one)


@given(
    pieces=st.lists(st.integers(0, 3), min_size=1, max_size=8),
    feeds=st.dictionaries(st.integers(0, 7), st.integers(0, 7)),
)
def test_all_that_can_work_do_whatever_feeds_whom(pieces: list[int], feeds: dict[int, int]) -> None:
    asked: Counter[str] = Counter()
    stubs = [Stub(place, asked) for place in range(len(pieces))]
    downstream = {a: b for a, b in feeds.items() if a < b < len(pieces)}
    for place, next in downstream.items():
        stubs[place].next = stubs[next]
    worker = Turns(stubs, 60)
    for stub, count in zip(stubs, pieces, strict=True):
        stub.give(count)
    worker.run()
    assert [stub.pieces for stub in stubs] == [0] * len(pieces)


class AllAsked:
    """What a worker did that asked all its subtasks at each turn."""

    def __init__(self, count: int) -> None:
        self.alarm_at: list[float | None] = [None] * count
        self.stirred = set(range(count))

    def look(self, now: float) -> set[int]:
        due = {place for place, at in enumerate(self.alarm_at) if at is not None and at <= now}
        for place in due:
            self.alarm_at[place] = None
        looked, self.stirred = self.stirred | due, set()
        return looked


COUNT = 4
STEPS = st.lists(
    st.tuples(st.just("stir"), st.integers(0, COUNT - 1), st.none())
    | st.tuples(st.just("expect"), st.integers(0, COUNT - 1), st.none() | st.integers(0, 20))
    | st.tuples(st.just("look"), st.just(0), st.integers(0, 3)),
    max_size=300,
)


@given(steps=STEPS)
def test_nobody_is_forgotten_whose_moment_has_come(
    steps: list[tuple[str, int, int | None]],
) -> None:
    stubs: Any = [Stub(place, Counter()) for place in range(COUNT)]
    roster, model, now = Roster(stubs), AllAsked(COUNT), 0.0
    for step, place, number in steps:
        match step:
            case "stir":
                roster.stir(stubs[place].id)
                model.stirred.add(place)
            case "expect":
                roster.expect(stubs[place], number)
                model.alarm_at[place] = number
            case "look":
                now += number or 0
                assert {one.id.vertex for one in roster.look(now, ())} == model.look(now)
        known = [at for at in model.alarm_at if at is not None]
        first = roster.next_alarm_at
        assert not known or (first is not None and first <= min(known))
        assert len(roster._alarms) <= 2 * COUNT + 64 + 1


def test_a_subtask_in_the_middle_of_a_record_is_looked_at_later() -> None:
    stubs: Any = [Stub(place, Counter()) for place in range(2)]
    roster = Roster(stubs)
    assert [*roster.look(0.0, [stubs[0]])] == [stubs[1]]
    assert [*roster.look(0.0, [stubs[0]])] == []
    assert [*roster.look(0.0, ())] == [stubs[0]]


def test_mail_of_another_thread_is_work() -> None:
    asked: Counter[str] = Counter()
    stubs = [Stub(place, asked) for place in range(3)]
    worker = Turns(stubs, 2)
    worker.run()
    worker._stopping, worker._left = False, 2
    worker._waker = SimpleNamespace(wake=lambda: None)  # type: ignore[assignment]
    stubs[1].pieces = 1
    worker.wake(stubs[1].id)
    worker.run()
    assert stubs[1].pieces == 0
