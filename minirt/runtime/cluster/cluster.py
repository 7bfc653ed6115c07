"""What the coordinator asks of the place where subtasks run, whatever place that is."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from minirt.graph.execution import ExecutionGraph, Vertex
from minirt.monitoring.log_lines import LogLine
from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.protocol.ids import SubtaskId
from minirt.protocol.job_events import StopWorkers
from minirt.protocol.restart_commands import KeepFor
from minirt.protocol.slots import AwaitSlots
from minirt.protocol.subtask_commands import SubtaskCommand
from minirt.runtime.control.messages import JobOver
from minirt.runtime.control.package import Deployment


class Cluster(Protocol):
    """Where the subtasks of a job run. What becomes of them comes back to the coordinator as events."""

    def deploy(self, deployment: Deployment) -> None:
        """Start all subtasks of a generation."""

    def send(self, command: SubtaskCommand) -> None:
        """Hand a command to the subtasks that it is for, unless their generation is over."""

    def stop(self, command: StopWorkers) -> None:
        """End all subtasks of a generation."""


class BringsBack(Protocol):
    """A cluster that can start one worker again while all others go on."""

    def keep_for(self, command: KeepFor) -> None:
        """Have the others keep what they send to a worker that is gone."""

    def bring_back(self, worker: int, deployment: Deployment) -> None:
        """Start it again, and have the others send it what it needs."""


class WorkerCluster(Cluster, BringsBack, Protocol):
    """A cluster of processes that work by themselves; the coordinator waits for what they say.

    All is to be called in one thread, but for `wake`; any thread may read `pids`, `metrics`,
    `placement` and `names`.
    """

    logs: deque[LogLine]
    """What workers have logged, until somebody has taken it; bounded."""
    placement: Mapping[SubtaskId, int]
    """The worker of each subtask; another mapping takes its place when the job is rescaled."""
    names: Mapping[SubtaskId, str]
    """What each subtask is called; likewise."""
    figures_changed: bool
    """Set when a worker has reported its figures; the coordinator resets it."""

    @property
    def pids(self) -> Mapping[int, int]:
        """The process of each worker that is up."""

    @property
    def metrics(self) -> Mapping[SubtaskId, SubtaskMetrics]:
        """The newest figures that each subtask has reported."""

    def await_slots(self, command: AwaitSlots) -> None:
        """Post `SlotsAwaited` once the hosts that are there are enough, or the time is over."""

    def poll(self, timeout: float | None) -> None:
        """Wait for messages, at most `timeout` seconds, and post what they mean."""

    def wake(self) -> None:
        """Let `poll` return at once; may be called from any thread, also when all is closed."""

    def close(self, timeout: float, last_word: JobOver | None) -> None:
        """Wait so many seconds for workers that were told to stop, then end whatever is left.

        `last_word` is what agents are told; None if another program may take the job over, or has.
        """


class Receivers:
    """The workers that get a command. They are found once, so that no barrier waits for that."""

    def __init__(self, graph: ExecutionGraph, placement: Mapping[SubtaskId, int]) -> None:
        sources = [vertex for vertex in graph.vertices if vertex.is_source]
        self._of_sources = _workers_of(sources, placement)
        self._of_all = _workers_of(graph.vertices, placement)

    def of(self, command: SubtaskCommand) -> Sequence[int]:
        """The workers that host any subtask to which it goes."""
        return self._of_sources if command.to_sources else self._of_all


def _workers_of(vertices: Iterable[Vertex], placement: Mapping[SubtaskId, int]) -> list[int]:
    return sorted({placement[id] for vertex in vertices for id in vertex.subtasks()})
