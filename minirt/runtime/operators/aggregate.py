"""Running aggregates of keyed columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from minirt.aggregates import Aggregate
from minirt.data.batch import Batch, Columns
from minirt.graph.job_graph import AggregateSpec
from minirt.graph.key_groups import group_range
from minirt.protocol.watermarks import MAX_WATERMARK
from minirt.runtime.operators.base import Operator, OperatorContext, user_error
from minirt.runtime.operators.columns import to_columns
from minirt.state.array_table import ArrayTable, Results
from minirt.state.key_columns import Slots
from minirt.state.sections import Section
from minirt.state.stored import STATE

CHUNK_KEYS = 16384
"""How many results are given out in one step."""

_TABLE = f"{STATE}value"


class AggregateOperator(Operator):
    """Gives out the results of the keys that each batch has changed, or holds them back for a while."""

    def __init__(self, ctx: OperatorContext, spec: AggregateSpec) -> None:
        super().__init__(ctx)
        self._spec = spec
        self._table = ArrayTable(spec.key.columns, spec.aggregates, ctx.label)
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
            self._emit_at = self.ctx.now() + self._spec.emit

    @property
    def next_processing_time(self) -> int | None:
        return None if self._emit_at is None else int(self._emit_at * 1000)

    def on_processing_time(self, now_ms: int) -> Iterator[None]:
        self._emit_at = None
        return self._give_out()

    def on_watermark(self, watermark: int) -> Iterable[None]:
        """The end of event time is the end of input: what is given out now is not late for anybody."""
        self.watermark = watermark
        return self._give_out() if watermark == MAX_WATERMARK else ()

    def snapshot(self) -> Mapping[str, Section]:
        section = self._table.snapshot()
        return {} if section is None else {_TABLE: section}

    def builds_on(self) -> Mapping[str, Collection[str]]:
        return {_TABLE: self._table.builds_on()}

    def on_stored(self, path: str) -> None:
        self._table.on_stored(path)

    def restore(self, sections: Mapping[str, bytes], *, exact: bool) -> None:
        ctx = self.ctx
        self._table.restore(sections[_TABLE], own_groups(ctx, exact=exact), ctx.max_parallelism)
        if isinstance(self._spec.emit, float) and len(self._table.pending()):
            self._emit_at = ctx.now() + self._spec.emit

    def _give_out(self) -> Iterator[None]:
        """All that is pending, in steps; the subtask may be snapshotted between them."""
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


def outputs(aggregates: Iterable[Aggregate]) -> list[str]:
    """The names of the results, for messages."""
    return [aggregate.output for aggregate in aggregates]


def own_groups(ctx: OperatorContext, *, exact: bool) -> range | None:
    """The key groups to be picked from a snapshot, None for all."""
    return None if exact else group_range(ctx.subtask, ctx.parallelism, ctx.max_parallelism)
