"""What checkpoints of whole jobs did, as `Options(trace=True)` has it noted."""

from __future__ import annotations

from pathlib import Path

import pytest

from minirt import (
    Checkpointing,
    CollectSink,
    ConfigurationError,
    Environment,
    JobObserver,
    Options,
    SequenceSource,
)
from minirt.errors import CorruptCheckpointError
from minirt.inspect import open_checkpoints
from minirt.protocol.checkpoint_paths import CheckpointPaths
from minirt.protocol.trace import CheckpointTrace, SubtaskTrace
from minirt.storage.parts import encode_part
from minirt.storage.traces import decode_trace, encode_trace
from minirt.testing import Faults, TransactionalSink, simulate

RUNNERS = ["inline", pytest.param("processes", marks=pytest.mark.processes)]
MODES = ["aligned", "unaligned", "aligned_with_timeout", "at_least_once"]


def job(sink: CollectSink | TransactionalSink, count: int = 30_000) -> Environment:
    env = Environment("traced", parallelism=2)
    numbers = env.source(SequenceSource(count), uid="numbers")
    sums = numbers.key_by(lambda n: n % 7).reduce(lambda a, b: a + b, uid="sums")
    sums.rebalance().map(lambda n: n, uid="plain").sink(sink, uid="out")
    return env


class Traces(JobObserver):
    def __init__(self) -> None:
        self.traces: list[CheckpointTrace] = []

    def on_trace(self, trace: CheckpointTrace) -> None:
        self.traces.append(trace)


def check(trace: CheckpointTrace, slack_s: float) -> None:
    """What must hold of every trace, whatever the mode."""
    assert len({(p.vertex, p.subtask) for p in trace.subtasks}) == len(trace.subtasks)
    by_id = {(part.vertex, part.subtask): part for part in trace.subtasks}
    for part in trace.subtasks:
        times = [trace.elapsed(part, event.at) for event in part.events]
        kinds = [event.kind for event in part.events]
        assert {"sent", "snapshot", "whole", "upload", "stored"} <= {*kinds}, kinds
        assert times == sorted(times)
        if part.local is None:
            assert ("triggered" in kinds) == (not part.senders)
            assert -slack_s <= times[0]
        else:
            assert kinds.index("snapshot") < kinds.index("triggered") < kinds.index("whole")
            assert -slack_s <= times[kinds.index("triggered")]
        assert part.acknowledged_at is not None
        heard_s = part.acknowledged_at - trace.created_at
        assert times[-1] <= heard_s + slack_s <= trace.duration_s + 2 * slack_s
        for event in part.events:
            if event.kind == "arrived":
                sender = part.senders[event.channel]
                check_sent(trace, by_id[sender.vertex, sender.subtask], part, event.at, slack_s)


def check_sent(
    trace: CheckpointTrace, sender: SubtaskTrace, part: SubtaskTrace, at: float, slack_s: float
) -> None:
    """No barrier arrives before it was sent."""
    [sent] = [event for event in sender.events if event.kind == "sent"]
    assert trace.elapsed(sender, sent.at) <= trace.elapsed(part, at) + slack_s


@pytest.mark.parametrize("runner", RUNNERS)
def test_each_checkpoint_that_is_kept_has_a_trace_and_no_other_has(runner, tmp_path):
    traces, sink = Traces(), CollectSink()
    result = job(sink, 200_000).execute(
        runner=runner,
        checkpointing=Checkpointing(
            tmp_path, interval="30ms", min_pause="100ms", mode="unaligned", retain=2
        ),
        options=Options(trace=True),
        observer=traces,
    )
    completed = [report.checkpoint_id for report in result.checkpoints if report.completed]
    assert [trace.checkpoint_id for trace in traces.traces] == completed
    for trace in traces.traces:
        errors = [part.clock_error_s or 0.0 for part in trace.subtasks]
        check(trace, slack_s=2 * max(errors) + 0.002)
    checkpoints = open_checkpoints(tmp_path)
    kept = checkpoints.keys()
    assert len(kept) == min(2, len(completed))
    assert [checkpoints.open(key).trace() for key in kept] == traces.traces[-len(kept) :]
    stored = {
        CheckpointPaths.parse_file(p)
        for p in checkpoints.storage.store.list()
        if p.endswith("/trace")
    }
    assert stored == {*kept}


