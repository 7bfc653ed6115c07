"""The figures of a running demo, as its progress line shows them."""

from __future__ import annotations

import datetime as dt
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import minirt as rt
from minirt_connectors.flights.job import SOURCE_NAME

_WINDOW_S = 1.5
_END_OF_TIME_MS = 1 << 62


@dataclass(frozen=True, slots=True)
class Figures:
    """Where a run is. Rate and backpressure are those of the sources, over the last moments."""

    elapsed_s: float = 0.0
    status: str = "starting"
    records: int = 0
    """Read so far; what is read again after a restart counts again."""
    records_per_s: float = 0.0
    backpressure: float = 0.0
    """The share of time that the sources could not go on because their output was full."""
    event_time: dt.datetime | None = None
    """How far the slowest source is; falls back at a restart."""
    checkpoints: int = 0
    kills: int = 0
    restarts: int = 0

    def __str__(self) -> str:
        day = f"{self.event_time:%Y-%m-%d}" if self.event_time else "-"
        return (
            f"{self.elapsed_s:5.1f} s  {self.status:<9}  {self.records:>9,} records  "
            f"{self.records_per_s:>8,.0f}/s  day {day:<10}  {self.checkpoints:>2} checkpoints  "
            f"{self.kills} kills  {self.restarts} restarts  backpressure {self.backpressure:4.0%}"
        )


@dataclass(frozen=True, slots=True)
class _Sample:
    """Totals of the sources at a time. Seconds."""

    at: float
    records: int
    lived_s: float
    blocked_s: float


class LiveFigures(rt.JobObserver):
    """Gathers `Figures` from the reports of a job. `kills` says how many workers were killed so far."""

    def __init__(
        self, kills: Callable[[], int] = lambda: 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._kills = kills
        self._clock = clock
        self._began_at = clock()
        self._status = "starting"
        self._samples: deque[_Sample] = deque()
        self._records_before = 0
        self._event_time: dt.datetime | None = None
        self._checkpoints = 0
        self._restarts = 0

    def on_status(self, status: rt.JobStatus, generation: int) -> None:
        self._status = status.value
        if status is rt.JobStatus.DEPLOYING:
            # From here on, new subtasks count from zero.
            self._records_before += self._samples[-1].records if self._samples else 0
            self._samples = deque()

    def on_checkpoint(self, report: rt.CheckpointReport) -> None:
        self._checkpoints += report.completed

    def on_restart(self, error: Exception, delay_s: float) -> None:
        self._restarts += 1

    def on_progress(self, progress: rt.JobProgress) -> None:
        sources = [
            metrics
            for id, metrics in progress.metrics.items()
            if progress.names[id].startswith(SOURCE_NAME)
        ]
        if not sources:
            return
        blocked_s = sum(m.soft_backpressure_s + m.hard_backpressure_s for m in sources)
        lived_s = blocked_s + sum(m.busy_s + m.idle_s for m in sources)
        records = sum(m.records_in for m in sources)
        self._add(_Sample(self._clock(), records, lived_s, blocked_s))
        times = [m.watermark for m in sources if m.watermark is not None]
        if times and min(times) < _END_OF_TIME_MS:
            self._event_time = dt.datetime.fromtimestamp(min(times) / 1000, dt.UTC)

    def figures(self) -> Figures:
        """The figures now; may be called from any thread."""
        samples = self._samples
        newest = samples[-1] if samples else _Sample(0, 0, 0, 0)
        oldest = samples[0] if samples else newest
        passed_s, lived_s = newest.at - oldest.at, newest.lived_s - oldest.lived_s
        return Figures(
            elapsed_s=self._clock() - self._began_at,
            status=self._status,
            records=self._records_before + newest.records,
            records_per_s=(newest.records - oldest.records) / passed_s if passed_s else 0.0,
            backpressure=(newest.blocked_s - oldest.blocked_s) / lived_s if lived_s else 0.0,
            event_time=self._event_time,
            checkpoints=self._checkpoints,
            kills=self._kills(),
            restarts=self._restarts,
        )

    def _add(self, sample: _Sample) -> None:
        if self._samples and sample.at - self._samples[-1].at < _WINDOW_S / 10:
            return
        self._samples.append(sample)
        while self._samples[0].at < sample.at - _WINDOW_S:
            self._samples.popleft()
