"""Where records change from rows to columns and back, as far as a job tells without running."""

from __future__ import annotations

from minirt.graph.execution import ExecutionGraph, Link
from minirt.graph.job_graph import OperatorNode
from minirt.graph.keys import KeySelector
from minirt.graph.operator_spec import Form, Forms


class Crossings:
    """Follows the records of a job through its operators.

    A source gives columns if it knows its schema; of one that does not, rows are expected.
    """

    def __init__(self, execution: ExecutionGraph) -> None:
        self._links = execution.links
        self._nodes = {node.uid: node for vertex in execution.vertices for node in vertex.operators}
        self._arriving: dict[str, Forms] = {}
        self._emitted: dict[str, Forms] = {}
        for vertex in execution.vertices:
            links = execution.inputs_of(vertex.id)
            forms: Forms = frozenset().union(*(self._carried(link) for link in links))
            for place, node in enumerate(vertex.operators):
                if place:
                    forms = self._emitted[vertex.operators[vertex.feeders[place - 1]].uid]
                self._arriving[node.uid] = forms
                self._emitted[node.uid] = node.spec.gives(forms, node.schema)

    def at_operator(self, node: OperatorNode) -> str | None:
        """How the operator changes the form of its records, and why; None if it does not."""
        return node.spec.crossing(self._arriving[node.uid], node.schema)

    def on_link(self, link: Link) -> str | None:
        """How the link changes the form of its records; columns that it carries stay columns."""
        return link.partitioning.crossing(self._carried(link))

    def hashes_columns(self) -> bool:
        """Whether keys are hashed in columns: by links that carry them, or operators that take them."""
        by_columns = (node for node in self._nodes.values() if any(map(_names_columns, node.keys)))
        return any(node.spec.takes is Form.COLUMNS for node in by_columns) or any(
            Form.COLUMNS in self._carried(link)
            for link in self._links
            if _names_columns(link.partitioning.key)
        )

    def _carried(self, link: Link) -> Forms:
        if link.tag is None:
            return self._emitted[link.source_uid]
        node = self._nodes[link.source_uid]
        return {node.spec.side_output(link.tag, node.label)}


def _names_columns(key: KeySelector | None) -> bool:
    return key is not None and bool(key.columns)
