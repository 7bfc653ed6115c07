"""Which subtasks may come back alone, and what keeps the others from it."""

from __future__ import annotations

from collections.abc import Mapping

from minirt.graph.execution import ExecutionGraph, Vertex
from minirt.protocol.ids import SubtaskId


def why_not_alone(graph: ExecutionGraph, vertex: Vertex) -> str | None:
    """Why the whole job restarts if a subtask of this vertex is gone; None if it may come back alone."""
    if vertex.is_source:
        return "it reads a source"
    for link in graph.outputs_of(vertex.id):
        return f"it sends to vertex {link.target}, which has seen what it would do again"
    for node in vertex.operators:
        if node.to_all:
            return f"{node.label} reads the state of all subtasks"
        sink = node.spec.writes_to
        if sink is not None and not sink.opens_again:
            return f"{node.label} cannot open a writer twice in a generation"
    return None


def alone_by_worker(
    graph: ExecutionGraph, placement: Mapping[SubtaskId, int]
) -> dict[int, frozenset[SubtaskId]]:
    """The workers that may come back alone, with their subtasks: all of these may."""
    alone = {vertex.id for vertex in graph.vertices if why_not_alone(graph, vertex) is None}
    return {
        worker: frozenset(subtasks)
        for worker, subtasks in hosted(placement).items()
        if all(subtask.vertex in alone for subtask in subtasks)
    }


def hosted(placement: Mapping[SubtaskId, int]) -> dict[int, list[SubtaskId]]:
    """The subtasks of each worker."""
    subtasks: dict[int, list[SubtaskId]] = {}
    for subtask, worker in placement.items():
        subtasks.setdefault(worker, []).append(subtask)
    return subtasks
