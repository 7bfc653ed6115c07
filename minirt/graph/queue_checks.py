"""Checks that the operators whose queues the options size have queues."""

from __future__ import annotations

import difflib

from minirt.config import Options
from minirt.errors import ConfigurationError
from minirt.graph.execution import ExecutionGraph
from minirt.graph.job_graph import OperatorNode


def check_queues(graph: ExecutionGraph, options: Options) -> list[OperatorNode]:
    """Raise ConfigurationError for queues before an operator that reads from no channel.

    Returns the operators whose queues have no effect at this parallelism of the job, but at others.
    """
    nodes = {node.uid: node for vertex in graph.vertices for node in vertex.operators}
    pairs = [
        (vertex.operators[feeder], node)
        for vertex in graph.vertices
        for feeder, node in zip(vertex.feeders, vertex.operators[1:], strict=True)
    ]
    for_now = {
        node.uid: node for before, node in pairs if before.own_parallelism != node.own_parallelism
    }
    readers = {graph.vertices[link.target].operators[0].uid for link in graph.links}
    for uid in options.queues:
        if uid in readers or uid in for_now:
            continue
        if uid not in nodes:
            near = difflib.get_close_matches(uid, readers, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigurationError(f"queues: the job has no operator with uid {uid!r}{hint}")
        raise ConfigurationError(
            f"queues of {uid} have no effect: {nodes[uid].label} reads from no channel; a source has none, "
            "and an operator that is chained gets them with chain=False"
        )
    return [for_now[uid] for uid in options.queues if uid in for_now]
