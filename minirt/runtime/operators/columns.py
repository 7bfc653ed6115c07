"""Operators on columns: they evaluate expressions and call no function of the user."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from minirt.data.batch import Batch, Columns
from minirt.data.expressions import ExpressionError, Named, condition, project
from minirt.errors import UserCodeError
from minirt.runtime.operators.base import Operator, OperatorContext, shown


class FilterColumnsOperator(Operator):
    def __init__(self, ctx: OperatorContext, expression: pc.Expression) -> None:
        super().__init__(ctx)
        self._expression = expression

    def process(self, batch: Batch, input_index: int) -> None:
        if not len(batch):
            return
        columns = to_columns(batch, self.ctx.label)
        try:
            kept = columns.where(condition(columns.table, self._expression))
        except ExpressionError as error:
            raise UserCodeError(f"operator {self.ctx.label}: {error}") from error
        if len(kept):
            self.ctx.emit(kept)


class ProjectOperator(Operator):
    def __init__(
        self, ctx: OperatorContext, kept: Sequence[str] | None, computed: Sequence[Named]
    ) -> None:
        super().__init__(ctx)
        self._kept = kept
        self._computed = computed

    def process(self, batch: Batch, input_index: int) -> None:
        if not len(batch):
            return
        columns = to_columns(batch, self.ctx.label)
        try:
            table = project(columns.table, self._kept, self._computed)
        except ExpressionError as error:
            raise UserCodeError(f"operator {self.ctx.label}: {error}") from error
        self.ctx.emit(Columns(table, columns.timestamps))


def check_names(table: pa.RecordBatch) -> None:
    """Raise ValueError for columns of one name: what is meant by the name could not be told."""
    names = table.schema.names
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(
            f"there is more than one column {repeated!r} in a batch of {', '.join(names)}; rename them"
        )


def to_columns(batch: Batch, label: str) -> Columns:
    """The batch, which must not be empty, as columns.

    Raises UserCodeError where its records are not dicts of like types.
    """
    if isinstance(batch, Columns):
        return batch
    try:
        names = batch.records[0].keys()
        strange = next((record for record in batch.records if record.keys() != names), None)
        table = pa.RecordBatch.from_pylist(batch.records)
    except (pa.ArrowException, TypeError, AttributeError) as error:
        raise _no_columns(label, str(error)) from error
    if not names:
        raise _no_columns(label, "a record without fields has no columns")
    if strange is not None:
        raise _no_columns(label, f"{shown(batch.records[0])} and {shown(strange)} differ in names")
    times = None if batch.timestamps is None else pa.array(batch.timestamps, pa.int64()).to_numpy()
    return Columns(table, times)


def _no_columns(label: str, reason: str) -> UserCodeError:
    return UserCodeError(
        f"operator {label} needs columns, but its records cannot be laid out as such: {reason}; make "
        "every record a dict with the same columns and types"
    )
