"""A job as it is, but for what the outside world would see of it."""

from __future__ import annotations

from dataclasses import replace

from minirt.graph.job_graph import JobGraph, OperatorNode
from minirt.operators.sink import SinkSpec
from minirt.testing.sink import TransactionalSink


def without_output(graph: JobGraph) -> JobGraph:
    """The job with sinks that keep in memory what they are given, for a rehearsal that leaves no trace."""

    def rehearsing(node: OperatorNode) -> OperatorNode:
        if not isinstance(node.spec, SinkSpec):
            return node
        return replace(node, spec=SinkSpec(TransactionalSink()))

    return replace(
        graph, operators={uid: rehearsing(node) for uid, node in graph.operators.items()}
    )
