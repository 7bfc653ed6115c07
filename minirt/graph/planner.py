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
    chains, vertex_of = _chains(graph, chained)
    vertices = tuple(_vertex(place, chain) for place, chain in enumerate(chains))
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
    consumers = Counter(edge.source for edge in graph.edges if edge.tag is None)
    return {
        edge.target: edge
        for edge in graph.edges
        if chain_break(
            edge.partitioning,
            edge.tag,
            graph.operators[edge.source],
            graph.operators[edge.target],
            target_inputs=inputs[edge.target],
            main_consumers=consumers[edge.source],
        )
        is None
    }


def _chains(
    graph: JobGraph, chained: dict[str, Edge]
) -> tuple[list[list[OperatorNode]], dict[str, int]]:
    """The operators of every vertex, and the vertex of every operator.

    Operators come in topological order, and links lead to heads of chains only: so numbering the
    chains by their heads is a topological order as well.
    """
    chains: list[list[OperatorNode]] = []
    vertex_of: dict[str, int] = {}
    for uid, node in graph.operators.items():
        if uid in chained:
            vertex_of[uid] = vertex_of[chained[uid].source]
            chains[vertex_of[uid]].append(node)
        else:
            vertex_of[uid] = len(chains)
            chains.append([node])
    return chains, vertex_of


def _vertex(place: int, chain: list[OperatorNode]) -> Vertex:
    # Only the head receives records by key, so it alone decides on the number of key groups.
    head = chain[0]
    return Vertex(place, tuple(chain), head.parallelism, head.max_parallelism)


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
