"""Where records change from rows to columns and back, as far as a job tells without running."""

from __future__ import annotations

from minirt.graph.execution import ExecutionGraph, Link
from minirt.graph.job_graph import OperatorNode
from minirt.graph.operator_spec import Forms


class Crossings:
    """Follows the records of a job through its operators.

    A source gives columns if it knows its schema; of one that does not, rows are expected.
    """

    def __init__(self, execution: ExecutionGraph) -> None:
        self._nodes = {node.uid: node for vertex in execution.vertices for node in vertex.operators}
        self._arriving: dict[str, Forms] = {}
        self._emitted: dict[str, Forms] = {}
        for vertex in execution.vertices:
            links = execution.inputs_of(vertex.id)
            forms: Forms = frozenset().union(*(self._carried(link) for link in links))
            for node in vertex.operators:
                self._arriving[node.uid] = forms
                forms = self._emitted[node.uid] = node.spec.gives(forms, node.schema)

    def at_operator(self, node: OperatorNode) -> str | None:
        """How the operator changes the form of its records, and why; None if it does not."""
        return node.spec.crossing(self._arriving[node.uid], node.schema)

    def on_link(self, link: Link) -> str | None:
        """How the link changes the form of its records; columns that it carries stay columns."""
        return link.partitioning.crossing(self._carried(link))

    def _carried(self, link: Link) -> Forms:
        if link.tag is None:
            return self._emitted[link.source_uid]
        node = self._nodes[link.source_uid]
        return {node.spec.side_output(link.tag, node.label)}
