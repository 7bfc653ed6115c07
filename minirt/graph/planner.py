"""Turns the job graph into the execution graph: which operators run as one, which links remain."""

from __future__ import annotations

from collections import Counter

from minirt.graph.chaining import chain_break
from minirt.graph.execution import ExecutionGraph, Link, Vertex
from minirt.graph.job_graph import Edge, JobGraph, OperatorNode
from minirt.graph.validate import validate


def build_execution_graph(graph: JobGraph) -> ExecutionGraph:
    """The plan of a job: the same for the same graph, vertices in topological order.

    Raises ConfigurationError if the graph does not hold together.
    """
    validate(graph)
    chained = _chained_edges(graph)
    chains = _chains(graph, chained)
    vertices = tuple(_vertex(place, chain, chained) for place, chain in enumerate(chains))
    vertex_of = {node.uid: vertex.id for vertex in vertices for node in vertex.operators}
    places = {node.uid: place for chain in chains for place, node in enumerate(chain)}
    edges = [
        _link(graph, vertex_of, id, edge, places[edge.target])
        for id, edge in enumerate(sorted(graph.edges, key=lambda edge: edge.target in chained))
    ]
    return ExecutionGraph(
        name=graph.name,
        vertices=vertices,
        links=tuple(edge for edge in edges if not edge.target_place),
        calls=tuple(edge for edge in edges if edge.target_place),
    )


def _chained_edges(graph: JobGraph) -> dict[str, Edge]:
    """The edges that become function calls, by the operator that they lead to."""
    inputs = Counter(edge.target for edge in graph.edges)
    return {
        edge.target: edge
        for edge in graph.edges
        if chain_break(
            edge.partitioning,
            edge.tag,
            graph.operators[edge.source],
            graph.operators[edge.target],
            target_inputs=inputs[edge.target],
        )
        is None
    }


def _chains(graph: JobGraph, chained: dict[str, Edge]) -> list[list[OperatorNode]]:
    """The operators of every vertex: each with all that follows it in its branch right behind it.

    Operators come in topological order, and links lead to heads of chains only: so numbering the
    chains by their heads is a topological order as well.
    """
    consumers: dict[str, list[OperatorNode]] = {}
    for uid, edge in chained.items():
        consumers.setdefault(edge.source, []).append(graph.operators[uid])
    chains = []
    for uid, head in graph.operators.items():
        if uid in chained:
            continue
        chain, ahead = [], [head]
        while ahead:
            node = ahead.pop()
            chain.append(node)
            ahead += reversed(consumers.get(node.uid, []))
        chains.append(chain)
    return chains


def _vertex(place: int, chain: list[OperatorNode], chained: dict[str, Edge]) -> Vertex:
    # Only the head receives records by key, so it alone decides on the number of key groups.
    head, *others = chain
    places = {node.uid: place for place, node in enumerate(chain)}
    feeders = tuple(places[chained[node.uid].source] for node in others)
    return Vertex(place, tuple(chain), feeders, head.parallelism, head.max_parallelism)


def _link(
    graph: JobGraph, vertex_of: dict[str, int], id: int, edge: Edge, target_place: int
) -> Link:
    return Link(
        id=id,
        source=vertex_of[edge.source],
        source_uid=edge.source,
        target=vertex_of[edge.target],
        target_input=edge.target_input,
        partitioning=edge.partitioning,
        tag=edge.tag,
        senders=graph.operators[edge.source].parallelism,
        receivers=graph.operators[edge.target].parallelism,
        max_parallelism=graph.operators[edge.target].max_parallelism,
        target_place=target_place,
    )
