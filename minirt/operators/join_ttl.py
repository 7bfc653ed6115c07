"""`join` with a time to live: pairs of records of one key, however far they are apart in event time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np
import pyarrow as pa

from minirt.data.batch import Columns
from minirt.data.hashing import U64
from minirt.errors import ConfigurationError
from minirt.graph.operator_spec import Form, Gathering
from minirt.operators.common.base import Operator, OperatorContext
from minirt.operators.common.held_runs import MANY_RECORDS
from minirt.operators.common.join_bounds import FIRST_TIME, Lasting
from minirt.operators.common.join_side import Side
from minirt.operators.join import JoinOperator, JoinSpec, Pairs
from minirt.protocol.watermarks import MAX_WATERMARK
from minirt.state.expiry import BUCKETS, ProcessingClock, Turns
from minirt.state.runs import Run, Times
from minirt.state.sections import Section
from minirt.state.stored import NO_WATERMARK, STATE_CLOCK, pack_event_time, unpack_event_time

NO_TIME = FIRST_TIME
"""The event time of a record that has none."""


class TtlJoinSpec(JoinSpec):
    """As JoinSpec, but `bounds`, a Lasting, say how long each record is kept by the clock."""

    kind: ClassVar = "join_ttl"
    needs_event_time: ClassVar = False
    # Not so in joins by event time: what comes behind a watermark may be late.
    gathers: ClassVar = Gathering(MANY_RECORDS)

    @property
    def default_name(self) -> str:
        return "join"

    @property
    def use(self) -> str:
        """Another time to live counts for what comes from then on."""
        return f"{self.how} join with a time to live"

    @property
    def late_after_ms(self) -> int | None:
        return None

    def side_output(self, tag: str, label: str) -> Form:
        raise ConfigurationError(
            f"{label}: no record is late for a join with ttl=..., so it has no side output {tag!r}"
        )

    def build(self, ctx: OperatorContext) -> Operator:
        return TtlJoinOperator(ctx, self)


class TtlJoinOperator(JoinOperator):
    """Keeps each record for the time to live; what has expired is never seen, and is removed soon after.

    Event time plays no part but in results. What both sides have in common is `until`, by the clock.
    """

    with_until: ClassVar = True

    def __init__(self, ctx: OperatorContext, spec: TtlJoinSpec) -> None:
        super().__init__(ctx, spec)
        assert isinstance(spec.bounds, Lasting)
        self._ttl_ms = spec.bounds.ttl_ms
        self._clock = ProcessingClock(ctx.now, ctx.monotonic)
        self._turns = Turns(ctx.monotonic, share=1)

    @property
    def due_at(self) -> float | None:
        """What expires one after the other is removed together, a little later."""
        if self._turns.under_way:
            return self._turns.not_before
        first = min((run.over_from for side in self._sides for run in side.runs.runs), default=None)
        if first is None:
            return None
        due_at = self._clock.due_at(first + self._ttl_ms // BUCKETS)
        assert due_at is not None
        return max(due_at, self._turns.not_before)

    def on_due(self) -> None:
        """Free one piece; then records have their turn."""
        self._turns.step(lambda: self._free(self._clock.tick()))

    def on_watermark(self, watermark: int) -> Iterator[None]:
        """At the end of input no partners can come."""
        self.watermark = watermark
        self._times.advance(watermark)
        return self._free(MAX_WATERMARK if watermark == MAX_WATERMARK else self._clock.now())

    def snapshot(self) -> Mapping[str, Section]:
        return {**super().snapshot(), STATE_CLOCK: pack_event_time(self._clock.tick())}

    def restore(self, sections: Mapping[str, bytes], *, exact: bool) -> None:
        super().restore(sections, exact=exact)
        if STATE_CLOCK in sections:
            self._clock.restore(unpack_event_time(sections[STATE_CLOCK])[0])

    def _times_of(self, columns: Columns) -> Times:
        if columns.timestamps is None:
            return np.full(len(columns), NO_TIME)
        return columns.timestamps

    def _seen(self, hashes: U64) -> Times:
        return np.full(len(hashes), self._clock.tick())

    def _until(self, side: Side, times: Times) -> Times:
        return np.full(len(times), self._clock.now() + self._ttl_ms)

    @property
    def _over(self) -> int:
        return self._clock.now()

    def _partners(self, side: Side, run: Run, other: Side, pairs: Pairs) -> Pairs:
        own, waiting, theirs = pairs
        there = waiting.until[theirs] > self._clock.now()
        if not there.all():
            pairs = Pairs(own[there], waiting, theirs[there])
        return super()._partners(side, run, other, pairs)

    def _certain(self, times: Times, until: Times) -> Times:
        """By event time that is now: so no result is late."""
        reached = self._times.reached
        if reached == NO_WATERMARK:
            return times
        return np.where(times == NO_TIME, times, np.maximum(times, reached + 1))

    def _give(self, rows: pa.RecordBatch, times: Times) -> None:
        without = times == NO_TIME
        if not without.any():
            super()._give(rows, times)
            return
        results = Columns(rows, times)
        self.ctx.emit(Columns(results.where(without).table))
        if not without.all():
            self.ctx.emit(results.where(~without))
