"""`filter`: the records for which a function of the record, or an expression of columns, is true."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import compress
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from minirt.data.batch import Batch, Rows
from minirt.data.expressions import Conditions, ExpressionError, without_records
from minirt.errors import ConfigurationError
from minirt.graph.operator_spec import Form, OperatorSpec, Site, StateDealing, function_name
from minirt.operators.common.base import Operator, OperatorContext
from minirt.operators.common.calling import Calling
from minirt.operators.common.columns import expression_failed, laid_columns
from minirt.operators.common.functions import check_function


@dataclass(frozen=True, slots=True)
class FilterSpec(OperatorSpec):
    kind: ClassVar = "filter"
    inputs: ClassVar = 1
    state: ClassVar = StateDealing.NONE
    takes: ClassVar = Form.ROWS
    repeats: ClassVar = True

    predicate: Callable[[Any], Any]

    @property
    def subject(self) -> str | None:
        return function_name(self.predicate)

    def check(self, site: Site) -> None:
        check_function(self.predicate, site.label, "the record", returns="True or False")

    def output_schema(self, site: Site) -> pa.Schema | None:
        return site.schema

    def build(self, ctx: OperatorContext) -> Operator:
        return FilterOperator(ctx, self.predicate)


@dataclass(frozen=True, slots=True)
class FilterColumnsSpec(OperatorSpec):
    """Keeps the records for which the column expression is true."""

    kind: ClassVar = "filter"
    inputs: ClassVar = 1
    state: ClassVar = StateDealing.NONE
    takes: ClassVar = Form.COLUMNS
    repeats: ClassVar = True

    condition: pc.Expression

    @property
    def reason(self) -> str:
        return "filter evaluates expressions on columns"

    def output_schema(self, site: Site) -> pa.Schema | None:
        if site.schema is None:
            return None
        try:
            Conditions([self.condition]).masks(without_records(site.schema))
        except ExpressionError as error:
            raise ConfigurationError(f"{site.label}: {error}") from error
        return site.schema

    def build(self, ctx: OperatorContext) -> Operator:
        return FilterColumnsOperator(ctx, self.condition)


class FilterOperator(Operator):
    def __init__(self, ctx: OperatorContext, predicate: Any) -> None:
        super().__init__(ctx)
        self._predicate = predicate
        self._trusted = ctx.custody.trusts(predicate)
        self._only_looks = self._trusted and ctx.custody.leaves_unchanged(predicate)

    def process(self, batch: Batch, input_index: int) -> None:
        kept = self._chosen(batch.rows())
        if len(kept):
            self.ctx.emit(kept)

    def process_shared(self, batch: Batch, copied: Callable[[Batch], Batch]) -> None:
        if not self._only_looks:
            super().process_shared(batch, copied)
            return
        kept = self._chosen(batch.rows())
        if len(kept):
            self.ctx.emit(copied(kept))

    def _chosen(self, rows: Rows) -> Rows:
        with Calling(self.ctx.label):
            return self._kept(rows) if self._trusted else self._taken(rows)

    def _kept(self, rows: Rows) -> Rows:
        keep, times = self._predicate, rows.timestamps
        upcoming = iter(rows.records)
        wanted = [keep(record) for record in upcoming]
        try:
            kept = list(compress(rows.records, wanted))
        except Exception:  # Some answer is no bool, and is neither true nor false.
            upcoming = iter(rows.records)
            wanted = [bool(answer) for answer, record in zip(wanted, upcoming, strict=True)]
            raise
        kept_times = None if times is None else list(compress(times, wanted))
        return Rows(kept, kept_times)

    def _taken(self, rows: Rows) -> Rows:
        keep, take, upcoming = self._predicate, self.ctx.custody.take, iter(rows.records)
        if rows.timestamps is None:
            return Rows([take(record) for record in upcoming if keep(record)])
        stamped = zip(upcoming, rows.timestamps, strict=True)
        kept = [(take(record), time) for record, time in stamped if keep(record)]
        return Rows([record for record, _ in kept], [time for _, time in kept])


class FilterColumnsOperator(Operator):
    def __init__(self, ctx: OperatorContext, expression: pc.Expression) -> None:
        super().__init__(ctx)
        self._conditions = Conditions([expression])

    def process(self, batch: Batch, input_index: int) -> None:
        if not len(batch):
            return
        laid, columns = laid_columns(batch, self.ctx.label)
        try:
            [mask] = self._conditions.masks(columns.table)
        except ExpressionError as error:
            raise expression_failed(self.ctx.label, error, laid) from error
        # Rows stay the very rows that they are; as columns they are of more use to who is behind.
        as_rows = laid is not None and not laid.identical
        kept = _picked(batch.rows(), mask) if as_rows else columns.where(mask)
        if len(kept):
            self.ctx.emit(kept)


def _picked(rows: Rows, mask: npt.NDArray[np.bool_]) -> Rows:
    wanted = mask.tolist()
    times = None if rows.timestamps is None else list(compress(rows.timestamps, wanted))
    return Rows(list(compress(rows.records, wanted)), times)
