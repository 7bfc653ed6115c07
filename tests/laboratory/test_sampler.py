"""What a run hears of its checkpoints: those that the end of the measuring cuts off are no failures."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

pytest.importorskip("psutil", reason="the extra lab is not installed")

from minirt.clock import SYSTEM_CLOCK
from minirt.laboratory.sampler import Sampler
from minirt.monitoring.buckets import bucket_of
from minirt.monitoring.figures import JobFigures, SubtaskFigures
from minirt.monitoring.latency import LatencyHistogram
from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.protocol.job_events import JobStatus
from minirt.protocol.reasons import CheckpointFailure, CheckpointFailureReason
from minirt.protocol.reports import CheckpointReport

NOTHING = JobFigures("job", JobStatus.RUNNING, 1, 0, started_at=0.0, at=0.0)


def report(id: int, ago_s: float, duration_s: float, failed: bool) -> CheckpointReport:
    failure = CheckpointFailure(CheckpointFailureReason.CANCELLED) if failed else None
    at = SYSTEM_CLOCK.now() - ago_s
    return CheckpointReport(id, 1, "aligned", "checkpoint", at, duration_s, failure=failure)


def test_a_checkpoint_that_the_end_cuts_off_has_not_failed() -> None:
    sampler = Sampler(os.getpid(), frozenset())
    sampler.begin()
    sampler.on_checkpoint(report(1, 0.001, 0.0005, failed=True))
    sampler.on_checkpoint(report(2, 0.001, 0.0005, failed=False))
    sampler.end(NOTHING)
    sampler.on_checkpoint(report(3, 0.5, 30.0, failed=True))
    sampler.on_checkpoint(report(4, 0.5, 30.0, failed=False))
    assert [one.checkpoint_id for one in sampler.checkpoints()] == [1, 2, 4]


def looked(operator: str, lived_s: float, *latencies: float) -> JobFigures:
    histogram = LatencyHistogram()
    for each in latencies:
        histogram = histogram.noted(each)
    totals = SubtaskMetrics(busy_s=lived_s, latency={"numbers": histogram})
    return replace(NOTHING, subtasks=(SubtaskFigures(operator, operator, 0, None, totals, None),))


def test_latency_markers_count_at_sinks_while_it_is_measured_in_all_lives() -> None:
    sampler = Sampler(os.getpid(), frozenset(), frozenset({"out"}))
    sampler.look(looked("out", 1.0, 9.0))
    sampler.begin()
    sampler.look(looked("out", 2.0, 9.0, 0.5))
    sampler.look(looked("slow", 2.0, 7.0))
    sampler.look(looked("out", 0.5, 0.5, 0.25))  # It was started anew.
    seen = [{bucket_of(0.5): 1}, {bucket_of(0.5): 1, bucket_of(0.25): 1}]
    assert [counts for _, counts in sampler.markers] == seen
    assert [at for at, _ in sampler.markers] == sorted(at for at, _ in sampler.markers)
