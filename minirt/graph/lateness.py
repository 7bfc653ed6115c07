"""Finds windows whose allowed lateness has no effect, since an operator before them finds records late."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from minirt.graph.execution import ExecutionGraph
from minirt.graph.job_graph import OperatorNode


def lost_lateness(execution: ExecutionGraph) -> Mapping[str, str]:
    """By the uid of a window: what comes late for an operator before it, in words."""
    nodes = {node.uid: node for vertex in execution.vertices for node in vertex.operators}
    before: dict[str, list[str]] = defaultdict(list)
    for link in (*execution.links, *execution.calls):
        if link.tag is None:
            target = execution.vertices[link.target].operators[link.target_place]
            before[target.uid].append(link.source_uid)
    found = {}
    for uid, node in nodes.items():
        allowed_ms = node.spec.late_after_ms
        if not allowed_ms:
            continue
        for earlier in _all_before(uid, before):
            late_after_ms = nodes[earlier].spec.late_after_ms
            if late_after_ms is not None and late_after_ms < allowed_ms:
                found[uid] = _words(node, nodes[earlier], allowed_ms, late_after_ms)
                break
    return found


def _all_before(uid: str, before: Mapping[str, list[str]]) -> list[str]:
    found: list[str] = []
    waiting = [*before.get(uid, ())]
    while waiting:
        one = waiting.pop(0)
        if one not in found:
            found.append(one)
            waiting += before.get(one, ())
    return found


def _words(node: OperatorNode, earlier: OperatorNode, allowed_ms: int, late_after_ms: int) -> str:
    bound = f"by more than {late_after_ms / 1000:g} s" if late_after_ms else "at all"
    way_out = ""
    if earlier.spec.takes_lateness:
        way_out = (
            f"; give it allowed_lateness={allowed_ms / 1000:g}, and the length of a window more"
        )
    return (
        f"the allowed lateness of {allowed_ms / 1000:g} s has less effect than it says: records that come "
        f"behind the watermark {bound} are late for {earlier.label} before {node.label}, and go to its "
        f"side output 'late'{way_out}"
    )
