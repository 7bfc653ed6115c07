"""Figures to test with: a job of two chains, three subtasks in all."""

from __future__ import annotations

from typing import Any

import minirt as rt
from minirt.graph.execution import ExecutionGraph
from minirt.graph.planner import build_execution_graph
from minirt.monitoring.latency import LatencyHistogram
from minirt.monitoring.monitor import JobMonitor
from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.protocol.ids import SubtaskId
from minirt.protocol.job_events import JobStatus
from minirt.protocol.reasons import CheckpointFailure, CheckpointFailureReason
from minirt.protocol.reports import CheckpointReport, CheckpointUnderWay, SubtaskReport
from minirt.runtime.coordinator.observer import JobProgress

NOW = 1_700_000_000.0
UNDER_WAY = CheckpointUnderWay(3, "aligned", "checkpoint", NOW - 5, 1, ("slow > out (1/2)",))
SOURCE, FIRST, SECOND = SubtaskId(0, 0), SubtaskId(1, 0), SubtaskId(1, 1)


def graph() -> ExecutionGraph:
    env = rt.Environment("sums")
    numbers = env.source(rt.SequenceSource(10), uid="numbers", name="numbers")
    slow = numbers.rebalance().map(lambda n: n, uid="slow", name="slow", parallelism=2)
    slow.sink(rt.DiscardSink(), uid="out", name="out", parallelism=2)
    return build_execution_graph(env.graph())


def totals(seconds: float, *, busy: float, soft: float = 0.0, **more: Any) -> SubtaskMetrics:
    """Those of a subtask that has lived for so long, with these shares of time; the rest is idleness."""
    return SubtaskMetrics(
        busy_s=busy * seconds,
        soft_backpressure_s=soft * seconds,
        idle_s=(1 - busy - soft) * seconds,
        **more,
    )


def progress(**metrics: SubtaskMetrics) -> JobProgress:
    ids = {"source": SOURCE, "first": FIRST, "second": SECOND}
    found = {ids[name]: one for name, one in metrics.items()}
    return JobProgress(found, dict.fromkeys(found, "?"), {id: 1000 + id.index for id in found})


def part(id: SubtaskId, stored_after_s: float, in_flight_bytes: int) -> SubtaskReport:
    """What a subtask has to do with a checkpoint."""
    return SubtaskReport(
        "?",
        id.vertex,
        id.index,
        start_delay_s=stored_after_s / 8,
        alignment_s=stored_after_s / 4,
        sync_s=0.001,
        async_s=stored_after_s / 2,
        acknowledged_after_s=stored_after_s,
        in_flight_bytes=in_flight_bytes,
    )


def checkpoint(id: int, failure: CheckpointFailure | None = None) -> CheckpointReport:
    """One that is over."""
    return CheckpointReport(
        id,
        1,
        "unaligned",
        "checkpoint",
        NOW - 1,
        0.25,
        3000,
        (part(SOURCE, 0.0625, 0), part(FIRST, 0.125, 500), part(SECOND, 0.25, 700)),
        failure,
    )


def running_job() -> JobMonitor:
    """After ten seconds of life and two checkpoints, of which one failed."""
    monitor = JobMonitor(graph(), lambda: NOW)
    monitor.on_status(JobStatus.RUNNING, 1)
    monitor.on_checkpoint(
        checkpoint(1, CheckpointFailure(CheckpointFailureReason.DECLINED, "the disk is full"))
    )
    monitor.on_checkpoint(checkpoint(2))
    for seconds in (8, 10):
        monitor.on_progress(
            progress(
                source=totals(seconds, busy=0.25, soft=0.75, records_out=100 * seconds),
                first=totals(
                    seconds,
                    busy=0.5,
                    records_in=40 * seconds,
                    bytes_in=4000 * seconds,
                    queued_in_bytes=300,
                    input_window_bytes=400,
                    watermark=int(NOW * 1000) - 2500,
                    latency={"numbers": LatencyHistogram().noted(0.03).noted(0.5).noted(4.0)},
                ),
                second=totals(seconds, busy=1.0, records_in=60 * seconds, output_queue_use=1.5),
            )
        )
    return monitor
