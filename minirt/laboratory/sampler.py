"""The figures of a running job and of all its processes, several times a second, on one clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from minirt.clock import SYSTEM_CLOCK
from minirt.laboratory.measured import (
    CheckpointMeasured,
    OperatorMeasured,
    PartMeasured,
    Series,
)
from minirt.laboratory.processes import ProcessTree
from minirt.laboratory.recovery import Line
from minirt.monitoring.figures import JobFigures
from minirt.monitoring.latency import together
from minirt.monitoring.queued import queued_bytes
from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.protocol.job_events import JobStatus
from minirt.protocol.reports import CheckpointReport
from minirt.runtime.coordinator.observer import JobObserver

EVERY_S = 0.2

_COUNTED = (
    *("busy_s", "idle_s", "soft_backpressure_s", "hard_backpressure_s"),
    *("records_in", "records_out", "protocol_bytes_out"),
)

_Subtask = tuple[str, int]


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    source_records: int
    """That all sources have given out since measuring began, in all generations."""
    queued_bytes: int
    backpressure: float
    cpu_s: float
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class _Seen:
    at: float
    report: CheckpointReport


class Sampler(JobObserver):
    """Hears of checkpoints and generations, and looks at figures and processes in a thread.

    `sources` are the chains, by the uid of their first operator, that read, `sinks` those whose latency
    markers count.
    """

    def __init__(
        self, pid: int, sources: frozenset[str], sinks: frozenset[str] = frozenset()
    ) -> None:
        self._processes = ProcessTree(pid)
        self._sources = sources
        self._sinks = sinks
        self.markers: list[tuple[float, Mapping[int, int]]] = []
        """Each time that latency markers had come to the sinks since measuring began, in all generations:
        when that was seen, and how many of them took how long, by bucket."""
        self._samples: list[_Sample] = []
        self._reports: list[_Seen] = []
        self._latest: dict[_Subtask, SubtaskMetrics] = {}
        self._sums: dict[_Subtask, dict[str, float]] = {}
        self._names: dict[str, str] = {}
        self._began_at = self._ended_at = time.monotonic()
        self._cpu_at_begin = 0.0
        self.restored: dict[int, int | None] = {}
        """From which checkpoint each generation was restored."""
        self.errors: list[str] = []
        """Why the job was restarted."""

    # What the job tells.

    def on_status(self, status: JobStatus, generation: int) -> None:
        if status is JobStatus.RUNNING and generation not in self.restored:
            done = [one.report.checkpoint_id for one in self._reports if one.report.completed]
            self.restored[generation] = max(done, default=None)

    def on_checkpoint(self, report: CheckpointReport) -> None:
        # The report has the wall clock's time; all else goes by the monotonic one.
        ago_s = max(0.0, SYSTEM_CLOCK.now() - report.triggered_at)
        self._reports.append(_Seen(time.monotonic() - ago_s, report))

    def on_restart(self, error: Exception, delay_s: float) -> None:
        self.errors.append(str(error))

    # What it looks at.

    def watch(self, figures: Callable[[], JobFigures], stopped: threading.Event) -> None:
        """Look until `stopped` is set."""
        while not stopped.wait(EVERY_S):
            self.look(figures())

    def look(self, figures: JobFigures) -> None:
        backpressure = self._account(figures)
        self._processes.look()
        sources = sum(
            sums["records_in"] for (uid, _), sums in self._sums.items() if uid in self._sources
        )
        self._samples.append(
            _Sample(
                time.monotonic(),
                int(sources),
                sum(queued_bytes(one.totals) for one in figures.subtasks),
                backpressure,
                self._processes.cpu_s,
                self._processes.rss_bytes,
            )
        )

    def begin(self) -> float:
        """Measuring begins now, by the monotonic clock."""
        self._processes.look()
        self._sums.clear()
        self.markers.clear()
        self._cpu_at_begin = self._processes.cpu_s
        self._processes.peak_rss_bytes = 0
        self._began_at = time.monotonic()
        return self._began_at

    def end(self, figures: JobFigures) -> float:
        """Measuring ends now."""
        self.look(figures)
        self._ended_at = time.monotonic()
        return self._ended_at

    def _account(self, figures: JobFigures) -> float:
        """Add up what each subtask has counted since the last look.

        Returns the share of that time in which the most backpressured subtask had no room for output.
        """
        most = 0.0
        for one in figures.subtasks:
            self._names[one.operator] = one.name
            key, totals = (one.operator, one.subtask), replace(one.totals)
            before = self._latest.get(key)
            if before is None or totals.accounted_s < before.accounted_s:
                before = SubtaskMetrics()  # It was started anew.
            self._latest[key] = totals
            sums = self._sums.setdefault(key, dict.fromkeys(_COUNTED, 0.0))
            change = {name: getattr(totals, name) - getattr(before, name) for name in _COUNTED}
            for name, more in change.items():
                sums[name] += more
            if one.operator in self._sinks and totals.latency:
                earlier = together(before.latency.values())
                arrived = together(totals.latency.values()).since(earlier)
                if arrived.counts:
                    self.markers.append((time.monotonic(), arrived.counts))
            passed_s = totals.accounted_s - before.accounted_s
            blocked_s = change["soft_backpressure_s"] + change["hard_backpressure_s"]
            if passed_s > 0:
                most = max(most, blocked_s / passed_s)
        return most

    # What came of it.

    @property
    def cpu_s(self) -> float:
        return self._processes.cpu_s - self._cpu_at_begin

    @property
    def peak_rss_bytes(self) -> int:
        return self._processes.peak_rss_bytes

    @property
    def source_records(self) -> int:
        of_sources = [one for one in self._sums.items() if one[0][0] in self._sources]
        return int(sum(sums["records_in"] for _, sums in of_sources))

    @property
    def protocol_bytes(self) -> int:
        return int(sum(sums["protocol_bytes_out"] for sums in self._sums.values()))

    @property
    def first_snapshots(self) -> Mapping[int, float]:
        """When the first snapshot was taken that is in a checkpoint, by its id and the monotonic clock."""
        return {
            one.report.checkpoint_id: one.at - (one.report.whole_s - one.report.duration_s)
            for one in list(self._reports)
            if one.report.completed
        }

    @property
    def lines(self) -> Iterator[Line]:
        """The checkpoints that are made of local snapshots."""
        for one in list(self._reports):
            report = one.report
            parts = {(part.vertex, part.subtask): part.local for part in report.subtasks}
            if report.completed and any(parts.values()):
                yield Line(report.checkpoint_id, report.generation, parts)

    def operators(self) -> tuple[OperatorMeasured, ...]:
        """Where the time of each chain went while it was measured, in the order of the job."""
        found = []
        for uid, name in self._names.items():
            each = [sums for (operator, _), sums in self._sums.items() if operator == uid]
            if each:
                found.append(_operator(uid, name, each))
        return tuple(found)

    @property
    def has_completed(self) -> bool:
        """Whether a checkpoint has completed that was triggered since measuring began."""
        reports = list(self._reports)
        return any(one.report.completed and one.at >= self._began_at for one in reports)

    def checkpoints(self) -> tuple[CheckpointMeasured, ...]:
        """All that were triggered before measuring ended, but those that its end made fail."""
        return tuple(
            _checkpoint(one.report, one.at - self._began_at)
            for one in self._reports
            if one.at <= self._ended_at
            and (one.report.completed or one.at + one.report.duration_s <= self._ended_at)
        )

    def series(self) -> tuple[Series, ...]:
        """What was looked at, by the time since measuring began."""
        samples = [one for one in self._samples if self._began_at <= one.at <= self._ended_at]
        at = tuple(round(one.at - self._began_at, 3) for one in samples)
        whole = {
            "queued bytes": ("bytes", [float(one.queued_bytes) for one in samples]),
            "memory": ("bytes", [float(one.rss_bytes) for one in samples]),
            "backpressure": ("share", [round(one.backpressure, 3) for one in samples]),
        }
        steps = {
            "records of sources": ("per s", _slopes(samples, lambda one: one.source_records)),
            "CPU": ("cores", _slopes(samples, lambda one: one.cpu_s)),
        }
        return (
            *(Series(name, unit, at, tuple(found)) for name, (unit, found) in whole.items()),
            *(Series(name, unit, at[1:], tuple(found)) for name, (unit, found) in steps.items()),
        )


def _slopes(samples: Sequence[_Sample], total: Callable[[_Sample], float]) -> list[float]:
    """The change a second from each sample to the next."""
    return [
        round(max(0.0, total(later) - total(one)) / max(later.at - one.at, 1e-3), 3)
        for one, later in pairwise(samples)
    ]


def _operator(uid: str, name: str, each: Sequence[Mapping[str, float]]) -> OperatorMeasured:
    names = ("busy_s", "idle_s", "soft_backpressure_s", "hard_backpressure_s")
    lives = [sum(sums[part] for part in names) for sums in each]
    whole = sum(lives) or 1.0
    busy, idle, soft, hard = (round(sum(sums[part] for sums in each) / whole, 4) for part in names)
    busiest = max(
        (sums["busy_s"] / life for sums, life in zip(each, lives, strict=True) if life > 0),
        default=0.0,
    )
    return OperatorMeasured(uid, name, len(each), busy, idle, soft, hard, round(busiest, 4))


def _checkpoint(report: CheckpointReport, at_s: float) -> CheckpointMeasured:
    parts = tuple(
        PartMeasured(
            one.name,
            one.subtask,
            one.start_delay_s,
            one.alignment_s,
            one.sync_s,
            one.async_s,
            one.state_bytes,
            one.in_flight_bytes,
            one.age_s,
            one.skipped,
            one.forced,
        )
        for one in report.subtasks
    )
    return CheckpointMeasured(
        report.checkpoint_id,
        round(at_s, 4),
        report.duration_s,
        report.completed,
        report.kind,
        "" if report.failure is None else str(report.failure),
        report.bytes,
        report.in_flight_bytes,
        sum(one.state_bytes for one in report.subtasks),
        parts,
    )
