"""`aggregate`: running aggregates of keyed columns, for good or with a time to live."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from minirt.aggregates import Aggregate, Max
from minirt.data.batch import Batch, Columns
from minirt.errors import ConfigurationError
from minirt.graph.keys import KeySelector
from minirt.graph.operator_spec import Form, OperatorSpec, Site, StateDealing
from minirt.kernels.contract import Slots
from minirt.operators.common.aggregation import (
    CHUNK_KEYS,
    aggregated_schema,
    check_aggregates,
    inputs_of,
    outputs,
    own_groups,
    reading_of,
    repeatable,
)
from minirt.operators.common.base import Operator, OperatorContext
from minirt.operators.common.calling import Calling
from minirt.operators.common.columns import needed_columns
from minirt.operators.common.filling import AggregatesFilling, StateFilling
from minirt.protocol.watermarks import MAX_WATERMARK
from minirt.state.array_table import ADDED, ArrayTable, Results
from minirt.state.expiry import BUCKETS, ProcessingClock, Turns
from minirt.state.numbers import Mask
from minirt.state.sections import Section
from minirt.state.stored import AGGREGATED, STATE_CLOCK, pack_event_time, unpack_event_time

ResultsOf = Callable[[Slots], Results]

_SEEN = f"{ADDED}seen"
"""The column that says when a record came, in milliseconds of the processing clock."""

_SWEEP_SHARE = 3
"""A piece of a sweep is followed by so many times as long without one."""


@dataclass(frozen=True, slots=True)
class AggregateSpec(OperatorSpec):
    """Computes aggregates of each key, whose parts are columns.

    `emit` says when results are given out: "updates" after every batch, of the keys that it has
    changed; a number of seconds after that time; "end" once all input has ended. With `ttl_ms`, a key is
    forgotten so long after its last record came, by the processing clock.
    """

    kind: ClassVar = "aggregate"
    inputs: ClassVar = 1
    state: ClassVar = StateDealing.BY_KEY_GROUP
    takes: ClassVar = Form.COLUMNS

    aggregates: tuple[Aggregate, ...]
    emit: Literal["updates", "end"] | float
    ttl_ms: int | None = None

    @property
    def repeats_batches(self) -> bool:
        """Updates come in the order of the records of a batch, and all others in that of keys."""
        return self.ttl_ms is None and all(each.repeats for each in self.aggregates)

    @property
    def by_clock(self) -> bool:
        return isinstance(self.emit, float)

    @property
    def details(self) -> str:
        text = f", emits {f'every {self.emit:g} s' if isinstance(self.emit, float) else self.emit}"
        return text if self.ttl_ms is None else f"{text}, ttl {self.ttl_ms / 1000:g} s"

    def check(self, site: Site) -> None:
        check_aggregates(self.aggregates, site)
        if self.ttl_ms is not None and self.ttl_ms < 1:
            raise ConfigurationError(f"{site.label}: a ttl must be at least 1ms")

    def output_schema(self, site: Site) -> pa.Schema | None:
        return aggregated_schema(self.aggregates, site)

    def filling(self, site: Site, output: pa.Schema | None) -> StateFilling | None:
        if self.ttl_ms is not None:  # Nobody knows when the last record of a key came.
            return None
        return AggregatesFilling(site.label, site.keys, self.aggregates, output, self.emit == "end")

    def columns_read(self, key: KeySelector, tags: Set[str]) -> Set[str] | None:
        return inputs_of(key, self.aggregates)

    def build(self, ctx: OperatorContext) -> Operator:
        if self.ttl_ms is None:
            return AggregateOperator(ctx, self)
        return TtlAggregateOperator(ctx, self, self.ttl_ms)


class AggregateOperator(Operator):
    """Gives out the results of the keys that each batch has changed, or holds them back for a while."""

    def __init__(self, ctx: OperatorContext, spec: AggregateSpec) -> None:
        super().__init__(ctx)
        self._spec = spec
        self._table = ArrayTable(ctx.keys[0].columns, repeatable(spec.aggregates, ctx), ctx.label)
        self._reading = reading_of(ctx.keys[0], spec.aggregates)
        self._emit_at: float | None = None

    def process(self, batch: Batch, input_index: int) -> None:
        if not len(batch):
            return
        columns = needed_columns(batch, self.ctx.label, self._reading)
        with Calling(self.ctx.label, otherwise=columns.table.schema.names):
            changed = self._take_in(columns)
        if self._spec.emit == "updates":
            self._emit(self._table.results, changed)
            return
        self._table.hold_back(changed)
        if isinstance(self._spec.emit, float) and self._emit_at is None:
            self._emit_at = self.ctx.monotonic() + self._spec.emit

    def _take_in(self, columns: Columns) -> Slots:
        return self._table.add(columns.table, columns.timestamps)

    @property
    def due_at(self) -> float | None:
        return self._emit_at

    def on_due(self) -> Iterator[None] | None:
        self._emit_at = None
        return self._give_out()

    def on_watermark(self, watermark: int) -> Iterable[None]:
        """The end of event time is the end of input: results that come there are late for nobody."""
        self.watermark = watermark
        return self._give_out() if watermark == MAX_WATERMARK else ()

    def snapshot(self) -> Mapping[str, Section]:
        section = self._stored()
        return {} if section is None else {AGGREGATED: section}

    def _stored(self) -> Section | None:
        return self._table.snapshot()

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
        if self.ctx.repeats:
            pending = self._table.by_key(pending)
        for start in range(0, len(pending), CHUNK_KEYS):
            self._emit(self._table.give_out, pending[start : start + CHUNK_KEYS])
            yield

    def _emit(self, results_of: ResultsOf, slots: Slots) -> None:
        with Calling(self.ctx.label, otherwise=outputs(self._spec.aggregates)):
            results = self._results_of(results_of, slots)
        self.ctx.emit(results)

    def _results_of(self, results_of: ResultsOf, slots: Slots) -> Columns:
        return Columns(*results_of(slots))


class TtlAggregateOperator(AggregateOperator):
    """Keeps beside the aggregates when the last record of each key came.

    A record of a key that has expired finds nothing of it. The memory of other keys is given back by sweeps
    over all of them soon after, piece by piece, with records in between. A result that was held back is
    given out before that.
    """

    def __init__(self, ctx: OperatorContext, spec: AggregateSpec, ttl_ms: int) -> None:
        super().__init__(ctx, spec)
        self._table = ArrayTable(ctx.keys[0].columns, (*spec.aggregates, Max(_SEEN)), ctx.label)
        self._seen_place = len(spec.aggregates)
        self._ttl_ms = ttl_ms
        self._clock = ProcessingClock(ctx.now, ctx.monotonic)
        self._oldest: int | None = None
        """No key was seen last before this moment; None if there are no keys."""
        self._last: list[Columns] = []
        """Results that were held back of keys that begin anew in the batch in work."""
        self._turns = Turns(ctx.monotonic, _SWEEP_SHARE)

    def process(self, batch: Batch, input_index: int) -> None:
        super().process(batch, input_index)
        last, self._last = self._last, []
        for results in last:
            self.ctx.emit(results)

    @property
    def due_at(self) -> float | None:
        given_out_at, sweep_at = self._emit_at, self._sweep_at
        if given_out_at is None or sweep_at is None:
            return sweep_at if given_out_at is None else given_out_at
        return min(given_out_at, sweep_at)

    def on_due(self) -> Iterator[None] | None:
        now, sweep_at = self.ctx.monotonic(), self._sweep_at
        if sweep_at is not None and sweep_at <= now:
            self._turns.step(self._forget_expired)
        if self._emit_at is not None and self._emit_at <= now:
            return super().on_due()
        return None

    def snapshot(self) -> Mapping[str, Section]:
        return {STATE_CLOCK: pack_event_time(self._clock.tick()), **super().snapshot()}

    def _stored(self) -> Section | None:
        until = self._clock.now() - self._ttl_ms
        if self._oldest is None or self._oldest > until:
            return super()._stored()
        table = self._table
        return table.snapshot(
            lambda slots: self._seen_until(slots, until) & ~table.is_pending(slots)
        )

    def restore(self, sections: Mapping[str, bytes], *, exact: bool) -> None:
        if STATE_CLOCK in sections:
            self._clock.restore(unpack_event_time(sections[STATE_CLOCK])[0])
        if AGGREGATED in sections:
            super().restore(sections, exact=exact)
            self._oldest = self._clock.now() - self._ttl_ms  # A sweep finds out.

    def _take_in(self, columns: Columns) -> Slots:
        now = self._clock.tick()
        if self._oldest is None:
            self._oldest = now
        batch = columns.table
        arrays = [*batch.columns, pa.array(np.full(len(batch), now, np.int64))]
        seen = pa.RecordBatch.from_arrays(arrays, [*batch.schema.names, _SEEN])
        return self._table.add(seen, columns.timestamps, self._renewed)

    def _renewed(self, slots: Slots) -> Slots:
        """Which of these slots, each named once, are of keys that have expired: they begin anew."""
        expired = slots[self._expired(slots)]
        held_back = expired[self._table.is_pending(expired)]
        if len(held_back):
            self._last.append(self._results_of(self._table.give_out, held_back))
        return expired

    def _expired(self, slots: Slots) -> Mask:
        return self._seen_until(slots, self._clock.now() - self._ttl_ms)

    def _seen_until(self, slots: Slots, until: int) -> Mask:
        seen, known = self._table.numbers(self._seen_place, slots)
        return known & (seen <= until)

    def _results_of(self, results_of: ResultsOf, slots: Slots) -> Columns:
        results = super()._results_of(results_of, slots)
        return Columns(results.table.select(results.table.schema.names[:-1]), results.timestamps)

    @property
    def _sweep_at(self) -> float | None:
        """What expires one after the other is removed together, a little later."""
        if self._turns.under_way:
            return self._turns.not_before
        if self._oldest is None:
            return None
        due_at = self._clock.due_at(self._oldest + self._ttl_ms + self._ttl_ms // BUCKETS)
        assert due_at is not None
        return max(due_at, self._turns.not_before)

    def _forget_expired(self) -> Iterator[None]:
        """Forget all keys that have expired, in steps; then give their memory back."""
        table = self._table
        self._clock.tick()
        oldest = self._clock.now()  # Of what comes between two steps.
        end = table.used  # What comes between two steps has not expired.
        for start in range(0, end, CHUNK_KEYS):
            slots = table.live(start, min(start + CHUNK_KEYS, end))
            expired = self._expired(slots)
            left, _ = table.numbers(self._seen_place, slots[~expired])
            oldest = min(oldest, int(left.min(initial=oldest)))
            over = slots[expired]
            held_back = over[table.is_pending(over)]
            if len(held_back):
                self._emit(table.give_out, held_back)
            table.forget(over)
            yield
        self._oldest = oldest if len(table) else None
        yield from table.tidy()
