"""The same job at another parallelism."""

from __future__ import annotations

from dataclasses import replace

from minirt.graph.job_graph import Edge, JobGraph, OperatorNode
from minirt.partitionings import default_partitioning


def following(graph: JobGraph) -> list[OperatorNode]:
    """The operators that have the parallelism of the job, as they state none of their own."""
    return [node for node in graph.operators.values() if not node.own_parallelism]


def at_parallelism(graph: JobGraph, parallelism: int) -> JobGraph:
    """The job as its program would have written it with this default parallelism.

    Operators that state their own keep it. It is not checked whether the job can be planned.
    """
    operators = {
        uid: node if node.own_parallelism else replace(node, parallelism=parallelism)
        for uid, node in graph.operators.items()
    }
    return replace(
        graph, operators=operators, edges=tuple(_edge(e, operators) for e in graph.edges)
    )


def _edge(edge: Edge, operators: dict[str, OperatorNode]) -> Edge:
    if not edge.defaulted:
        return edge
    senders, receivers = (operators[uid].parallelism for uid in (edge.source, edge.target))
    return replace(edge, partitioning=default_partitioning(senders, receivers))
