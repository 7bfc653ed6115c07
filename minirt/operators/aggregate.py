"""`aggregate`: running aggregates of keyed columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import pyarrow as pa

from minirt.aggregates import Aggregate
from minirt.data.batch import Batch, Columns
from minirt.graph.operator_spec import Form, OperatorSpec, Site, StateDealing
from minirt.kernels.contract import Slots
from minirt.operators.common.aggregation import (
    CHUNK_KEYS,
    aggregated_schema,
    check_aggregates,
    outputs,
    own_groups,
)
from minirt.operators.common.base import Operator, OperatorContext, user_error
from minirt.operators.common.columns import to_columns
from minirt.operators.common.filling import AggregatesFilling, StateFilling
from minirt.protocol.watermarks import MAX_WATERMARK
from minirt.state.array_table import ArrayTable, Results
from minirt.state.sections import Section
from minirt.state.stored import AGGREGATED


@dataclass(frozen=True, slots=True)
class AggregateSpec(OperatorSpec):
    """Computes aggregates of each key, whose parts are columns.

    `emit` says when results are given out: "updates" after every batch, of the keys that it has
    changed; a number of seconds after that time; "end" once all input has ended.
    """

    kind: ClassVar = "aggregate"
    inputs: ClassVar = 1
    state: ClassVar = StateDealing.BY_KEY_GROUP
    takes: ClassVar = Form.COLUMNS

    aggregates: tuple[Aggregate, ...]
    emit: Literal["updates", "end"] | float

    @property
    def details(self) -> str:
        return f", emits {f'every {self.emit:g} s' if isinstance(self.emit, float) else self.emit}"

    def check(self, site: Site) -> None:
        check_aggregates(self.aggregates, site)

    def output_schema(self, site: Site) -> pa.Schema | None:
        return aggregated_schema(self.aggregates, site)

    def filling(self, site: Site, output: pa.Schema | None) -> StateFilling:
        return AggregatesFilling(site.label, site.keys, self.aggregates, output, self.emit == "end")

    def build(self, ctx: OperatorContext) -> Operator:
        return AggregateOperator(ctx, self)


class AggregateOperator(Operator):
    """Gives out the results of the keys that each batch has changed, or holds them back for a while."""

    def __init__(self, ctx: OperatorContext, spec: AggregateSpec) -> None:
        super().__init__(ctx)
        self._spec = spec
        self._table = ArrayTable(ctx.keys[0].columns, spec.aggregates, ctx.label)
        self._emit_at: float | None = None

    def process(self, batch: Batch, input_index: int) -> None:
        if not len(batch):
            return
        columns = to_columns(batch, self.ctx.label)
        try:
            changed = self._table.add(columns.table, columns.timestamps)
        except Exception as error:
            raise user_error(self.ctx.label, error, columns.table.schema.names) from error
        if self._spec.emit == "updates":
            self._emit(self._table.results, changed)
            return
        self._table.hold_back(changed)
        if isinstance(self._spec.emit, float) and self._emit_at is None:
            self._emit_at = self.ctx.monotonic() + self._spec.emit

    @property
    def due_at(self) -> float | None:
        return self._emit_at

    def on_due(self) -> Iterator[None]:
        self._emit_at = None
        return self._give_out()

    def on_watermark(self, watermark: int) -> Iterable[None]:
        """The end of event time is the end of input: results that come there are late for nobody."""
        self.watermark = watermark
        return self._give_out() if watermark == MAX_WATERMARK else ()

    def snapshot(self) -> Mapping[str, Section]:
        section = self._table.snapshot()
        return {} if section is None else {AGGREGATED: section}

    def builds_on(self) -> Mapping[str, Collection[str]]:
        return {AGGREGATED: self._table.builds_on()}

    def on_stored(self, path: str) -> None:
        self._table.on_stored(path)

    def restore(self, sections: Mapping[str, bytes], *, exact: bool) -> None:
        ctx = self.ctx
        self._table.restore(sections[AGGREGATED], own_groups(ctx, exact=exact), ctx.max_parallelism)
        if isinstance(self._spec.emit, float) and len(self._table.pending()):
            self._emit_at = ctx.monotonic() + self._spec.emit

    def _give_out(self) -> Iterator[None]:
        """Give out all pending results, in steps; the subtask may take a snapshot between two steps."""
        pending = self._table.pending()
        for start in range(0, len(pending), CHUNK_KEYS):
            self._emit(self._table.give_out, pending[start : start + CHUNK_KEYS])
            yield

    def _emit(self, results_of: Callable[[Slots], Results], slots: Slots) -> None:
        try:
            results = Columns(*results_of(slots))
        except Exception as error:
            raise user_error(self.ctx.label, error, outputs(self._spec.aggregates)) from error
        self.ctx.emit(results)
