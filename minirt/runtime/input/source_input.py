"""The input of a subtask that reads a source: its splits, their event time, the pace of a replay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgpack
import numpy as np

from minirt.data.batch import Batch, Columns, Rows
from minirt.data.errors import UnsupportedRecordError
from minirt.errors import SourceDataError
from minirt.graph.operator_spec import Reading
from minirt.io.base import Offset
from minirt.io.remembered import kept_identity, resumed, stamped
from minirt.monitoring.logs import logger_of
from minirt.operators.common.base import Member, OperatorContext, shown
from minirt.operators.common.calling import Reaching, ends_program
from minirt.operators.event_time import NO_WATERMARK
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
    active_splits,
    check_batch,
    one_too_many,
    source_watermark,
    stay_after_reopening,
)
from minirt.runtime.input.stamping import Read, Stamping
from minirt.state.stored import SPLITS

logger = logger_of("worker")

_PACE_S = 0.001
"""How often a paced source looks for records that have become due."""
_LOOK_S = 0.02
"""For how long a source looks at splits that are yet to be begun before others may do something."""


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
        self._by_time = reading.by_event_time
        self._side_by_side = source.reads_side_by_side or self._by_time
        self._in_runs = source.reads_side_by_side
        self._states = [SplitState(order, split, self._silence()) for order, split in ctx.splits]
        self._taken_over: dict[str, SplitState] = {}
        self._turn = 0
        self._runs = Runs()
        self._pace = Pace(reading.speed) if reading.speed is not None else None
        self._drift = DriftGate.of(marks, tell)
        self._latency = latency
        self._stamping = Stamping(ctx.label, reading)
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
        if self._by_time and len(candidates) > 1 and self._look_ahead(candidates):
            self._wake_at = now
            return None
        for state in self._near(candidates):
            if state.batch is None and not self._is_far_off(state, now):
                self._next_batch(state)
                self._make_room()
            if state.finished:
                self._wake_at = now
            elif state.batch is None:
                if not self._is_far_off(state, now):
                    self._wake_no_later_than(now + self._poll_interval_s)
            elif count := self._due(state, state.batch, now):
                if self._idle:  # Else others would let event time pass these records.
                    self._idle, self._wake_at = False, now
                    return Advance(None, False)
                return self._give_out(state, state.batch, count, now)
        return self._end_if_finished()

    def _look_ahead(self, candidates: Iterable[SplitState]) -> bool:
        """Find out with which event time splits begin that were never looked at; whether there were any.

        So the oldest of all is read first, and event time is held back by no split that begins later.
        """
        until, looked = self.ctx.monotonic() + _LOOK_S, False
        for state in candidates:
            if state.reached_ms is not None or self.ctx.monotonic() > until:
                break
            if state.silence.asked_at is None:
                self._next_batch(state)
                self._make_room()
                looked = True
        return looked

    def _make_room(self) -> None:
        """Close the newest splits, if many are open that event time tells apart. They go on later."""
        if not self._by_time:
            return
        while (state := one_too_many(self._states, begun=self._pace is None)) is not None:
            self._close(state)
            state.batch = state.times = None
            state.bad.clear()

    def _is_far_off(self, state: SplitState, now: float) -> bool:
        """Whether a split was looked at and closed again that begins at a time that is yet to come."""
        if self._pace is None or state.newest_ms is not None or state.next_ms is None:
            return False
        if state.next_ms <= self._pace.due_ms(now, state.next_ms):
            return False
        self._wake_no_later_than(max(now + _PACE_S, self._pace.due_at(state.next_ms)))
        return True

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
        read = self._asked(state)
        while read is not None:
            batch = self._stamped(state, read)
            if not len(batch):
                self._move_on(state)
                state.silence.asked_in_vain(began, self.ctx.monotonic())
                return
            if len(batch) > state.skip:
                state.silence.end()
                state.batch, state.position = batch, state.skip
                if state.times is not None and state.watermark is not None:
                    state.next_ms = int(state.times[state.position])
                    if self._by_time:
                        state.ahead = state.watermark.ahead(state.position)
                return
            # Emitted before the restore; other batches than then may hold the same records.
            state.skip -= len(batch)
            self._move_on(state)
            read = self._asked(state)
        self._move_on(state)
        state.finished = True
        self._close(state)

    def _asked(self, state: SplitState) -> Read | None:
        """What a split brings now, which is opened first if need be."""
        with self._reaching(state):
            if state.reader is None:
                state.reader = self._source.open_split(state.split, state.offset)
                if self._by_time and state.newest_ms is not None:
                    state.reopened += 1
                    state.stay = stay_after_reopening(state.reopened)
            return state.reader.read()

    def _reaching(self, state: SplitState) -> Reaching:
        label = f"source {self.ctx.label}"
        return Reaching(label, f"cannot read split {state.split.id}", SourceDataError)

    def _stamped(self, state: SplitState, read: Read) -> Batch:
        """The records with their event time, if they have any, seen by the watermark of the split."""
        assert state.reader is not None
        try:
            check_batch(read)
        except SourceDataError as error:
            raise type(error)(f"source {self.ctx.label}: {error}") from error
        if self._strategy is not None and state.watermark is None and len(read):
            label = f"source {self.ctx.label}"
            state.watermark = split_watermark(self._strategy, label, state.split.id)

        def load(batch: Batch) -> None:
            times = batch.timestamps
            if times is not None and state.watermark is not None:
                state.times = np.asarray(times, np.int64)
                state.watermark.load(batch, state.times)

        batch, bad = self._stamping.stamped(read, state.reader, state.split.id, load)
        state.bad += bad
        return batch

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

    def _due(self, state: SplitState, batch: Batch, now: float) -> int:
        """How many of the records that are left in the batch may be emitted now."""
        left = len(batch) - state.position
        if self._in_runs:
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
            state.stay = max(0, state.stay - 1)
        return Data(batch if count == len(batch) else batch.slice(start, stop), 0)

    def _seen(self, state: SplitState, start: int, stop: int) -> int:
        """Where the records end that come before the next watermark, which are given out now."""
        watermark = state.watermark
        assert watermark is not None
        if self._per_record:
            told = NO_WATERMARK if self._watermark is None else self._watermark
            active = active_splits(self._states, self._idle_timeout)
            others = [one.told for one in active if one is not state]
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
            bad = [*state.reader.take_bad_records(), *state.bad]
        state.bad.clear()
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
        advance = None if self._strategy is None else self._advance()
        if advance is not None:  # Others may be silent by now, and event time as far as this says.
            self._wake_at = self.ctx.monotonic()
            return advance
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
        watermark = self._told()
        if watermark <= (NO_WATERMARK if self._watermark is None else self._watermark):
            return None if turned is None else Advance(None, turned)
        self._watermark = watermark
        return Advance(watermark, turned)

    def _told(self) -> int:
        """How far event time is by what its splits have told, which is nothing before the first record."""
        if all(state.newest_ms is None for state in self._states):
            return NO_WATERMARK
        return source_watermark(self._states, self._idle_timeout)

    def _progress(self) -> Progress:
        """How far the splits are that others in the drift group wait for."""
        assert self._strategy is not None
        unfinished = [state for state in self._states if not state.finished]
        telling = unfinished if self._side_by_side else unfinished[:1]
        active = [state.reached_ms for state in telling if not state.is_silent(self._idle_timeout)]
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
