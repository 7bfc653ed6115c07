"""`map_batches`: a batch for each, as a list of records or as columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyarrow as pa

from minirt.data.batch import Batch, Columns, Rows
from minirt.errors import ConfigurationError, UserCodeError
from minirt.graph.operator_spec import (
    Form,
    Gathering,
    OperatorSpec,
    Site,
    StateDealing,
    function_name,
)
from minirt.operators.common.base import Operator, OperatorContext
from minirt.operators.common.calling import Calling
from minirt.operators.common.columns import check_names, to_columns
from minirt.operators.common.functions import check_function
from minirt.units import positive

BATCH_SIZE_MAX = 1 << 20
"""How many records are gathered at most."""


@dataclass(frozen=True, slots=True)
class MapBatchesSpec(OperatorSpec):
    """`function` maps a list to a list, or with format "columns" a RecordBatch to a RecordBatch.

    With `size` it gets so many records, or what there is `wait_s` seconds after the first of them.
    """

    kind: ClassVar = "map_batches"
    inputs: ClassVar = 1
    state: ClassVar = StateDealing.NONE

    function: Callable[[Any], Any]
    format: Literal["rows", "columns"] = "rows"
    size: int | None = None
    wait_s: float = 0.0

    @property
    def takes(self) -> Form:
        return Form.COLUMNS if self.format == "columns" else Form.ROWS

    @property
    def reason(self) -> str:
        return (
            f"the function takes {'columns' if self.format == 'columns' else 'a list of records'}"
        )

    @property
    def subject(self) -> str | None:
        return function_name(self.function)

    def check(self, site: Site) -> None:
        if self.format not in ("rows", "columns"):
            raise ConfigurationError(
                f'{site.label}: format must be "rows" or "columns", got {self.format!r}'
            )
        check_function(self.function, site.label, "the batch", returns="a batch")
        if self.size is None:
            if self.wait_s:
                raise ConfigurationError(f"{site.label}: wait has no effect without size")
            return
        if positive(f"{site.label}: size", self.size) > BATCH_SIZE_MAX:
            raise ConfigurationError(
                f"{site.label}: size is at most {BATCH_SIZE_MAX}, got {self.size}"
            )
        if self.size == 1 and self.wait_s:
            raise ConfigurationError(
                f"{site.label}: wait has no effect with size=1: one record is there"
            )

    @property
    def repeats_batches(self) -> bool:
        """Batches of a size of its own also depend on how long records have waited."""
        return self.size is None

    @property
    def gathers(self) -> Gathering | None:
        return None if self.size is None else Gathering(self.size, self.wait_s, whole=True)

    def build(self, ctx: OperatorContext) -> Operator:
        return MapBatchesOperator(ctx, self.function, self.format)


class MapBatchesOperator(Operator):
    """Results take over the timestamps of their batch one by one, or all its newest one."""

    def __init__(self, ctx: OperatorContext, function: Any, format: str) -> None:
        super().__init__(ctx)
        self._function = function
        self._trusted = ctx.custody.trusts(function)
        self._columns = format == "columns"

    def process(self, batch: Batch, input_index: int) -> None:
        if not len(batch):
            return
        if self._columns:
            self._process_columns(batch)
            return
        rows = batch.rows()
        with Calling(self.ctx.label, otherwise=rows):
            results = self._function(rows.records)
        if not isinstance(results, list):
            raise UserCodeError(
                f"operator {self.ctx.label}: map_batches must return a list, not "
                f"{type(results).__name__}"
            )
        times = rows.timestamps
        if times is not None and len(results) != len(times):
            times = [max(times)] * len(results)
        if results:
            self.ctx.emit(Rows(self.ctx.custody.take_all(results), times))

    def _process_columns(self, batch: Batch) -> None:
        columns = to_columns(batch, self.ctx.label)
        with Calling(self.ctx.label, otherwise=columns):
            table = self._function(columns.table)
        if not isinstance(table, pa.RecordBatch):
            raise UserCodeError(
                f"operator {self.ctx.label}: map_batches must return a pyarrow.RecordBatch, not "
                f"{type(table).__name__}"
            )
        try:
            check_names(table)
        except ValueError as error:
            raise UserCodeError(f"operator {self.ctx.label}: map_batches: {error}") from error
        times = columns.timestamps
        if times is not None and table.num_rows != len(times):
            times = times.max().repeat(table.num_rows)
        if table.num_rows:
            own = table if self._trusted else self.ctx.custody.take_columns(table)
            self.ctx.emit(Columns(own, times))
