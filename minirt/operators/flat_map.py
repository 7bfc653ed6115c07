"""`flat_map`: any number of records for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

from minirt.data.batch import Batch, Rows
from minirt.graph.operator_spec import Form, OperatorSpec, Site, StateDealing, function_name
from minirt.operators.common.base import Operator, OperatorContext
from minirt.operators.common.calling import Calling
from minirt.operators.common.functions import check_function
from minirt.operators.common.results import CHUNK_RECORDS, several


@dataclass(frozen=True, slots=True)
class FlatMapSpec(OperatorSpec):
    kind: ClassVar = "flat_map"
    inputs: ClassVar = 1
    state: ClassVar = StateDealing.NONE
    takes: ClassVar = Form.ROWS
    repeats: ClassVar = True

    function: Callable[[Any], Any]

    @property
    def subject(self) -> str | None:
        return function_name(self.function)

    def check(self, site: Site) -> None:
        check_function(
            self.function,
            site.label,
            "the record",
            may_yield=True,
            returns="a list of records, or yield them",
        )

    def build(self, ctx: OperatorContext) -> Operator:
        return FlatMapOperator(ctx, self.function)


@dataclass(frozen=True, slots=True)
class CoFlatMapSpec(OperatorSpec):
    """One function per input."""

    kind: ClassVar = "co_flat_map"
    inputs: ClassVar = 2
    state: ClassVar = StateDealing.NONE
    takes: ClassVar = Form.ROWS
    repeats: ClassVar = True

    left: Callable[[Any], Any]
    right: Callable[[Any], Any]

    def check(self, site: Site) -> None:
        check_function(
            self.left,
            site.label,
            "the left record",
            may_yield=True,
            returns="a list of records, or yield them",
        )
        check_function(
            self.right,
            site.label,
            "the right record",
            may_yield=True,
            returns="a list of records, or yield them",
        )

    def build(self, ctx: OperatorContext) -> Operator:
        return FlatMapOperator(ctx, self.left, self.right)


class FlatMapOperator(Operator):
    """Passes its output on in chunks, so that one record may become very many."""

    def __init__(self, ctx: OperatorContext, *functions: Any) -> None:
        super().__init__(ctx)
        self._functions = functions

    def process(self, batch: Batch, input_index: int) -> None:
        rows, function = batch.rows(), self._functions[input_index]
        with Calling(self.ctx.label):
            if rows.timestamps is None:
                self._flatten(rows.records, function)
            else:
                self._flatten_with_times(rows, function)

    def _flatten(self, records: list[Any], function: Any) -> None:
        take = self.ctx.custody.take
        produced = (take(result) for record in records for result in several(function(record)))
        while chunk := list(islice(produced, CHUNK_RECORDS)):
            self.ctx.emit(Rows(chunk))

    def _flatten_with_times(self, rows: Rows, function: Any) -> None:
        assert rows.timestamps is not None
        take = self.ctx.custody.take
        produced: Iterator[tuple[Any, int]] = (
            (take(result), time)
            for record, time in zip(rows.records, rows.timestamps, strict=True)
            for result in several(function(record))
        )
        while chunk := list(islice(produced, CHUNK_RECORDS)):
            self.ctx.emit(Rows([pair[0] for pair in chunk], [pair[1] for pair in chunk]))
