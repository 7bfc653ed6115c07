"""What a job remembers of its checkpoints for its result, and what it tells of itself."""

from __future__ import annotations

import time

import pytest

from minirt import (
    DiscardSink,
    Environment,
    JobStatus,
    Options,
    SequenceSource,
    UserCodeError,
)
from minirt.graph.planner import build_execution_graph
from minirt.protocol.job import JobProtocol
from minirt.protocol.job_events import EndJob
from minirt.protocol.reasons import CheckpointFailure, CheckpointFailureReason
from minirt.protocol.reports import CheckpointReport
from minirt.runtime.program.job import Recorder, job_result
from minirt.runtime.program.shapes import place
from minirt.testing import TransactionalSink, simulate

SLOW = CheckpointFailure(CheckpointFailureReason.EXPIRED)


def report(checkpoint_id: int, failure: CheckpointFailure | None = None) -> CheckpointReport:
    return CheckpointReport(checkpoint_id, 1, "aligned", "checkpoint", 0.0, 0.1, 1, failure=failure)


def test_all_completed_checkpoints_count_and_the_newest_are_kept() -> None:
    class Protocol:
        restarts = 0

    recorder = Recorder("sums", [], entries_max=2)
    for checkpoint in (report(1), report(2), report(3, SLOW), report(4)):
        recorder.on_checkpoint(checkpoint)
    protocol: JobProtocol = Protocol()  # type: ignore[assignment]
    ending = EndJob(JobStatus.FINISHED, None)
    result = job_result("sums", protocol, recorder, ending, time.monotonic())
    assert result.completed_checkpoints == 3
    assert [each.checkpoint_id for each in result.checkpoints] == [3, 4]


def test_an_error_that_comes_again_is_told_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    recorder = Recorder("j", [], 1)
    for error in ("broken\nTraceback", "broken\nTraceback", "other", "broken\nTraceback"):
        recorder.on_restart(UserCodeError(error), 0.5)
    assert [record.getMessage() for record in caplog.records] == [
        "job 'j' restarts in 0.50 s: broken\nTraceback",
        "job 'j' restarts in 0.50 s: the same error for the 2nd time: broken",
        "job 'j' restarts in 0.50 s: other",
        "job 'j' restarts in 0.50 s: the same error for the 3rd time: broken",
    ]


def test_more_workers_than_a_job_can_use_are_an_upper_bound(
    caplog: pytest.LogCaptureFixture,
) -> None:
    env = Environment("j", parallelism=2)
    env.source(SequenceSource(5, splits=2)).sink(DiscardSink())
    graph = build_execution_graph(env.graph())
    assert set(place(graph, Options(placement="slots", workers=3)).values()) == {0, 1}
    assert "2 workers instead of 3" in caplog.text


@pytest.mark.parametrize(
    ("cores", "workers", "placed"), [(2, None, 2), (8, None, 5), (2, 4, 4), (None, None, 5)]
)
def test_workers_that_subtasks_share_are_as_many_as_cores_unless_the_user_says_how_many(
    cores: int | None, workers: int | None, placed: int
) -> None:
    env = Environment("j", parallelism=5)
    env.source(SequenceSource(5, splits=5)).rebalance().sink(DiscardSink())
    graph = build_execution_graph(env.graph())
    placement = place(graph, Options(placement="slots", workers=workers), cores)
    assert {*placement.values()} == {*range(placed)}
    assert len({*place(graph, Options(), cores).values()}) == len(placement)


def test_simulated_faults_are_no_news(caplog: pytest.LogCaptureFixture) -> None:
    env = Environment("j")
    env.source(SequenceSource(20)).sink(TransactionalSink())
    assert sum(simulate(env, seed=seed).restarts for seed in range(5)) > 0
    assert caplog.records == []


def test_an_error_is_the_same_if_only_numbers_and_addresses_differ(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorder = Recorder("j", [], 1)
    trace = "failed on record {}\nTraceback\n  line {}, in f\nValueError: bad {}"
    for record, line, what in ((1, 7, "0x7f01"), (50, 7, "0x7f02"), (1, 8, "x"), (1, 7, "12")):
        recorder.on_restart(UserCodeError(trace.format(record, line, what)), 0.5)
    told = [record.getMessage().partition(" s: ")[2] for record in caplog.records]
    assert told == [
        trace.format(1, 7, "0x7f01"),
        "the same error for the 2nd time: failed on record 50: ValueError: bad 0x7f02",
        trace.format(1, 8, "x"),
        "the same error for the 3rd time: failed on record 1: ValueError: bad 12",
    ]


def test_a_checkpoint_that_fails_with_its_generation_is_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reason = CheckpointFailureReason.GENERATION_FAILED
    failure = CheckpointFailure(reason, error="f failed\nTraceback\nValueError: x")
    Recorder("j", [], 1).on_checkpoint(report(1, failure))
    assert caplog.records[0].getMessage() == "job 'j': checkpoint 1 failed: f failed"
