"""Traces of checkpoints: put together, kept until their output is committed, and laid on one axis."""

from __future__ import annotations

from dataclasses import replace

from minirt.protocol.checkpoint_settings import CheckpointSettings
from minirt.protocol.checkpoints import CheckpointCoordinator
from minirt.protocol.ids import SubtaskId
from minirt.protocol.job_events import CommitFailed, SnapshotAcknowledged, StoreTrace
from minirt.protocol.savepoints import Savepoints
from minirt.protocol.trace import CheckpointTrace, SubtaskTrace, TraceEvent
from minirt.runtime.control.clock_offsets import ClockOffsets
from minirt.runtime.subtask.tracing import within
from tests.protocol.parts import SINK, SOURCE, VERTICES, acknowledged


def part(subtask: SubtaskId) -> SubtaskTrace:
    events = (TraceEvent(5.0, "triggered"), TraceEvent(6.0, "stored"))
    return SubtaskTrace(subtask.vertex, subtask.index, "name", 4.0, (), events)


def traced(checkpoint_id: int, subtask: SubtaskId) -> SnapshotAcknowledged:
    return replace(acknowledged(checkpoint_id, subtask), trace=part(subtask))


def started() -> CheckpointCoordinator:
    settings = CheckpointSettings("aligned", interval_s=1.0)
    coordinator = CheckpointCoordinator(
        "job", 1, 1, settings, VERTICES, frozenset({SOURCE, SINK}), Savepoints(3)
    )
    coordinator.on_running(10.0)
    return coordinator


def complete(coordinator: CheckpointCoordinator, checkpoint_id: int, at: float) -> None:
    assert coordinator.on_trigger_timer(checkpoint_id, at)
    coordinator.on_acknowledged(traced(checkpoint_id, SINK), at + 0.2)
    coordinator.on_acknowledged(traced(checkpoint_id, SOURCE), at + 0.3)
    coordinator.on_manifest_stored(checkpoint_id, at + 0.4)


def stored(commands: list[object]) -> list[CheckpointTrace]:
    return [command.trace for command in commands if isinstance(command, StoreTrace)]


def test_a_trace_is_stored_once_the_output_is_committed_and_says_when_all_that_was():
    coordinator = started()
    complete(coordinator, 1, 11.0)
    [trace] = stored(coordinator.on_committed(1, 11.5))
    assert (trace.created_at, trace.completed_at, trace.committed_at) == (11.0, 11.4, 11.5)
    assert [(p.vertex, p.acknowledged_at) for p in trace.subtasks] == [(0, 11.3), (1, 11.2)]
    assert stored(coordinator.on_committed(1, 11.6)) == []


def test_a_commit_that_fails_does_not_hold_back_the_trace():
    coordinator = started()
    complete(coordinator, 1, 11.0)
    [trace] = stored(coordinator.on_commit_failed(CommitFailed(1, OSError()), 11.5))
    assert trace.committed_at is None


def test_nobody_stores_what_nobody_has_noted():
    coordinator = started()
    coordinator.on_trigger_timer(1, 11.0)
    for subtask in (SOURCE, SINK):
        coordinator.on_acknowledged(acknowledged(1, subtask), 11.2)
    coordinator.on_manifest_stored(1, 11.4)
    assert stored(coordinator.on_committed(1, 11.5)) == []


def test_the_quickest_answer_tells_how_far_a_clock_is_ahead():
    clocks = ClockOffsets()
    assert clocks.aligned(part(SINK), 3) == part(SINK)
    clocks.note(3, asked_at=10.0, answered_at=1014.0, heard_at=12.0)  # It was in a slow call.
    clocks.note(3, asked_at=20.0, answered_at=1020.25, heard_at=20.5)
    clocks.note(3, asked_at=30.0, answered_at=1035.0, heard_at=39.0)
    aligned = clocks.aligned(part(SINK), 3)
    assert (aligned.clock_ahead_s, aligned.clock_error_s) == (1000.0, 0.25)
    clocks.clear()
    assert clocks.of(3) is None


def test_events_of_different_clocks_are_laid_on_one_axis():
    trace = CheckpointTrace("job", 1, 1, "aligned", "checkpoint", 0.0, 11.0, 12.0, None, ())
    measured = replace(part(SINK), clock_ahead_s=-6.5)
    assert trace.elapsed(measured, 5.0) == 0.5
    assert trace.elapsed(part(SINK), 5.0) == 1.0, "as the barrier said"


def test_a_long_trace_keeps_the_channels_that_it_waited_for():
    events = [TraceEvent(float(i), "arrived", i) for i in range(10)]
    events += [TraceEvent(10.0 + i, "reached", i) for i in range(10)]
    events.append(TraceEvent(30.0, "whole"))
    kept, left_out = within(events, 7)
    assert {event.channel for event in kept} == {0, 8, 9, -1}
    assert (len(kept), left_out) == (7, 7)
    assert within(events, 100) == (events, 0)
