"""The figures that advice is drawn from, and how they are read from a storage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from minirt.monitoring.load import JobSetup, LoadEntry
from minirt.protocol.reports import CheckpointReport

CHECKPOINTS_MAX = 30
"""How many of the newest checkpoints advice is about: older ones may be of another time."""


@dataclass(frozen=True, slots=True)
class CheckpointTimes:
    """One checkpoint: of the subtask that was the last to store its part, what the time went to.

    All in seconds. `answer_s`: its snapshot was stored, but its process was within a call of a function and
    said so only then. `rest_s` is what was left: the manifest.
    """

    checkpoint_id: int
    duration_s: float
    start_delay_s: float
    alignment_s: float
    sync_s: float
    async_s: float
    answer_s: float
    rest_s: float
    slowest: str
    """The name of that subtask."""
    state_bytes: int
    in_flight_bytes: int
    expired: bool = False
    failed: bool = False

    @staticmethod
    def of(report: CheckpointReport) -> CheckpointTimes:
        """How it went. Of one that has failed there may be no parts."""
        parts = report.subtasks
        expired = report.failure is not None and str(report.failure).startswith("expired")
        last = max(parts, key=lambda part: part.acknowledged_after_s, default=None)
        times, answer_s = (0.0,) * 4, 0.0
        if last is not None:
            times = (last.start_delay_s, last.alignment_s, last.sync_s, last.async_s)
            answer_s = max(0.0, last.acknowledged_after_s - sum(times))
        return CheckpointTimes(
            report.checkpoint_id,
            report.duration_s,
            *times,
            answer_s=answer_s,
            rest_s=max(0.0, report.duration_s - sum(times) - answer_s),
            slowest="" if last is None else last.name,
            state_bytes=sum(part.state_bytes for part in parts),
            in_flight_bytes=report.in_flight_bytes,
            expired=expired,
            failed=report.failure is not None,
        )


@dataclass(frozen=True, slots=True)
class Figures:
    """A job as its storage remembers it. `load` is oldest first, `checkpoints` as well.

    Without `setup`, nobody has recorded the load: a job of an earlier version, or one that ran for less
    than some seconds.
    """

    setup: JobSetup | None
    load: tuple[LoadEntry, ...]
    checkpoints: tuple[CheckpointTimes, ...]

    @property
    def completed(self) -> list[CheckpointTimes]:
        return [one for one in self.checkpoints if not one.failed]

    @property
    def duration_s(self) -> float:
        """The median of the completed checkpoints; if none has, how long the longest was under way."""
        if not self.completed:
            return max((one.duration_s for one in self.checkpoints), default=0.0)
        return median(one.duration_s for one in self.completed)

    def share(self, *stages: str) -> float:
        """The median part of the duration that these stages took together."""
        shares: list[float] = [
            sum(getattr(one, f"{stage}_s") for stage in stages) / one.duration_s
            for one in self.completed
            if one.duration_s > 0
        ]
        return median(shares or [0.0])

    def seconds(self, *stages: str) -> float:
        """The median time of these stages together."""
        sums: list[float] = [
            sum(getattr(one, f"{stage}_s") for stage in stages) for one in self.completed
        ]
        return median(sums or [0.0])


def figures(load: Iterable[LoadEntry], reports: Sequence[CheckpointReport]) -> Figures:
    """The newest generation that has recorded its load, and the newest checkpoints.

    Savepoints and the final checkpoint are left out, as their times are others.
    """
    entries = sorted(load, key=lambda entry: entry.at)
    if entries:
        entries = [one for one in entries if one.generation == entries[-1].generation]
    counted = [report for report in reports if report.kind == "checkpoint"][-CHECKPOINTS_MAX:]
    return Figures(
        entries[-1].setup if entries else None,
        tuple(entries),
        tuple(CheckpointTimes.of(report) for report in counted),
    )