@pytest.mark.parametrize("runner", RUNNERS)
def test_without_the_option_nothing_is_noted(runner, tmp_path):
    traces = Traces()
    job(CollectSink(), 1000).execute(
        runner=runner, checkpointing=Checkpointing(tmp_path), observer=traces
    )
    assert traces.traces == []
    assert not list(Path(tmp_path).rglob("trace"))


def test_a_trace_of_checkpoints_that_are_not_taken_is_refused():
    with pytest.raises(ConfigurationError, match="trace=True needs checkpointing"):
        job(CollectSink()).execute(runner="inline", options=Options(trace=True))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(3))
def test_the_simulator_notes_the_same_events_whatever_its_clocks_show(mode, seed):
    sink = TransactionalSink()
    checkpointing = Checkpointing("simulated://", interval="20ms", mode=mode)
    result = simulate(
        job(sink, 300), seed=seed, checkpointing=checkpointing, faults=Faults.none(), trace=True
    ).check()
    assert len(result.traces) == result.checkpoints_completed > 0
    for trace in result.traces:
        check(trace, slack_s=1e-6)
        assert all(part.clock_error_s == 0 for part in trace.subtasks)


def test_the_simulator_with_faults_loses_nothing_for_its_traces():
    for seed in range(10):
        sink = TransactionalSink()
        result = simulate(job(sink, 300), seed=seed, trace=True).check()
        assert len(result.traces) <= result.checkpoints_completed


@pytest.mark.parametrize("mode", ["uncoordinated", "communication_induced"])
def test_a_trace_of_local_snapshots_goes_back_to_each_of_them(mode):
    env = Environment("endless", parallelism=2)
    numbers = env.source(SequenceSource.endless(), uid="numbers")
    numbers.key_by(lambda n: n % 7).reduce(max, uid="most").sink(TransactionalSink(), uid="out")
    checkpointing = Checkpointing("simulated://", interval="20ms", mode=mode)
    marks = captured = 0
    for seed in range(4):
        result = simulate(
            env,
            seed=seed,
            checkpointing=checkpointing,
            faults=Faults.none(),
            trace=True,
            checkpoints_max=3,
        )
        assert result.problems == ()
        assert len(result.traces) >= 2  # The last one may not be committed yet.
        for trace in result.traces:
            check(trace, slack_s=1e-6)
            assert all(part.local for part in trace.subtasks)
            for part in trace.subtasks:
                marks += sum(event.kind == "arrived" for event in part.events)
                captured += sum(channel.bytes for channel in part.captured)
    assert marks > 0
    assert captured > 0


def test_what_barriers_overtook_is_in_the_trace():
    overtook = 0
    for seed in range(6):
        checkpointing = Checkpointing("simulated://", interval="20ms", mode="unaligned")
        result = simulate(
            job(TransactionalSink(), 300),
            seed=seed,
            checkpointing=checkpointing,
            faults=Faults.none(),
            trace=True,
        ).check()
        for trace in result.traces:
            for part in trace.subtasks:
                out = sum(channel.bytes for channel in part.captured if channel.side == "out")
                sent = sum(event.bytes for event in part.events if event.kind == "sent")
                # Captured frames are counted with their heads, as the bytes that were overtaken are.
                assert sent == out
                overtook += out
    assert overtook > 0


def test_a_simulation_ends_with_the_checkpoint_that_was_wanted():
    env = Environment("endless")
    env.source(SequenceSource.endless(), uid="numbers").sink(TransactionalSink(), uid="out")
    result = simulate(env, seed=1, faults=Faults.none(), checkpoints_max=2)
    assert (result.finished, result.problems, result.checkpoints_completed) == (False, (), 2)


def test_what_is_stored_is_read_as_it_was_and_what_is_not_is_refused():
    checkpointing = Checkpointing("simulated://", interval="20ms", mode="unaligned")
    result = simulate(
        job(TransactionalSink(), 300), seed=3, checkpointing=checkpointing, trace=True
    )
    for trace in result.traces:
        data = b"".join(encode_trace(trace))
        assert decode_trace(data, "here") == trace
        with pytest.raises(CorruptCheckpointError, match="here"):
            decode_trace(data[:-1], "here")
    with pytest.raises(CorruptCheckpointError, match="not the trace of a checkpoint"):
        decode_trace(b"".join(encode_part({"trace": b"x"})), "here")
