"""`map`: one record for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from minirt.data.batch import Batch, Rows
from minirt.graph.operator_spec import Form, OperatorSpec, Site, StateDealing, function_name
from minirt.operators.common.base import Operator, OperatorContext
from minirt.operators.common.calling import Calling
from minirt.operators.common.functions import check_function


@dataclass(frozen=True, slots=True)
class MapSpec(OperatorSpec):
    kind: ClassVar = "map"
    inputs: ClassVar = 1
    state: ClassVar = StateDealing.NONE
    takes: ClassVar = Form.ROWS
    repeats: ClassVar = True

    function: Callable[[Any], Any]

    @property
    def subject(self) -> str | None:
        return function_name(self.function)

    def check(self, site: Site) -> None:
        check_function(self.function, site.label, "the record", returns="a record")

    def build(self, ctx: OperatorContext) -> Operator:
        return MapOperator(ctx, self.function)


@dataclass(frozen=True, slots=True)
class CoMapSpec(OperatorSpec):
    """One function per input."""

    kind: ClassVar = "co_map"
    inputs: ClassVar = 2
    state: ClassVar = StateDealing.NONE
    takes: ClassVar = Form.ROWS
    repeats: ClassVar = True

    left: Callable[[Any], Any]
    right: Callable[[Any], Any]

    def check(self, site: Site) -> None:
        check_function(self.left, site.label, "the left record", returns="a record")
        check_function(self.right, site.label, "the right record", returns="a record")

    def build(self, ctx: OperatorContext) -> Operator:
        return MapOperator(ctx, self.left, self.right)


class MapOperator(Operator):
    def __init__(self, ctx: OperatorContext, *functions: Any) -> None:
        super().__init__(ctx)
        self._functions = functions
        self._trusted = [ctx.custody.trusts(function) for function in functions]
        self._only_looks = all(map(ctx.custody.leaves_unchanged, functions)) and all(self._trusted)

    def process(self, batch: Batch, input_index: int) -> None:
        self.ctx.emit(self._mapped(batch, input_index))

    def process_shared(self, batch: Batch, copied: Callable[[Batch], Batch]) -> None:
        if self._only_looks:
            self.ctx.emit(copied(self._mapped(batch, 0)))
        else:
            super().process_shared(batch, copied)

    def _mapped(self, batch: Batch, input_index: int) -> Rows:
        rows, function, take = batch.rows(), self._functions[input_index], self.ctx.custody.take
        upcoming = iter(rows.records)
        with Calling(self.ctx.label):
            if self._trusted[input_index]:
                records = [function(record) for record in upcoming]
            else:
                records = [take(function(record)) for record in upcoming]
        return Rows(records, rows.timestamps)
