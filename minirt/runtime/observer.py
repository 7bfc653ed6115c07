"""How a job can be watched while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minirt.graph.execution import SubtaskId
from minirt.protocol.job_events import JobStatus
from minirt.runtime.metrics import SubtaskMetrics


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The newest figures of all subtasks, and the processes they run in."""

    metrics: Mapping[SubtaskId, SubtaskMetrics]
    names: Mapping[SubtaskId, str]
    pids: Mapping[SubtaskId, int]


class JobObserver:
    """Override what you want to hear of. Called from the coordinator's thread: return quickly."""

    def on_status(self, status: JobStatus, generation: int) -> None:
        """The job has entered another stage of its life."""

    def on_checkpoint(self, entry: Mapping[str, Any]) -> None:
        """A checkpoint has completed or failed; `entry` is what the history remembers of it."""

    def on_restart(self, error: Exception, delay_s: float) -> None:
        """The job will be restarted after this many seconds because of `error`."""

    def on_end(self, status: JobStatus, error: Exception | None) -> None:
        """The job has ended; `error` says why it failed."""

    def on_progress(self, progress: JobProgress) -> None:
        """New figures have come in, several times a second."""
