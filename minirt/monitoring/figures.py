"""The figures of a job at one moment: what its subtasks have counted, at what rates, and their sums."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from itertools import groupby
from typing import Any

from minirt.monitoring.latency import LatencyHistogram, RecentLatencies, together
from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.protocol.job_events import JobStatus
from minirt.protocol.reasons import CheckpointFailure
from minirt.protocol.reports import CheckpointReport, CheckpointUnderWay, SubtaskReport

STRETCH_S = 1.0
"""Over how long a time rates are taken, at least."""


@dataclass(frozen=True, slots=True)
class Rates:
    """What a subtask does in each second; the five times are in milliseconds and add up to 1000."""

    busy_ms: float
    idle_ms: float
    soft_backpressure_ms: float
    hard_backpressure_ms: float
    drift_pause_ms: float
    records_in: float
    records_out: float
    bytes_in: float
    bytes_out: float

    @staticmethod
    def between(earlier: SubtaskMetrics, later: SubtaskMetrics) -> Rates:
        """Seconds by the clock of the subtask itself, so that no delay on the way counts."""
        passed_s = later.accounted_s - earlier.accounted_s

        def per_second(name: str) -> float:
            change: float = getattr(later, name) - getattr(earlier, name)
            return change / passed_s

        return Rates(
            1000 * per_second("busy_s"),
            1000 * per_second("idle_s"),
            1000 * per_second("soft_backpressure_s"),
            1000 * per_second("hard_backpressure_s"),
            1000 * per_second("drift_pause_s"),
            per_second("records_in"),
            per_second("records_out"),
            per_second("bytes_in"),
            per_second("bytes_out"),
        )


class RateMeter:
    """The rates of one subtask, from totals that come in more often than rates are taken."""

    def __init__(self) -> None:
        self._mark: SubtaskMetrics | None = None
        self._latencies = RecentLatencies()
        self.rates: Rates | None = None
        """Over the last stretch; None until the first one is over."""
        self.latency: LatencyHistogram | None = None
        """Of the latency markers that came in the last seconds, from all sources; None before the first."""

    def update(self, totals: SubtaskMetrics) -> None:
        if totals.latency:
            whole = together(totals.latency.values())
            self.latency = self._latencies.after(totals.accounted_s, whole)
        mark = self._mark
        if mark is None or totals.accounted_s < mark.accounted_s:  # Its process is another one.
            self._mark = totals
        elif totals.accounted_s - mark.accounted_s >= STRETCH_S:
            self._mark, self.rates = totals, Rates.between(mark, totals)


@dataclass(frozen=True, slots=True)
class CheckpointPart:
    """How one checkpoint went in one subtask, in seconds."""

    start_delay_s: float
    """From the trigger to the first barrier."""
    alignment_s: float
    """From the first barrier to the last one."""
    sync_s: float
    """The time in which the subtask did nothing else."""
    async_s: float
    """From the end of the synchronous part until all was stored."""
    stored_s: float
    """From the trigger until its part was stored."""

    @staticmethod
    def of(part: SubtaskReport) -> CheckpointPart:
        """Its stages."""
        return CheckpointPart(
            part.start_delay_s,
            part.alignment_s,
            part.sync_s,
            part.async_s,
            part.acknowledged_after_s,
        )

    @staticmethod
    def longest(parts: Iterable[CheckpointPart]) -> CheckpointPart | None:
        """Each stage of the subtask that took the longest for it; None if there are no parts."""
        stages = list(zip(*(astuple(part) for part in parts), strict=True))
        return CheckpointPart(*map(max, stages)) if stages else None


@dataclass(frozen=True, slots=True)
class SubtaskFigures:
    """One subtask. `operator` is the uid of the first operator of its chain, `name` that of the chain."""

    operator: str
    name: str
    subtask: int
    pid: int | None
    totals: SubtaskMetrics
    rates: Rates | None
    checkpoint: CheckpointPart | None = None
    """How the newest checkpoint went here."""
    latency: LatencyHistogram | None = None
    """Of the latency markers that came here in the last seconds; None if none ever did."""

    @property
    def checkpoint_s(self) -> float | None:
        """From the trigger of the newest checkpoint until this subtask's part was stored."""
        return None if self.checkpoint is None else self.checkpoint.stored_s

    def watermark_lag_s(self, now: float) -> float | None:
        """How far event time is behind the clock; None without a watermark, or after the last one."""
        watermark_s = self.totals.watermark_s
        return None if watermark_s is None else now - watermark_s

    def to_plain(self, now: float) -> dict[str, Any]:
        totals = self.totals
        return {
            "subtask": self.subtask,
            "pid": self.pid,
            "totals": {
                **asdict(replace(totals, latency={})),
                "latency": {uid: each.to_plain() for uid, each in totals.latency.items()},
            },
            "per_second": None if self.rates is None else asdict(self.rates),
            "input_queue_use": totals.input_queue_use,
            "output_queue_use": totals.output_queue_use,
            "watermark_lag_s": self.watermark_lag_s(now),
            "checkpoint_s": self.checkpoint_s,
            "checkpoint": None if self.checkpoint is None else asdict(self.checkpoint),
            "latency": None if self.latency is None else self.latency.to_plain(),
        }


