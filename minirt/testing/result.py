"""How a simulation went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from minirt.protocol.reports import CheckpointReport
from minirt.protocol.trace import CheckpointTrace
from minirt.runtime.coordinator.observer import JobObserver


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """How a simulation went; the same seed gives the same one again."""

    seed: int
    finished: bool
    """Whether the job came to its end by itself."""
    problems: tuple[str, ...]
    """What went wrong that no fault explains, such as why the job did not finish."""
    committed: Mapping[str, Sequence[Any]] = field(repr=False)
    """The committed records of each TransactionalSink, by its uid."""
    steps: int
    checkpoints_completed: int
    checkpoints_failed: int
    restarts: int
    """Restarts of generations and of coordinators."""
    rescales: int
    """Restarts of coordinators with another form of the job."""
    faults: Counter[str]
    """How often each kind of fault struck, by its name in `Faults`."""
    savepoints: Sequence[Mapping[str, bytes]] = field(repr=False)
    """What each savepoint consists of: its objects by path."""
    trace: Sequence[str] = field(repr=False)
    """What happened, a line each: step, seconds, who, what."""
    traces: Sequence[CheckpointTrace] = field(repr=False, default=())
    """What each completed checkpoint did, with `Options(trace=True)`."""
    comebacks: int = 0
    """How often a worker came back alone, or was about to; see `Restart`."""

    def check(self) -> SimulationResult:
        """Itself. Raises AssertionError with the seed and the end of the trace if anything is wrong."""
        if self.finished and not self.problems:
            return self
        end = "\n".join(self.trace[-40:])
        reasons = "; ".join(self.problems) or "the job did not finish"
        raise AssertionError(f"seed {self.seed}: {reasons}\n{end}")


class CheckpointCounter(JobObserver):
    """Counts what became of checkpoints, and keeps their traces."""

    def __init__(self) -> None:
        self.completed = 0
        self.failed = 0
        self.traces: list[CheckpointTrace] = []

    def on_checkpoint(self, report: CheckpointReport) -> None:
        self.completed += report.completed
        self.failed += not report.completed

    def on_trace(self, trace: CheckpointTrace) -> None:
        self.traces.append(trace)
