"""The input of a subtask that reads a source: its splits, their event time, the pace of a replay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minirt.data.batch import Batch, Columns, Rows
from minirt.data.errors import UnsupportedRecordError
from minirt.errors import SourceDataError
from minirt.graph.operator_spec import Reading
from minirt.io.base import Offset
from minirt.io.remembered import kept_identity, resumed, stamped
from minirt.monitoring.logs import logger_of
from minirt.operators.common.base import Member, OperatorContext, shown
from minirt.operators.common.calling import Calling, Reaching, ends_program
from minirt.operators.event_time import NO_WATERMARK, stamper
from minirt.operators.source import ERRORS_TAG
from minirt.protocol.drift import HOLDS_NOBODY, Progress
from minirt.protocol.stored_watermarks import LinkWatermarks
from minirt.protocol.watermarks import MAX_WATERMARK
from minirt.runtime.input.drift import DriftGate
from minirt.runtime.input.elements import Advance, Data, Element, End
from minirt.runtime.input.input import Input, InputParts
from minirt.runtime.input.latency_timer import LatencyTimer
from minirt.runtime.input.split_watermarks import split_watermark
from minirt.runtime.input.splits import (
    Pace,
    Runs,
    Silence,
    SplitState,
    check_batch,
    telling_splits,
)
from minirt.state.stored import SPLITS

logger = logger_of("worker")

_PACE_S = 0.001
"""How often a paced source looks for records that have become due."""


class SourceInput(Input, Member):
    """Reads the splits dealt to this subtask. Its state is how far it is in each.

    The watermark goes on from the one that was stored, if `watermark` is given: what is measured from the
    records that come counts once it is ahead. `tell` is called with its progress, for its drift group.
    `latency` says when to emit latency markers, if any.
    """

    is_source = True

    def __init__(
        self,
        ctx: OperatorContext,
        reading: Reading,
        parts: InputParts,
        watermark: int | None = None,
        tell: Callable[[Progress], None] = lambda progress: None,
        latency: LatencyTimer | None = None,
    ) -> None:
        Input.__init__(self, (), parts)
        Member.__init__(self, ctx)
        self._source = source = reading.source
        self._strategy = marks = reading.watermarks
        self._idle_timeout = None if marks is None else marks.idle_timeout
        self._watermark = watermark
        self._poll_interval_s = ctx.source_poll_s
        self._side_by_side = source.reads_side_by_side
        self._states = [SplitState(order, split, self._silence()) for order, split in ctx.splits]
        self._taken_over: dict[str, SplitState] = {}
        self._turn = 0
        self._runs = Runs()
        self._pace = Pace(reading.speed) if reading.speed is not None else None
        self._drift = DriftGate.of(marks, tell)
        self._latency = latency
        self._stamp = stamper(marks)
        self._per_record = (
            reading.watermarks is not None and reading.watermarks.emit == "per record"
        )
        self._watermark_interval_s = 0.0 if self._per_record else ctx.watermark_interval_s
        self._watermark_at = 0.0
        self._wake_at: float | None = 0.0
        self._reading: SplitState | None = None
        """The split whose records were given out last."""
        self._draining = False
        self._ended = False
        self._idle = False
        self._unannounced = False
        """Whether records were emitted that the watermark does not yet reflect."""

    @property
    def wake_at(self) -> float | None:
        """When `poll` may bring something, by the monotonic clock; None once all input has ended."""
        if self._latency is None or self._ended:
            return self._wake_at
        marker_at = self._latency.due_at
        return marker_at if self._wake_at is None else min(marker_at, self._wake_at)

    def drain(self) -> None:
        """End at the next `poll`, wherever the splits are; restored from then, they go on there."""
        self._draining = True
        if not self._ended:
            self._wake_at = self.ctx.monotonic()

    @property
    def held_by_drift(self) -> bool:
        return self._drift is not None and self._drift.holding

    def limit_drift(self, group: str, limit_ms: int) -> None:
        if self._drift is not None and self._drift.limit(group, limit_ms) and not self._ended:
            self._wake_at = self.ctx.monotonic()

    @property
    def _has_new(self) -> bool:
        wake_at = self.wake_at
        return wake_at is not None and wake_at <= self.ctx.monotonic()

    def _poll_new(self) -> Element | None:
        """The next batch, watermark or end; None if there is nothing to do before `wake_at`."""
        if self._draining:
            return self._end()
        if self._drift is not None:
            self._drift.report(self._progress())
        now = self.ctx.monotonic()
        if self._latency is not None and not self._ended:
            marker = self._latency.emit(now)
            if marker is not None:
                return marker
        if self._strategy is not None and now >= self._watermark_at:
            self._watermark_at = now + self._watermark_interval_s
            advance = self._advance()
            if advance is not None:
                return advance
        data = self._read(now)
        if data is None and self._unannounced:
            self._wake_no_later_than(self._watermark_at)
        return data

    def on_end(self) -> None:
        self._watermark = MAX_WATERMARK

    def watermarks(self) -> tuple[int | None, tuple[LinkWatermarks, ...]]:
        return self._watermark, ()

    def _processed(self, records: int) -> None:
        state = self._reading
        assert state is not None
        state.skip += records
        if state.batch is None and state.skip == state.position:
            state.skip = 0
            self._move_on(state)

    def restore(self, sections: Mapping[str, bytes], *, exact: bool) -> None:
        stored = msgpack.unpackb(sections[SPLITS], strict_map_key=False)
        who = f"source {self.ctx.label}"
        identity = self._source.identity() if stored else None
        for plain in stored:
            state = SplitState.from_plain(plain, self._silence())
            state.split, state.offset = resumed(
                who, self._source, state.split, state.offset, identity
            )
            self._taken_over[state.split.id] = state
        # Splits that came up while the job ran have the order of the one that found them.
        states = sorted(self._taken_over.values(), key=lambda one: (one.order, one.split.id))
        if not exact:
            unfinished = [state for state in states if not state.finished]
            states = unfinished[self.ctx.subtask :: self.ctx.parallelism]
        self._states = states

    def snapshot(self) -> Mapping[str, bytes]:
        for state in self._states:
            if state.reader is not None:
                state.reader.verify()
        try:
            return {SPLITS: msgpack.packb([state.to_plain() for state in self._states])}
        except (TypeError, ValueError, OverflowError) as error:
            offsets = {state.split.id: state.offset for state in self._states}
            raise UnsupportedRecordError(
                f"the offsets of its splits cannot be stored ({error}), as they hold only values that "
                f"msgpack carries: {shown(offsets)}"
            ) from error

    def offsets(self) -> Mapping[str, Offset] | None:
        if not self._source.wants_committed:
            return None
        return {state.split.id: state.offset for state in self._states}

    def close(self) -> None:
        for state in self._states:
            if state.reader is not None:
                state.reader.close()

    def _read(self, now: float) -> Element | None:
        """Data of the next split that has some and is due, or the end."""
        self._wake_at = None
        candidates = self._candidates()
        self._runs.look(len(candidates), now)
        for state in self._near(candidates):
            if state.batch is None:
                self._next_batch(state)
            if state.finished:
                self._wake_at = now
            elif state.batch is None:
                self._wake_no_later_than(now + self._poll_interval_s)
            elif count := self._due(state, state.batch, now):
                if self._idle:  # Else others would let event time pass these records.
                    self._idle, self._wake_at = False, now
                    return Advance(None, False)
                return self._give_out(state, state.batch, count, now)
        return self._end_if_finished()

    def _candidates(self) -> list[SplitState]:
        """The splits to read from, the one to be preferred first."""
        unfinished = [state for state in self._states if not state.finished]
        if not self._side_by_side:
            return unfinished[:1]
        return sorted(unfinished, key=lambda state: state.precedence)

    def _near(self, states: Iterable[SplitState]) -> Iterator[SplitState]:
        """Those that are not too far ahead of others in the drift group."""
        drift = self._drift
        if drift is None:
            yield from states
            return
        held = False
        for state in states:
            if drift.holds(state.newest_ms):
                held = True
                state.silence.end()  # Records may lie unread.
            else:
                drift.holding = False
                yield state
        drift.holding = held

    def _next_batch(self, state: SplitState) -> None:
        """Read until there is something that was not emitted before, or nothing now, or the end."""
        began = self.ctx.monotonic()
        with self._reaching(state):
            if state.reader is None:
                state.reader = self._source.open_split(state.split, state.offset)
            read = state.reader.read()
            while read is not None and 0 < len(read) <= state.skip:
                # Emitted before the restore; other batches than then may hold the same records.
                state.skip -= len(read)
                self._move_on(state)
                read = state.reader.read()
        if read is None:
            self._move_on(state)
            state.finished = True
            self._close(state)
        elif not len(read):
            self._move_on(state)
            state.silence.asked_in_vain(began, self.ctx.monotonic())
        else:
            state.silence.end()
            state.batch, state.position = self._stamped(read), state.skip
            times = state.batch.timestamps
            if times is not None:
                self._load(state, state.batch, np.asarray(times, np.int64))

    def _reaching(self, state: SplitState) -> Reaching:
        label = f"source {self.ctx.label}"
        return Reaching(label, f"cannot read split {state.split.id}", SourceDataError)

    def _load(self, state: SplitState, batch: Batch, times: npt.NDArray[np.int64]) -> None:
        """Have the watermark of the split look at what was read."""
        assert self._strategy is not None
        state.times = times
        if state.watermark is None:
            state.watermark = split_watermark(self._strategy, self.ctx.label, state.split.id)
        try:
            state.watermark.load(batch, times)
        except SourceDataError as error:
            raise type(error)(f"source {self.ctx.label}: {error}") from error

    def _close(self, state: SplitState) -> None:
        """All of it was read: an error is logged, as a restart would mend nothing."""
        reader, state.reader = state.reader, None
        assert reader is not None
        try:
            reader.close()
        except BaseException as error:
            if ends_program(error):
                raise
            message = "source %s could not close split %s: %r"
            logger.error(message, self.ctx.label, state.split.id, error, exc_info=error)

    def _stamped(self, read: list[Any] | pa.RecordBatch) -> Batch:
        try:
            check_batch(read)
            if self._stamp is None:
                return Columns(read) if isinstance(read, pa.RecordBatch) else Rows(read)
            with Calling(self.ctx.label):
                return self._stamp(read)
        except SourceDataError as error:
            raise type(error)(f"source {self.ctx.label}: {error}") from error

    def _due(self, state: SplitState, batch: Batch, now: float) -> int:
        """How many of the records that are left in the batch may be emitted now."""
        left = len(batch) - state.position
        if self._side_by_side:
            left = self._runs.cut(left, now, columns=isinstance(batch, Columns))
        if state.times is None:
            return left
        times = state.times[state.position : state.position + left]
        if self._drift is not None:
            left = self._drift.allowed(times)
            times = times[:left]
        if self._pace is None:
            return left
        late = times > self._pace.due_ms(now, int(times[0]))
        count = int(late.argmax()) if late[-1] or late.any() else left
        if count < left:
            self._wake_no_later_than(max(now + _PACE_S, self._pace.due_at(int(times[count]))))
        return count

    def _give_out(self, state: SplitState, batch: Batch, count: int, now: float) -> Data:
        start, stop = state.position, state.position + count
        if state.times is not None:
            stop = self._seen(state, start, stop)
            count = stop - start
            newest = int(state.times[start:stop].max())
            state.newest_ms = newest if state.newest_ms is None else max(newest, state.newest_ms)
            self._unannounced = True
        state.position = stop
        self._turn += 1
        state.turn = self._turn
        self._reading = state
        self._wake_at = now
        if stop == len(batch):
            state.batch = state.times = None
        return Data(batch if count == len(batch) else batch.slice(start, stop), 0)

    def _seen(self, state: SplitState, start: int, stop: int) -> int:
        """Where the records end that come before the next watermark, which are given out now."""
        watermark = state.watermark
        assert watermark is not None
        if self._per_record:
            told = NO_WATERMARK if self._watermark is None else self._watermark
            others = [one.told for one in self._telling() if one is not state]
            if min(others, default=MAX_WATERMARK) > told:
                return watermark.see_until(start, stop, told)
        watermark.see(start, stop)
        return stop

    def _move_on(self, state: SplitState) -> None:
        """All of a batch is processed: the position moves behind it, with what did not parse in it."""
        assert state.reader is not None
        with self._reaching(state):
            state.offset = state.reader.offset
            found = [*state.reader.take_new_splits()]
            bad = state.reader.take_bad_records()
        for one in found:
            split = stamped(one, kept_identity(state.split))
            self._states.append(SplitState(state.order, split, self._silence()))
        if bad and self._source.side_errors:
            self.ctx.side(ERRORS_TAG)(Rows([record.to_plain() for record in bad]))

    def _end_if_finished(self) -> Element | None:
        if any(not state.finished for state in self._states):
            # A source that is too far ahead hears when it may go on.
            if self._wake_at is None and not self.held_by_drift:
                self._wake_at = self.ctx.monotonic() + self._poll_interval_s
            return None
        return self._end()

    def _end(self) -> End | None:
        self._wake_at = None
        if self._ended:
            return None
        self._ended = True
        if self._drift is not None:
            self._drift.report(HOLDS_NOBODY)
        return End()

    def _advance(self) -> Advance | None:
        """A newer watermark, or that this source has become idle or active."""
        self._unannounced = False
        unfinished = [state for state in self._states if not state.finished]
        idle = bool(unfinished) and all(state.is_silent(self._idle_timeout) for state in unfinished)
        turned = None
        if unfinished and idle != self._idle:
            self._idle = turned = idle
        watermark = min((state.told for state in self._telling()), default=NO_WATERMARK)
        if watermark <= (NO_WATERMARK if self._watermark is None else self._watermark):
            return None if turned is None else Advance(None, turned)
        self._watermark = watermark
        return Advance(watermark, turned)

    def _telling(self) -> list[SplitState]:
        telling = telling_splits(self._states, self._idle_timeout)
        return telling if self._side_by_side else telling[:1]

    def _progress(self) -> Progress:
        """How far the splits are that others in the drift group wait for."""
        assert self._strategy is not None
        unfinished = [state for state in self._states if not state.finished]
        telling = unfinished if self._side_by_side else unfinished[:1]
        active = [state.newest_ms for state in telling if not state.is_silent(self._idle_timeout)]
        if not active:
            return HOLDS_NOBODY
        known = [newest for newest in active if newest is not None]
        marks = [] if self._watermark is None else [self._watermark]
        if known:
            marks.append(min(known) - self._strategy.bound_ms - 1)
        return Progress(max(marks, default=None), complete=len(known) == len(active))

    def _silence(self) -> Silence:
        return Silence(self._poll_interval_s)

    def _wake_no_later_than(self, at: float) -> None:
        self._wake_at = at if self._wake_at is None else min(self._wake_at, at)
