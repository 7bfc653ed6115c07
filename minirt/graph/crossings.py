"""Where records change from rows to columns and back, as far as a job tells without running."""

from __future__ import annotations

from enum import Enum

from minirt.graph.describe import kind_of
from minirt.graph.execution import ExecutionGraph, Link
from minirt.graph.job_graph import (
    LATE_TAG,
    AggregateSpec,
    Custom,
    FilterColumnsSpec,
    Hash,
    MapBatchesSpec,
    OperatorNode,
    ProjectSpec,
    SinkSpec,
    SourceSpec,
    WindowSpec,
)


class Form(Enum):
    ROWS = "rows"
    COLUMNS = "columns"


Forms = frozenset[Form]
"""In which forms records may come: both, where a union brings rows and columns together."""


class Crossings:
    """Follows the records of a job through its operators.

    A source gives columns if it knows its schema; of one that does not, rows are expected.
    """

    def __init__(self, execution: ExecutionGraph) -> None:
        self._execution = execution
        self._arriving: dict[str, Forms] = {}
        self._emitted: dict[str, Forms] = {}
        self._windows: set[str] = set()
        """Those that give out what is late, as columns."""
        for vertex in execution.vertices:
            links = execution.inputs_of(vertex.id)
            forms: Forms = frozenset().union(*(self._carried(link) for link in links))
            for node in vertex.operators:
                self._arriving[node.uid] = forms
                if isinstance(node.spec, WindowSpec):
                    self._windows.add(node.uid)
                forms = self._emitted[node.uid] = _emitted(node, forms)

    def at_operator(self, node: OperatorNode) -> str | None:
        """What the operator does to the form of its records, and why; None if nothing."""
        if isinstance(node.spec, SourceSpec):
            if node.schema is None or not _stamped_by_function(node.spec):
                return None
            return "columns become rows: a function takes the timestamp from each record"
        wanted, why = _wanted(node)
        turned = self._arriving[node.uid] - {wanted}
        if wanted is None or not turned:
            return None
        [form] = turned
        return f"{form.value} become {wanted.value}: {why}"

    def on_link(self, link: Link) -> str | None:
        """What the link does beside: columns that it carries stay columns."""
        match link.partitioning:
            case Hash(key) | Custom(_, key) if key.function is not None:
                if Form.COLUMNS in self._carried(link):
                    return "columns become rows for the key alone: it is found by a function"
        return None

    def _carried(self, link: Link) -> Forms:
        if link.tag == LATE_TAG and link.source_uid in self._windows:
            return frozenset({Form.COLUMNS})
        if link.tag is not None:
            return frozenset({Form.ROWS})
        return self._emitted[link.source_uid]


def _wanted(node: OperatorNode) -> tuple[Form | None, str]:
    """The form that an operator turns its records into, with the reason; None if it takes both."""
    match node.spec:
        case SinkSpec():
            return None, ""
        case FilterColumnsSpec() | ProjectSpec():
            return Form.COLUMNS, f"{kind_of(node.spec)} evaluates expressions on columns"
        case AggregateSpec() | WindowSpec():
            return Form.COLUMNS, f"{kind_of(node.spec)} computes on columns"
        case MapBatchesSpec(format="columns"):
            return Form.COLUMNS, "the function takes columns"
        case MapBatchesSpec():
            return Form.ROWS, "the function takes a list of records"
    return Form.ROWS, f"{kind_of(node.spec)} looks at each record"


def _emitted(node: OperatorNode, arriving: Forms) -> Forms:
    if isinstance(node.spec, SourceSpec):
        columns = node.schema is not None and not _stamped_by_function(node.spec)
        return frozenset({Form.COLUMNS if columns else Form.ROWS})
    wanted, _ = _wanted(node)
    return arriving if wanted is None else frozenset({wanted})


def _stamped_by_function(spec: SourceSpec) -> bool:
    return spec.watermarks is not None and callable(spec.watermarks.timestamp)
