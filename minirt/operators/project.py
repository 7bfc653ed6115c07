"""`select` and `with_column`: columns that are kept, and columns that expressions compute."""

from __future__ import annotations

from abc import ABC
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from minirt.data.batch import Batch, Columns, Rows, dicts_of
from minirt.data.expressions import ExpressionError, Named, Projection, without_records
from minirt.errors import ConfigurationError, UserCodeError
from minirt.graph.operator_spec import Form, OperatorSpec, Site, StateDealing
from minirt.operators.common.base import Operator, OperatorContext, shown
from minirt.operators.common.columns import expression_failed, laid_columns


@dataclass(frozen=True, slots=True)
class ProjectSpec(OperatorSpec, ABC):
    """Emits the columns `kept`, all with None, and those computed, which replace ones of their names."""

    inputs: ClassVar = 1
    state: ClassVar = StateDealing.NONE
    takes: ClassVar = Form.COLUMNS
    repeats: ClassVar = True

    kept: tuple[str, ...] | None
    computed: tuple[tuple[str, pc.Expression], ...] = ()

    @property
    def subject(self) -> str | None:
        return ", ".join(map(str, self._names))

    @property
    def reason(self) -> str:
        return f"{self.kind} evaluates expressions on columns"

    @property
    def _names(self) -> list[Any]:
        return [*(self.kept or ()), *(name for name, _ in self.computed)]

    def check(self, site: Site) -> None:
        # The operator may not even have a name that says where it stands.
        label = f"{self.kind} on {site.behind[0]}"
        if not self._names:
            raise ConfigurationError(f"{label}: name at least one column")
        for name in self._names:
            if not isinstance(name, str):
                raise ConfigurationError(f"{label}: columns are named by strings, not {name!r}")
        for name, value in self.computed:
            if not isinstance(value, pc.Expression):
                raise ConfigurationError(
                    f"{label}: column {name!r} is computed by an expression of pyarrow.compute, "
                    f'such as pc.field("x") * 2 or pc.scalar(0), not by {value!r}'
                )
        repeated = [name for name, count in Counter(self._names).items() if count > 1]
        if repeated:
            raise ConfigurationError(f"{label}: column {repeated[0]!r} is named twice")

    def output_schema(self, site: Site) -> pa.Schema | None:
        if site.schema is None:
            return None
        try:
            return Projection(self.kept, self.computed).of(without_records(site.schema)).schema
        except ExpressionError as error:
            raise ConfigurationError(f"{site.label}: {error}") from error

    def build(self, ctx: OperatorContext) -> Operator:
        return ProjectOperator(ctx, self.kept, self.computed)


class SelectSpec(ProjectSpec):
    kind: ClassVar = "select"


class WithColumnSpec(ProjectSpec):
    kind: ClassVar = "with_column"


class ProjectOperator(Operator):
    def __init__(
        self, ctx: OperatorContext, kept: Sequence[str] | None, computed: Sequence[Named]
    ) -> None:
        super().__init__(ctx)
        self._kept = kept
        self._projection = Projection(kept, computed)

    def process(self, batch: Batch, input_index: int) -> None:
        if not len(batch):
            return
        laid, columns = laid_columns(batch, self.ctx.label)
        try:
            if laid is not None and (laid.problems or laid.differing):
                self.ctx.emit(self._rows(batch.rows(), columns.table))
                return
            table = self._projection.of(columns.table)
        except ExpressionError as error:
            raise expression_failed(self.ctx.label, error, laid) from error
        self.ctx.emit(Columns(table, columns.timestamps))

    def _rows(self, rows: Rows, table: pa.RecordBatch) -> Rows:
        """Of rows that are no columns as they are, each keeps its values, and gets those computed."""
        computed = dicts_of(self._projection.computed(table)) or [{}] * len(rows)
        records = []
        for record, new in zip(rows.records, computed, strict=True):
            if self._kept is None:
                records.append({**record, **new})
                continue
            for name in self._kept:
                if name not in record:
                    raise UserCodeError(
                        f"operator {self.ctx.label} failed on record {shown(record)}: it has no column "
                        f"{name!r}; there are {', '.join(map(str, record))}"
                    )
            records.append({**{name: record[name] for name in self._kept}, **new})
        return Rows(records, rows.timestamps)
