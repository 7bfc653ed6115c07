"""The newest figures of a job, gathered from what its coordinator hears."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from minirt.graph.execution import ExecutionGraph, SubtaskId
from minirt.monitoring.figures import CheckpointFigures, JobFigures, RateMeter, SubtaskFigures
from minirt.protocol.job_events import JobStatus
from minirt.runtime.observer import JobObserver, JobProgress


class JobMonitor(JobObserver):
    """Hears of everything in the coordinator's thread; `figures` may be called from any.

    What it holds does not grow with the time that the job runs. Each attribute is replaced as a whole,
    so that nobody sees half of a change.
    """

    def __init__(self, graph: ExecutionGraph, now: Callable[[], float] = time.time) -> None:
        self._name = graph.name
        self._heads = {
            id: (vertex.operators[0].uid, vertex.name)
            for vertex in graph.vertices
            for id in vertex.subtasks()
        }
        self._now = now
        self._started_at = now()
        self._status = JobStatus.CREATED
        self._generation = 0
        self._restarts = 0
        self._last_failure: str | None = None
        self._checkpoints = CheckpointFigures()
        self._stored_after_s: Mapping[SubtaskId, float] = {}
        self._meters: dict[SubtaskId, RateMeter] = {}
        self._subtasks: tuple[SubtaskFigures, ...] = ()

    def on_status(self, status: JobStatus, generation: int) -> None:
        if generation != self._generation:
            self._meters, self._subtasks = {}, ()
        self._status, self._generation = status, generation

    def on_checkpoint(self, entry: Mapping[str, Any]) -> None:
        self._checkpoints = self._checkpoints.after(entry)
        if entry["status"] == "completed":
            self._stored_after_s = {
                SubtaskId(part["vertex"], part["subtask"]): part["acknowledged_after_s"]
                for part in entry["subtasks"]
            }

    def on_restart(self, error: Exception, delay_s: float) -> None:
        self._restarts += 1
        self._last_failure = str(error)

    def on_progress(self, progress: JobProgress) -> None:
        subtasks = []
        for id in sorted(progress.metrics):
            meter = self._meters.setdefault(id, RateMeter())
            meter.update(progress.metrics[id])
            operator, name = self._heads[id]
            subtasks.append(
                SubtaskFigures(
                    operator,
                    name,
                    id.index,
                    progress.pids.get(id),
                    progress.metrics[id],
                    meter.rates,
                    self._stored_after_s.get(id),
                )
            )
        self._subtasks = tuple(subtasks)

    def figures(self) -> JobFigures:
        """The job as it was heard of last."""
        return JobFigures(
            self._name,
            self._status,
            self._generation,
            self._restarts,
            self._started_at,
            self._now(),
            self._last_failure,
            self._checkpoints,
            self._subtasks,
        )
