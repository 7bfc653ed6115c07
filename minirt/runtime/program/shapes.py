"""How a job is planned and placed: once for its whole life, or anew whenever its slots have changed."""

from __future__ import annotations

import os
from collections.abc import Callable

from minirt.config import Options
from minirt.errors import ConfigurationError
from minirt.graph.execution import ExecutionGraph
from minirt.graph.job_graph import JobGraph
from minirt.graph.parallelism import at_parallelism, following
from minirt.graph.planner import build_execution_graph
from minirt.graph.validate import validate
from minirt.modes import check_edges
from minirt.monitoring.logs import logger_of
from minirt.protocol.barriers import CheckpointMode
from minirt.protocol.ids import SubtaskId
from minirt.protocol.reactive import ReactiveSettings
from minirt.run_settings import RunSettings
from minirt.runtime.control.shape import Shape
from minirt.units import seconds
from minirt.wording import named

logger = logger_of("job")


def place(
    graph: ExecutionGraph, options: Options, cores: int | None = None
) -> dict[SubtaskId, int]:
    """Which worker runs which subtask.

    `cores` is how many there are if all workers run on this machine: where subtasks share workers, more of
    these would only send more records between processes.
    """
    if options.placement == "subtask":
        return {id: worker for worker, id in enumerate(graph.subtasks())}
    widest = max(vertex.parallelism for vertex in graph.vertices)
    workers = min(options.workers or cores or widest, widest)
    if options.workers is not None and workers < options.workers:
        logger.warning(
            "job %r has %s instead of %d: its highest parallelism is %d",
            graph.name,
            "1 worker" if workers == 1 else f"{workers} workers",
            options.workers,
            widest,
        )
    return {id: id.index % workers for id in graph.subtasks()}


def usable_cores() -> int:
    """How many cores of this machine this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Shapes:
    """Plans a job whose parallelism follows its slots. Called by the thread that prepares generations."""

    def __init__(self, graph: JobGraph, options: Options, mode: CheckpointMode) -> None:
        self._graph = graph
        self._options = options
        self._mode = mode
        self._known: dict[int, Shape] = {}
        self._taken: int | None = None
        self.on_taken: list[Callable[[ExecutionGraph], object]] = []
        """Who hears how the job is planned from now on."""

    def at(self, parallelism: int) -> Shape:
        """The job at this parallelism. Raises ConfigurationError if it cannot be planned so."""
        if parallelism not in self._known:
            planned = build_execution_graph(at_parallelism(self._graph, parallelism))
            check_edges(self._mode, planned.topology)
            self._known = {parallelism: Shape.of(planned, place(planned, self._options))}
        shape = self._known[parallelism]
        if parallelism != self._taken:
            logger.info("job %r has parallelism %d", self._graph.name, parallelism)
            self._taken = parallelism
            for hear in self.on_taken:
                hear(shape.graph)
        return shape


def reactive_settings(graph: JobGraph, settings: RunSettings) -> ReactiveSettings | None:
    """What the parallelism may be; None if it stays what it is.

    Raises ConfigurationError if it could not follow the slots.
    """
    cluster = settings.cluster
    if cluster is None or cluster.reactive is None:
        return None
    reactive, nodes = cluster.reactive, following(graph)
    if not nodes:
        raise ConfigurationError(
            "reactive has no effect: all operators of the job state their own parallelism"
        )
    if settings.checkpointing is None:
        raise ConfigurationError(
            f"reactive needs {named('checkpointing')}: at another parallelism a job goes on from a "
            "checkpoint"
        )
    if settings.options.workers is not None:
        raise ConfigurationError(
            f"{named('options.workers')} has no effect with reactive: the slots say how many there "
            "are"
        )
    wanted = nodes[0].parallelism
    most = min(node.max_parallelism for node in nodes)
    if reactive.max_slots is not None:
        if reactive.max_slots < wanted:
            raise ConfigurationError(
                f"reactive: max_slots={reactive.max_slots} is less than the parallelism of the job, "
                f"{wanted}"
            )
        most = min(most, reactive.max_slots)
    least = cluster.min_slots or 1
    other = wanted + 1 if wanted < most else wanted - 1
    if other < least:
        raise ConfigurationError(f"reactive has no effect: the parallelism can only be {wanted}")
    try:
        validate(at_parallelism(graph, other))
    except ConfigurationError as error:
        raise ConfigurationError(
            f"reactive: the job cannot have another parallelism, such as {other}: {error}"
        ) from error
    return ReactiveSettings(
        *(wanted, least, most),
        *(seconds(reactive.settle), seconds(reactive.patience)),
        *(reactive.rescales, seconds(reactive.per)),
    )
