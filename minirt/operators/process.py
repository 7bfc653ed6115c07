"""`process` without keys: a user's process function."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from minirt.data.batch import Batch, Rows
from minirt.functions import Process
from minirt.graph.operator_spec import Form, OperatorSpec, Site, StateDealing, class_name
from minirt.operators.common.base import Operator, OperatorContext, user_error
from minirt.operators.common.checks import check_instance, check_methods
from minirt.operators.common.functions import check_stateless
from minirt.operators.common.results import (
    ContextOperator,
    Produced,
    emit_results,
    rows_with_times,
)


@dataclass(frozen=True, slots=True)
class ProcessSpec(OperatorSpec):
    kind: ClassVar = "process"
    inputs: ClassVar = 1
    state: ClassVar = StateDealing.NONE
    takes: ClassVar = Form.ROWS

    process: Process

    @property
    def subject(self) -> str | None:
        return class_name(self.process)

    @property
    def owned(self) -> object | None:
        return self.process

    def check(self, site: Site) -> None:
        check_instance(self.process, Process, site.label)
        check_methods(site.label, self.process, "process")
        check_stateless(self.process, site.label, "a Process")

    def side_output(self, tag: str, label: str) -> Form:
        return Form.ROWS

    def build(self, ctx: OperatorContext) -> Operator:
        return ProcessOperator(ctx, self.process)


class ProcessOperator(ContextOperator):
    """Runs a user's Process."""

    def __init__(self, ctx: OperatorContext, process: Process) -> None:
        super().__init__(ctx)
        self._process = process

    def open(self) -> None:
        self._process.open()

    def close(self) -> None:
        self._process.close()

    def process(self, batch: Batch, input_index: int) -> None:
        try:
            emit_results(self._results(batch.rows()), self.ctx)
        except Exception as error:
            raise user_error(self.ctx.label, error) from error

    def _results(self, rows: Rows) -> Iterator[Produced]:
        process = self._process.process
        for record, time in rows_with_times(rows):
            self.timestamp = time
            yield record, process(record, self), time
