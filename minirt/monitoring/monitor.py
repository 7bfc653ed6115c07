"""The newest figures of a job, gathered from what its coordinator hears."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from minirt.clock import SYSTEM_CLOCK
from minirt.graph.execution import ExecutionGraph
from minirt.monitoring.causes import shortened
from minirt.monitoring.figures import (
    CheckpointFigures,
    CheckpointPart,
    JobFigures,
    RateMeter,
    SubtaskFigures,
)
from minirt.monitoring.log_lines import LogBook, LogLine
from minirt.protocol.giving_up import GivenUpOutput
from minirt.protocol.ids import SubtaskId
from minirt.protocol.job_events import JobStatus
from minirt.protocol.reports import CheckpointReport, CheckpointUnderWay
from minirt.runtime.coordinator.observer import JobObserver, JobProgress

RESTARTS_MAX = 20
"""How many restarts are remembered with their errors, the newest."""
RESTART_TEXT_MAX = 8000
"""How many characters of an error are remembered."""


@dataclass(frozen=True, slots=True)
class RestartRecord:
    """A generation that failed, and was followed by another one. `at` is in seconds since 1970."""

    at: float
    generation: int
    delay_s: float
    cause: str
    """The error as it was raised, with the traceback of user code, shortened."""


class JobMonitor(JobObserver):
    """Hears of everything in the coordinator's thread; `figures` may be called from any.

    Its size does not grow with the time that the job runs. It replaces each attribute as a whole, so that
    nobody sees half of a change.
    """

    def __init__(
        self,
        graph: ExecutionGraph,
        now: Callable[[], float] = SYSTEM_CLOCK.now,
        latency_interval_s: float | None = None,
    ) -> None:
        self._latency_interval_s = latency_interval_s
        self._name = graph.name
        self.take_shape(graph)
        self._now = now
        self._started_at = now()
        self._status = JobStatus.CREATED
        self._generation = 0
        self._restarts = self._comebacks = self._given_up = 0
        self._last_failure: str | None = None
        self._restart_records: deque[RestartRecord] = deque(maxlen=RESTARTS_MAX)
        self._checkpoint_figures = CheckpointFigures()
        self._under_way: tuple[CheckpointUnderWay, ...] = ()
        self._parts: Mapping[SubtaskId, CheckpointPart] = {}
        self._meters: dict[SubtaskId, RateMeter] = {}
        self._subtasks: tuple[SubtaskFigures, ...] = ()
        self.log_book = LogBook()
        """The newest messages of workers."""

    def take_shape(self, graph: ExecutionGraph) -> None:
        """The job is planned like this from now on.

        May be called from another thread, between two generations.
        """
        self._heads = {
            id: (vertex.operators[0].uid, vertex.name)
            for vertex in graph.vertices
            for id in vertex.subtasks()
        }

    def on_status(self, status: JobStatus, generation: int) -> None:
        if generation != self._generation:
            self._meters, self._subtasks = {}, ()
        self._status, self._generation = status, generation

    def on_checkpoint(self, report: CheckpointReport) -> None:
        self._checkpoint_figures = self._checkpoint_figures.after(report)
        if report.completed:
            self._parts = {
                SubtaskId(part.vertex, part.subtask): CheckpointPart.of(part)
                for part in report.subtasks
            }

    def on_checkpoints_under_way(self, checkpoints: Sequence[CheckpointUnderWay]) -> None:
        self._under_way = tuple(checkpoints)

    def on_logs(self, lines: Sequence[LogLine]) -> None:
        self.log_book.add(lines)

    def on_restart(self, error: Exception, delay_s: float) -> None:
        self._restarts += 1
        self._last_failure = str(error)
        cause = shortened(self._last_failure, RESTART_TEXT_MAX)
        self._restart_records.append(RestartRecord(self._now(), self._generation, delay_s, cause))

    def on_comeback(self, error: Exception, delay_s: float) -> None:
        self._comebacks += 1
        self._last_failure = str(error)

    def on_output_given_up(self, given_up: GivenUpOutput) -> None:
        self._given_up = given_up.outputs  # A restart that restores it again drops nothing more.

    def on_progress(self, progress: JobProgress) -> None:
        subtasks, heads = [], self._heads
        for id in sorted(progress.metrics.keys() & heads.keys()):
            meter = self._meters.setdefault(id, RateMeter())
            meter.update(progress.metrics[id])
            operator, name = heads[id]
            subtasks.append(
                SubtaskFigures(
                    operator,
                    name,
                    id.index,
                    progress.pids.get(id),
                    progress.metrics[id],
                    meter.rates,
                    self._parts.get(id),
                    meter.latency,
                )
            )
        self._subtasks = tuple(subtasks)

    @property
    def restart_records(self) -> tuple[RestartRecord, ...]:
        """The newest restarts, oldest first."""
        return tuple(self._restart_records)

    @property
    def under_way(self) -> tuple[CheckpointUnderWay, ...]:
        """The checkpoints that are being taken, with the parts that have come."""
        return self._under_way

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
            replace(self._checkpoint_figures, under_way=self._under_way),
            self._subtasks,
            self._comebacks,
            self._latency_interval_s,
            self._given_up,
        )
