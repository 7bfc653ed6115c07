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
from minirt.runtime.program.execute import place
from minirt.runtime.program.job import Recorder, job_result
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
        "job 'j' restarts in 0.50 s: broken\nTraceback",
    ]


def test_more_workers_than_a_job_can_use_are_an_upper_bound(
    caplog: pytest.LogCaptureFixture,
) -> None:
    env = Environment("j", parallelism=2)
    env.source(SequenceSource(5, splits=2)).sink(DiscardSink())
    graph = build_execution_graph(env.graph())
    assert set(place(graph, Options(placement="slots", workers=3)).values()) == {0, 1}
    assert "2 workers instead of 3" in caplog.text


def test_simulated_faults_are_no_news(caplog: pytest.LogCaptureFixture) -> None:
    env = Environment("j")
    env.source(SequenceSource(20)).sink(TransactionalSink())
    assert sum(simulate(env, seed=seed).restarts for seed in range(5)) > 0
    assert caplog.records == []
