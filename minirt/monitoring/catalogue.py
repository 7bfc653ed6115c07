"""Every metric that a job offers: its name, its meaning, and where its values come from.

Names and labels are stable. They follow the rules of Prometheus: basic units, counters end in `_total`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from minirt.monitoring.figures import JobFigures, SubtaskFigures
from minirt.monitoring.latency import LatencyHistogram
from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.protocol.job_events import JobStatus
from minirt.protocol.reports import CheckpointUnderWay

Sample = tuple[Mapping[str, str], float | LatencyHistogram]
"""The values of all labels but `job`, and the value; that of a histogram is one."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric with all its labels. `samples` finds its values in the figures of a job."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    meaning: str
    samples: Callable[[JobFigures], Iterator[Sample]]


def _of_job(
    name: str,
    kind: Literal["counter", "gauge"],
    meaning: str,
    value: Callable[[JobFigures], float | None],
) -> Metric:
    def samples(figures: JobFigures) -> Iterator[Sample]:
        found = value(figures)
        if found is not None:
            yield {}, found

    return Metric(name, kind, ("job",), meaning, samples)


def _of_subtask(
    name: str,
    kind: Literal["counter", "gauge"],
    meaning: str,
    value: Callable[[SubtaskFigures, float], float | None],
) -> Metric:
    def samples(figures: JobFigures) -> Iterator[Sample]:
        for one in figures.subtasks:
            found = value(one, figures.at)
            if found is not None:
                yield {"operator": one.operator, "subtask": str(one.subtask)}, found

    return Metric(name, kind, ("job", "operator", "subtask"), meaning, samples)


def _total(name: str, field: str, meaning: str) -> Metric:
    def value(one: SubtaskFigures, now: float) -> float:
        count: float = getattr(one.totals, field)
        return count

    return _of_subtask(name, "counter", meaning, value)


def _now(name: str, meaning: str, value: Callable[[SubtaskMetrics], float | None]) -> Metric:
    return _of_subtask(name, "gauge", meaning, lambda one, now: value(one.totals))


def _of_newest(name: str, field: str, meaning: str) -> Metric:
    def value(figures: JobFigures) -> float | None:
        newest = figures.checkpoints.newest
        return None if newest is None else getattr(newest, field)

    return _of_job(name, "gauge", meaning, value)


def _of_part(stage: str, meaning: str) -> Metric:
    def value(one: SubtaskFigures, now: float) -> float | None:
        return None if one.checkpoint is None else getattr(one.checkpoint, f"{stage}_s")

    name = f"minirt_last_checkpoint_{stage}_seconds"
    return _of_subtask(name, "gauge", f"Of the newest completed checkpoint: {meaning}", value)


def _of_under_way(
    name: str, meaning: str, value: Callable[[CheckpointUnderWay, float], float]
) -> Metric:
    def found(figures: JobFigures) -> float | None:
        under_way = figures.checkpoints.under_way
        return value(under_way[0], figures.at) if under_way else None

    return _of_job(name, "gauge", f"{meaning}; absent while none is being taken.", found)


def _statuses(figures: JobFigures) -> Iterator[Sample]:
    for status in JobStatus:
        yield {"status": status.value}, float(status is figures.status)


def _descriptions(figures: JobFigures) -> Iterator[Sample]:
    for one in figures.subtasks:
        pid = "" if one.pid is None else str(one.pid)
        labels = {"operator": one.operator, "subtask": str(one.subtask)}
        yield {**labels, "chain": one.name, "pid": pid}, 1.0


def _latencies(figures: JobFigures) -> Iterator[Sample]:
    for one in figures.subtasks:
        for source, histogram in one.totals.latency.items():
            labels = {"operator": one.operator, "subtask": str(one.subtask), "source": source}
            yield labels, histogram


