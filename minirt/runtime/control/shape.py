"""A job at one parallelism: how it is planned, and which worker runs which subtask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from minirt import by_value
from minirt.errors import ConfigurationError
from minirt.graph.execution import ExecutionGraph
from minirt.protocol.ids import SubtaskId


@dataclass(frozen=True, slots=True)
class Shape:
    """`pickled` is the graph as workers get it."""

    graph: ExecutionGraph
    placement: Mapping[SubtaskId, int]
    pickled: bytes

    @classmethod
    def of(cls, graph: ExecutionGraph, placement: Mapping[SubtaskId, int]) -> Shape:
        """Raises ConfigurationError if the job cannot be sent to workers."""
        return cls(graph, placement, pickled_graph(graph))


def pickled_graph(graph: ExecutionGraph) -> bytes:
    """Raises ConfigurationError."""
    try:
        pickled: bytes = by_value.dumps(graph)
    except Exception as error:
        raise ConfigurationError(f"the job cannot be sent to workers: {error}") from error
    return pickled
