"""What the figures of a subtask say of its time."""

from __future__ import annotations

import contextlib
import types
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.monitoring.subtask_metrics import Activity, SubtaskMetrics, TimeAccount
from minirt.operators.common.mailbox import Mailbox
from minirt.protocol.ids import SubtaskId
from minirt.runtime.worker import worker as worker_module
from minirt.runtime.worker.roster import Roster
from minirt.runtime.worker.worker import Worker

STEPS = st.lists(
    st.tuples(st.integers(0, 10_000), st.none() | st.sampled_from(Activity)), max_size=50
)


@given(start=st.integers(0, 1_000_000), steps=STEPS)
def test_every_millisecond_of_a_second_is_counted_once(start, steps):
    metrics, now = SubtaskMetrics(), start
    account, expected = TimeAccount(metrics, now), dict.fromkeys(Activity, 0)
    current = Activity.IDLE
    for passed, activity in steps:
        now += passed
        expected[current] += passed
        if activity is None:
            account.settle(now)
        else:
            account.turn_to(activity, now)
            current = activity
    account.settle(now)
    assert metrics.accounted_s == now - start
    assert {one: getattr(metrics, one.value) for one in Activity} == expected


class Clock:
    """Time goes on only where a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now

    def pass_s(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(worker_module, "time", clock)
    return clock


class OneTurn(Worker):
    """A worker whose only turn waits as `wait` does."""

    def __init__(self, subtask: Any, now: float, wait: Callable[[], None]) -> None:
        self.subtasks = [subtask]
        self._roster = Roster([subtask])
        self._mail = deque()
        self.clock: Any = types.SimpleNamespace(monotonic=lambda: 0.0)
        self._stopping = False
        self._heartbeat_at = 1000.0
        self._working = []
        self._served = True
        self._uploaded = Mailbox()
        self._uploader: Any = types.SimpleNamespace(tell_results=lambda: None)
        self._on_control: Any = lambda: None
        self._selector: Any = types.SimpleNamespace(select=lambda timeout: wait() or [])
        self._wiring: Any = types.SimpleNamespace(move_frames=lambda: None)
        self._time = {subtask.id: TimeAccount(subtask.metrics, now)}
        self._long_calls: Any = types.SimpleNamespace(watched=contextlib.nullcontext)

    def _patience_s(self) -> float:
        super()._patience_s()
        return 0.0

    def _beat(self) -> None:
        pass

    def _take_turns(self) -> None:
        super()._take_turns()
        self._stopping = True

    def _report(self) -> None:
        self._time[self.subtasks[0].id].settle(worker_module.time.perf_counter())


def run_one_turn(
    clock: Clock,
    *,
    has_input: bool,
    full: bool,
    wait_s: float,
    slice_s: float,
    after: dict[str, Any],
    drifted: bool = False,
) -> SubtaskMetrics:
    """A wait, after which the subtask is as `after` says, and a slice if it can run then."""
    subtask = types.SimpleNamespace(
        id=SubtaskId(0, 0),
        name="subtask",
        metrics=SubtaskMetrics(),
        has_input=has_input,
        outputs=types.SimpleNamespace(full=full),
        input=types.SimpleNamespace(held_by_drift=drifted),
        runnable=has_input and not full,
        wake_at=None,
        on_time=lambda: None,
        run_slice=lambda: clock.pass_s(slice_s),
        close=lambda: None,
    )

    def wait() -> None:
        clock.pass_s(wait_s)
        subtask.has_input = after.get("has_input", has_input)
        subtask.outputs.full = after.get("full", full)
        subtask.runnable = subtask.has_input and not subtask.outputs.full
        subtask.changed()

    OneTurn(subtask, clock.now, wait).run()
    return subtask.metrics


def test_a_wait_that_ends_with_room_in_the_output_was_backpressure(clock: Clock) -> None:
    metrics = run_one_turn(
        clock, has_input=True, full=True, wait_s=0.75, slice_s=0.25, after={"full": False}
    )
    assert metrics == SubtaskMetrics(busy_s=0.25, soft_backpressure_s=0.75)


@pytest.mark.parametrize("full", [True, False])
def test_a_wait_that_ends_with_input_was_idleness(clock: Clock, full: bool) -> None:
    metrics = run_one_turn(
        clock, has_input=False, full=full, wait_s=0.75, slice_s=0.25, after={"has_input": True}
    )
    assert metrics == SubtaskMetrics(busy_s=0.0 if full else 0.25, idle_s=0.75)


@pytest.mark.parametrize("full", [True, False])
def test_a_wait_of_a_source_that_is_too_far_ahead_is_neither_idleness_nor_backpressure(
    clock: Clock, full: bool
) -> None:
    metrics = run_one_turn(
        clock,
        has_input=False,
        full=full,
        wait_s=0.75,
        slice_s=0.25,
        after={"has_input": True},
        drifted=True,
    )
    assert metrics == SubtaskMetrics(busy_s=0.0 if full else 0.25, drift_pause_s=0.75)


def test_waiting_for_its_turn_is_being_busy(clock: Clock) -> None:
    metrics = run_one_turn(clock, has_input=True, full=False, wait_s=0.5, slice_s=0.5, after={})
    assert metrics == SubtaskMetrics(busy_s=1.0)


def test_a_block_within_a_record_is_hard_backpressure_also_while_it_lasts(clock: Clock) -> None:
    seen: list[tuple[float, float]] = []
    channel = types.SimpleNamespace(overdrawn=True, spill=types.SimpleNamespace(refusal="full"))
    subtask = types.SimpleNamespace(
        id=SubtaskId(0, 0), name="a", metrics=SubtaskMetrics(), outputs=types.SimpleNamespace()
    )
    worker = OneTurn(subtask, clock.now, lambda: None)
    worker._warned = set()
    worker._limits = types.SimpleNamespace(heartbeat_s=0.2)  # type: ignore[assignment]

    def serve(timeout: float) -> None:
        clock.pass_s(0.25)
        worker._report()
        seen.append((subtask.metrics.hard_backpressure_s, subtask.metrics.accounted_s))
        channel.overdrawn = len(seen) < 4

    worker._serve = serve  # type: ignore[method-assign]
    worker._run_downstream = lambda subtask: False  # type: ignore[method-assign]
    worker._block(subtask, channel)  # type: ignore[arg-type]
    clock.pass_s(0.5)
    worker._report()
    assert seen == [(0.25, 0.25), (0.5, 0.5), (0.75, 0.75), (1.0, 1.0)]
    assert subtask.metrics == SubtaskMetrics(busy_s=0.5, hard_backpressure_s=1.0)