CATALOGUE: tuple[Metric, ...] = (
    Metric(
        "minirt_job_status",
        "gauge",
        ("job", "status"),
        "1 for the status that the job has, 0 for all others.",
        _statuses,
    ),
    _of_job(
        "minirt_job_start_time_seconds",
        "gauge",
        "When the job was started, in seconds since 1970.",
        lambda job: job.started_at,
    ),
    _of_job(
        "minirt_job_generation", "gauge", "The generation that runs.", lambda job: job.generation
    ),
    _of_job(
        "minirt_job_restarts_total",
        "counter",
        "Restarts since the job was started.",
        lambda job: job.restarts,
    ),
    _of_job(
        "minirt_job_comebacks_total",
        "counter",
        "Workers that came back alone since the job was started, while all others went on.",
        lambda job: job.comebacks,
    ),
    _of_job(
        "minirt_outputs_given_up_total",
        "counter",
        "Pending outputs of a sink that the restore has dropped, as `give_up_output_of` says.",
        lambda job: job.given_up,
    ),
    _of_job(
        "minirt_checkpoints_completed_total",
        "counter",
        "Checkpoints that completed since the job was started.",
        lambda job: job.checkpoints.completed,
    ),
    _of_job(
        "minirt_checkpoints_failed_total",
        "counter",
        "Checkpoints that failed since the job was started.",
        lambda job: job.checkpoints.failed,
    ),
    _of_newest(
        "minirt_last_checkpoint_start_time_seconds",
        "triggered_at",
        "When the newest completed checkpoint was triggered, in seconds since 1970.",
    ),
    _of_newest(
        "minirt_last_checkpoint_duration_seconds",
        "duration_s",
        "How long the newest completed checkpoint took, from its trigger to its manifest.",
    ),
    _of_newest(
        "minirt_last_checkpoint_bytes",
        "bytes",
        "What the newest completed checkpoint stored, without what it refers to in older ones.",
    ),
    _of_newest(
        "minirt_last_checkpoint_in_flight_bytes",
        "in_flight_bytes",
        "How much of that was captured in flight.",
    ),
    _of_job(
        "minirt_checkpoints_under_way",
        "gauge",
        "How many checkpoints are being taken.",
        lambda figures: float(len(figures.checkpoints.under_way)),
    ),
    _of_under_way(
        "minirt_checkpoint_under_way_seconds",
        "How long ago the oldest checkpoint that is being taken was triggered",
        lambda under_way, now: max(0.0, now - under_way.triggered_at),
    ),
    _of_under_way(
        "minirt_checkpoint_under_way_missing_subtasks",
        "How many subtasks have not stored their part of the oldest checkpoint that is being taken",
        lambda under_way, now: float(len(under_way.missing)),
    ),
    Metric(
        "minirt_subtask_info",
        "gauge",
        ("job", "operator", "subtask", "chain", "pid"),
        "Always 1: the names of the operators in the subtask's chain, and its process.",
        _descriptions,
    ),
    _total(
        "minirt_busy_seconds_total",
        "busy_s",
        "Time with input and room for output: it worked, or waited for its turn in its process.",
    ),
    _total("minirt_idle_seconds_total", "idle_s", "Time without input."),
    _total(
        "minirt_soft_backpressure_seconds_total",
        "soft_backpressure_s",
        "Time with input but without room for output, in which it could take a barrier.",
    ),
    _total(
        "minirt_hard_backpressure_seconds_total",
        "hard_backpressure_s",
        "Time stuck within one record, with no room for its output in memory or on disk.",
    ),
    _total(
        "minirt_drift_pause_seconds_total",
        "drift_pause_s",
        "Time in which a source read nothing, as it was too far ahead of others in its drift group.",
    ),
    _total("minirt_records_in_total", "records_in", "Records that were taken in."),
    _total(
        "minirt_records_out_total", "records_out", "Records that were emitted, once for each link."
    ),
    _total("minirt_bytes_in_total", "bytes_in", "Bytes that were taken from input channels."),
    _total("minirt_bytes_out_total", "bytes_out", "Bytes that were put into output channels."),
    _total(
        "minirt_protocol_bytes_out_total",
        "protocol_bytes_out",
        "Bytes of barriers, and of marks of local snapshots, that were put into output channels.",
    ),
    _total(
        "minirt_late_records_total", "late_records", "Records that came too late for their window."
    ),
    _now(
        "minirt_waiting_records",
        "Records that joins keep for partners, and those of top_n that have a rank.",
        lambda totals: totals.waiting_records,
    ),
    _now(
        "minirt_waiting_bytes",
        "About what the records that joins and top_n keep take in memory.",
        lambda totals: totals.waiting_bytes,
    ),
    _total(
        "minirt_spilled_bytes_total",
        "spilled_bytes",
        "Output that went to disk, as memory had no room for it.",
    ),
    _now(
        "minirt_input_queue_bytes",
        "What waits in the input queues.",
        lambda totals: totals.queued_in_bytes,
    ),
    _now(
        "minirt_input_window_bytes",
        "What the input channels may hold together; debloating changes it.",
        lambda totals: totals.input_window_bytes,
    ),
    _now(
        "minirt_output_queue_bytes",
        "What waits in the output queues.",
        lambda totals: totals.queued_out_bytes,
    ),
    _now(
        "minirt_input_queue_use_ratio",
        "How full the input queues are together.",
        lambda totals: totals.input_queue_use,
    ),
    _now(
        "minirt_output_queue_use_ratio",
        "How full the fullest output queue is; above 1 it holds more than it should.",
        lambda totals: totals.output_queue_use,
    ),
    _now(
        "minirt_watermark_seconds",
        "The watermark, in seconds since 1970; absent before the first and after the last one.",
        lambda totals: totals.watermark_s,
    ),
    _of_subtask(
        "minirt_watermark_lag_seconds",
        "gauge",
        "How far the watermark is behind the clock; absent before the first and after the last one.",
        lambda one, now: one.watermark_lag_s(now),
    ),
    Metric(
        "minirt_latency_seconds",
        "histogram",
        ("job", "operator", "subtask", "source"),
        "How long latency markers took from a source until they were read here; absent without them.",
        _latencies,
    ),
    _of_part("start_delay", "from the trigger to the first barrier here."),
    _of_part("alignment", "from the first barrier to the last one."),
    _of_part("sync", "how long the subtask did nothing else."),
    _of_part("async", "from there until its part was stored."),
    _of_subtask(
        "minirt_last_checkpoint_stored_seconds",
        "gauge",
        "From the trigger of the newest completed checkpoint until this subtask's part was stored.",
        lambda one, now: one.checkpoint_s,
    ),
)
