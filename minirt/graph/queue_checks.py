"""Checks that the operators whose queues the options size have queues."""

from __future__ import annotations

import difflib

from minirt.config import Options
from minirt.errors import ConfigurationError
from minirt.graph.execution import ExecutionGraph, Vertex
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
    readers = {
        vertex.operators[0].uid: vertex
        for vertex in (graph.vertices[link.target] for link in graph.links)
    }
    for uid, queues in options.queues.items():
        if uid in readers or uid in for_now:
            if queues.debloat == "off" and not _debloated(readers.get(uid), options):
                raise ConfigurationError(
                    f'queues of {uid}: debloat="off" has no effect: neither the job debloats them nor an '
                    "operator that they lead to"
                )
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


def _debloated(reader: Vertex | None, options: Options) -> bool:
    """Whether the queues before a vertex would be, without options of their own; None: nobody knows yet."""
    return reader is None or reader.queue_s is not None or options.debloat is not None