@dataclass(frozen=True, slots=True)
class OperatorFigures:
    """All subtasks of a chain. Of `rates`, times are averages and the rest are sums."""

    operator: str
    name: str
    rates: Rates | None
    busiest_ms: float | None
    """The busy time of its busiest subtask: far above the average, some keys have most of the records."""
    input_queue_use: float
    output_queue_use: float
    watermark_lag_s: float | None
    """The lag of the subtask that is the furthest behind."""
    checkpoint_s: float | None
    """The figure of the subtask that was the last to store its part of the newest checkpoint."""
    checkpoint: CheckpointPart | None
    """Each stage of the newest checkpoint, of the subtask that took the longest for it."""
    input_window_bytes: int
    """How many bytes the input channels of all subtasks may hold; debloating changes it."""
    subtasks: tuple[SubtaskFigures, ...]
    latency: LatencyHistogram | None = None
    """That of all its subtasks together; None if no latency marker ever came here."""

    @staticmethod
    def of(subtasks: Sequence[SubtaskFigures], now: float) -> OperatorFigures:
        rates = [one.rates for one in subtasks if one.rates is not None]
        lags = [lag for one in subtasks if (lag := one.watermark_lag_s(now)) is not None]
        stored = [one.checkpoint_s for one in subtasks if one.checkpoint_s is not None]
        latencies = [one.latency for one in subtasks if one.latency is not None]
        return OperatorFigures(
            subtasks[0].operator,
            subtasks[0].name,
            _merged(rates),
            max((each.busy_ms for each in rates), default=None),
            max(one.totals.input_queue_use for one in subtasks),
            max(one.totals.output_queue_use for one in subtasks),
            max(lags, default=None),
            max(stored, default=None),
            CheckpointPart.longest(p for one in subtasks if (p := one.checkpoint) is not None),
            sum(one.totals.input_window_bytes for one in subtasks),
            tuple(subtasks),
            together(latencies) if latencies else None,
        )

    def to_plain(self, now: float) -> dict[str, Any]:
        return {
            "operator": self.operator,
            "name": self.name,
            "parallelism": len(self.subtasks),
            "per_second": None if self.rates is None else asdict(self.rates),
            "busiest_ms": self.busiest_ms,
            "input_queue_use": self.input_queue_use,
            "output_queue_use": self.output_queue_use,
            "watermark_lag_s": self.watermark_lag_s,
            "checkpoint_s": self.checkpoint_s,
            "checkpoint": None if self.checkpoint is None else asdict(self.checkpoint),
            "input_window_bytes": self.input_window_bytes,
            "latency": None if self.latency is None else self.latency.to_plain(),
            "subtasks": [one.to_plain(now) for one in self.subtasks],
        }


@dataclass(frozen=True, slots=True)
class CheckpointFigures:
    """How the checkpoints of a job went since it was started."""

    completed: int = 0
    failed: int = 0
    newest: CheckpointReport | None = None
    """The newest that completed."""
    last_failure: CheckpointFailure | None = None
    under_way: tuple[CheckpointUnderWay, ...] = ()
    """Those that are being taken, the oldest first."""

    def after(self, report: CheckpointReport) -> CheckpointFigures:
        """With one more checkpoint."""
        if report.failure is not None:
            return CheckpointFigures(self.completed, self.failed + 1, self.newest, report.failure)
        return CheckpointFigures(self.completed + 1, self.failed, report, self.last_failure)

    def to_plain(self) -> dict[str, Any]:
        return {
            "completed": self.completed,
            "failed": self.failed,
            "newest": None
            if self.newest is None
            else {name: getattr(self.newest, name) for name in _OF_NEWEST},
            "last_failure": None if self.last_failure is None else str(self.last_failure),
            "under_way": [
                {name: getattr(one, name) for name in _OF_UNDER_WAY} for one in self.under_way
            ],
        }


_OF_NEWEST = (
    *("checkpoint_id", "mode", "kind", "triggered_at", "duration_s"),
    *("bytes", "in_flight_bytes"),
)
"""What the figures tell of the newest completed checkpoint."""

_OF_UNDER_WAY = ("checkpoint_id", "mode", "kind", "triggered_at", "stored", "missing")
"""What the figures tell of those that are being taken: their parts would be too much for each second."""


@dataclass(frozen=True, slots=True)
class JobFigures:
    """A job at the time `at`, in seconds since 1970. `subtasks` are in the order of the job's graph."""

    name: str
    status: JobStatus
    generation: int
    restarts: int
    started_at: float
    at: float
    last_failure: str | None = None
    """Why it restarted last, or a worker came back alone."""
    checkpoints: CheckpointFigures = field(default_factory=CheckpointFigures)
    subtasks: tuple[SubtaskFigures, ...] = ()
    comebacks: int = 0
    """How often a worker came back alone, while all others went on."""
    latency_interval_s: float | None = None
    """How often sources send latency markers; None: never."""
    given_up: int = 0
    """The number of pending outputs of a sink that the restore has dropped, as the user wanted."""

    def operators(self) -> list[OperatorFigures]:
        """The same by chain."""
        groups = groupby(self.subtasks, key=lambda one: one.operator)
        return [OperatorFigures.of(list(group), self.at) for _, group in groups]

    def to_plain(self) -> dict[str, Any]:
        """The figures as JSON and the history on storage carry them."""
        return {
            "name": self.name,
            "status": self.status.value,
            "generation": self.generation,
            "restarts": self.restarts,
            "comebacks": self.comebacks,
            "given_up": self.given_up,
            "started_at": self.started_at,
            "at": self.at,
            "last_failure": self.last_failure,
            "latency_interval_s": self.latency_interval_s,
            "checkpoints": self.checkpoints.to_plain(),
            "operators": [operator.to_plain(self.at) for operator in self.operators()],
        }


def _merged(rates: Iterable[Rates]) -> Rates | None:
    """Times averaged, the rest summed up."""
    each = [asdict(one) for one in rates]
    if not each:
        return None
    sums = {name: sum(one[name] for one in each) for name in each[0]}
    return Rates(**{n: s / len(each) if n.endswith("_ms") else s for n, s in sums.items()})
