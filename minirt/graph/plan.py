"""The plan of a job as users get it: text, and a drawing in notebooks."""

from __future__ import annotations

from html import escape

from minirt.graph.drawing import draw
from minirt.graph.execution import ExecutionGraph
from minirt.graph.explain import explain


class Plan(str):
    """The text of a plan; a notebook shows the graph above it."""

    _drawing: str

    def __new__(
        cls, execution: ExecutionGraph, mode: str | None = None, *, comebacks: bool = False
    ) -> Plan:
        plan = super().__new__(cls, explain(execution, mode, comebacks=comebacks))
        plan._drawing = draw(execution)
        return plan

    def _repr_html_(self) -> str:
        text = f"<details><summary>plan</summary><pre>{escape(self)}</pre></details>"
        return f"<div>{self._drawing}{text}</div>"
