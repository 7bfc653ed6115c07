"""Which subtasks may come back alone, and what keeps the others from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from minirt.graph.execution import ExecutionGraph, Link, Vertex
from minirt.protocol.ids import SubtaskId
from minirt.protocol.restarts import Scope
from minirt.protocol.topology import InFlight


def why_not_alone(graph: ExecutionGraph, vertex: Vertex, scope: Scope) -> str | None:
    """Why the whole job restarts if a subtask of this vertex is gone; None if it may come back alone."""
    if vertex.is_source:
        return "it reads a source"
    for link in graph.outputs_of(vertex.id):
        if scope != "replay":
            return f"it sends to vertex {link.target}, which has seen what it would do again"
        if why := _why_not_again(graph, vertex, link):
            return f"{why}, and vertex {link.target} has seen what it did"
    for node in vertex.operators:
        if node.to_all:
            return f"{node.label} reads the state of all subtasks"
        sink = node.spec.writes_to
        if sink is not None and not sink.opens_again:
            return f"{node.label} cannot open a writer twice in a generation"
    return None


def _why_not_again(graph: ExecutionGraph, vertex: Vertex, output: Link) -> str | None:
    """Why what goes through this link may be other records, or the same in another order, if the vertex
    does it again."""
    for node in vertex.operators:
        if not node.spec.repeats_batches:
            return f"{node.label} may do it otherwise the second time"
    by_record = output.partitioning.in_flight in (InFlight.DEALT_AGAIN, InFlight.ONE_COPY)
    if not by_record and any(len(output.receivers_of(i)) > 1 for i in range(output.senders)):
        return "it deals records out in turn"
    return None


def keeps_order(graph: ExecutionGraph, vertex: Vertex) -> bool:
    """Whether what its subtasks send depends on the order in which they read their channels, on how records
    are cut into batches, or on the clock, so that they have to log it to do it again."""
    fan_in = Counter(id.receiver for link in graph.inputs_of(vertex.id) for id in link.channels())
    by_order = max(fan_in.values(), default=0) > 1
    by_batches = any(not node.spec.repeats for node in vertex.operators)
    return bool(graph.outputs_of(vertex.id)) and (by_order or by_batches or keeps_clock(vertex))


def keeps_clock(vertex: Vertex) -> bool:
    """Whether what its subtasks send depends on the clock, so that they have to log what that shows."""
    return any(node.spec.by_clock for node in vertex.operators)


def alone_by_worker(
    graph: ExecutionGraph, placement: Mapping[SubtaskId, int], scope: Scope
) -> dict[int, frozenset[SubtaskId]]:
    """The workers that may come back alone, with their subtasks: all of these may.

    None of them receives from another one: nobody would have seen how far that was.
    """
    if scope == "job":
        return {}
    alone = {vertex.id for vertex in graph.vertices if why_not_alone(graph, vertex, scope) is None}
    inner = {
        placement[SubtaskId(link.source, id.sender)]
        for link in graph.links
        for id in link.channels()
        if placement[SubtaskId(link.source, id.sender)]
        == placement[SubtaskId(link.target, id.receiver)]
    }
    return {
        worker: frozenset(subtasks)
        for worker, subtasks in hosted(placement).items()
        if worker not in inner and all(subtask.vertex in alone for subtask in subtasks)
    }


def hosted(placement: Mapping[SubtaskId, int]) -> dict[int, list[SubtaskId]]:
    """The subtasks of each worker."""
    subtasks: dict[int, list[SubtaskId]] = {}
    for subtask, worker in placement.items():
        subtasks.setdefault(worker, []).append(subtask)
    return subtasks
