"""`process` with keys: a user's process function with state and timers per key."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa

from minirt.data.batch import Batch
from minirt.data.keys import distinct_keys, exact_keys, key_groups
from minirt.errors import UserCodeError
from minirt.functions import BroadcastProcess, KeyedCoProcess, KeyedProcess, TimeDomain
from minirt.graph.operator_spec import Form, OperatorSpec, Site, StateDealing, class_name
from minirt.operators.common.base import Operator, OperatorContext, shown
from minirt.operators.common.calling import Calling
from minirt.operators.common.checks import check_instance, check_methods
from minirt.operators.common.clock_use import asks_for_clock
from minirt.operators.common.filling import StateFilling, ValuesFilling
from minirt.operators.common.functions import check_declared
from minirt.operators.common.keyed import KeyedOperator, check_stored_keys, named, only
from minirt.operators.common.results import (
    ContextOperator,
    Produced,
    emit_results,
    rows_with_times,
)
from minirt.operators.event_time import EARLIEST_MS, LATEST_MS
from minirt.protocol.watermarks import MAX_WATERMARK
from minirt.state.binding import bind_states, goes_by, keyed_states
from minirt.state.event_times import EventTimes
from minirt.state.expiring import Sweeper
from minirt.state.expiry import EventClock, ProcessingClock
from minirt.state.kinds_of_state import KindsOfState
from minirt.state.sections import Section
from minirt.state.stored import (
    EVENT_TIME,
    NO_WATERMARK,
    STATE_CLOCK,
    TIMERS,
    pack_event_time,
    unpack_event_time,
)
from minirt.state.timers import Timers
from minirt.units import event_time_ms


@dataclass(frozen=True, slots=True)
class KeyedProcessSpec(OperatorSpec):
    kind: ClassVar = "keyed_process"
    inputs: ClassVar = 1
    state: ClassVar = StateDealing.BY_KEY_GROUP
    takes: ClassVar = Form.ROWS

    process: KeyedProcess | KeyedCoProcess | BroadcastProcess

    @property
    def default_name(self) -> str:
        return f"process: {class_name(self.process)}"

    @property
    def owned(self) -> object | None:
        return self.process

    @property
    def repeats(self) -> bool:
        return not goes_by(self.process, "event") and not goes_by(self.process, "processing")

    @property
    def by_clock(self) -> bool:
        return asks_for_clock(self.process)

    @property
    def needs_event_time(self) -> bool:
        return goes_by(self.process, "event")

    def check(self, site: Site) -> None:
        check_instance(self.process, KeyedProcess, site.label)
        check_methods(site.label, self.process, "process", "on_timer")
        check_declared(site.label, self.process)

    def side_output(self, tag: str, label: str) -> Form:
        return Form.ROWS

    def filling(self, site: Site, output: pa.Schema | None) -> StateFilling:
        return ValuesFilling(site.label, site.keys, keyed_states(self.process))

    def build(self, ctx: OperatorContext) -> Operator:
        return KeyedProcessOperator(ctx, self.process)


class KeyedCoProcessSpec(KeyedProcessSpec):
    kind: ClassVar = "keyed_co_process"
    inputs: ClassVar = 2

    def check(self, site: Site) -> None:
        check_instance(self.process, KeyedCoProcess, site.label)
        check_methods(site.label, self.process, "process_left", "process_right", "on_timer")
        check_declared(site.label, self.process)


class KeyedProcessOperator(ContextOperator, KeyedOperator):
    """Runs a user's KeyedProcess or KeyedCoProcess.

    Where watermarks are restored, no key sees one that is behind what it has seen before.
    """

    def __init__(
        self, ctx: OperatorContext, process: KeyedProcess | KeyedCoProcess | BroadcastProcess
    ) -> None:
        super().__init__(ctx)
        self._times = EventTimes(self._groups)
        self._seen = EventTimes(self._groups)
        """The same, and what keys had seen before a restore, also where watermarks are regenerated."""
        self._keys = tuple(key.on_rows() for key in ctx.keys)
        self._key_columns = tuple(key.columns for key in ctx.keys)
        self._process = process
        self._handlers = (
            (process.process_left, process.process_right)
            if isinstance(process, KeyedCoProcess)
            else (process.process,)
        )
        self._timers = Timers(ctx.max_parallelism, self._groups)
        self.domain: TimeDomain = "event"
        self._ended = False
        self._newest_ms: int | None = None
        """The newest event time of the records that came before the first watermark."""
        self._clock = ProcessingClock(ctx.now, ctx.monotonic)
        self._sweeper: Sweeper | None = None
        """If any state expires."""
        self._kinds = KindsOfState.of_process(ctx.label, process)

    # What the user's function sees of it.

    @property
    def key(self) -> Any:
        return self.state.key

    @property
    def watermark(self) -> int | None:
        seen = self._times.least
        if self._times.differ:
            seen = int(self._times.of(key_groups([self.state.key], self.ctx.max_parallelism))[0])
        return None if seen == NO_WATERMARK else seen

    @watermark.setter
    def watermark(self, watermark: int | None) -> None:
        if watermark is not None:
            self._times.advance(watermark)
            self._seen.advance(watermark)

    def set_timer(self, at: int | dt.datetime) -> None:
        self._timers.set("event", _timer_ms(at), self.state.key)

    def set_processing_timer(self, at: int | dt.datetime) -> None:
        self.ctx.check_clock()
        self._timers.set("processing", _timer_ms(at), self.state.key)

    def delete_timer(self, at: int | dt.datetime) -> None:
        self._timers.delete("event", event_time_ms(at), self.state.key)

    def delete_processing_timer(self, at: int | dt.datetime) -> None:
        self._timers.delete("processing", event_time_ms(at), self.state.key)

    # What the subtask sees of it.

    def open(self) -> None:
        for name in keyed_states(self._process):
            self._kinds.check_values(name, self.state.table(name).values())
        event = EventClock(self._event_time, self._event_time_of_all)
        expiring = bind_states(
            self._process,
            self.state,
            self.ctx.custody,
            {"event": event, "processing": self._clock},
        )
        if expiring:
            self._sweeper = Sweeper(expiring, self.ctx.monotonic)
        self._process.open()

    def close(self) -> None:
        self._process.close()

    def process(self, batch: Batch, input_index: int) -> None:
        self.domain = "event"
        with Calling(self.ctx.label):
            emit_results(self._results(batch, input_index), self.ctx)

    def on_watermark(self, watermark: int) -> Iterable[None]:
        self.watermark = watermark
        if watermark == MAX_WATERMARK:
            return self._fire("event", partial(self._timers.pop_at_end, "event"))
        return self._fire("event", partial(self._timers.pop_due, "event", watermark))

    def on_processing_time(self, now_ms: int) -> Iterator[None]:
        return self._fire("processing", partial(self._timers.pop_due, "processing", now_ms))

    @property
    def next_processing_time(self) -> int | None:
        return None if self._ended else self._timers.next("processing")

    @property
    def due_at(self) -> float | None:
        timers_at = super().due_at
        if self._sweeper is None or self._ended:
            return timers_at
        sweep_at = self._sweeper.due_at
        if timers_at is None or sweep_at is None:
            return sweep_at if timers_at is None else timers_at
        return min(timers_at, sweep_at)

    def on_due(self) -> Iterator[None] | None:
        sweeper, timers_at = self._sweeper, super().due_at
        sweep_at = None if sweeper is None else sweeper.due_at
        if sweeper is None or sweep_at is None or (timers_at is not None and timers_at < sweep_at):
            return self.on_processing_time(self.ctx.processing_ms)
        sweeper.sweep()
        return None

    def on_end(self) -> Iterator[None]:
        """Fire the processing-time timers that are still pending, because they would never fire otherwise.

        They may set timers of event time, which has ended.
        """
        self._ended = True
        for domain in ("processing", "event"):
            yield from self._fire(domain, partial(self._timers.pop_at_end, domain))

    def snapshot(self) -> Mapping[str, Section]:
        return {
            **self._kinds.beside(super().snapshot()),
            **named(TIMERS, self._timers.snapshot()),
            EVENT_TIME: self._seen.snapshot(),
            **({STATE_CLOCK: pack_event_time(self._clock.tick())} if self._sweeper else {}),
        }

    def restore(self, sections: Mapping[str, bytes], *, exact: bool) -> None:
        self._kinds.check(sections)
        super().restore(sections, exact=exact)
        self._timers.restore(only(TIMERS, sections), filter_groups=not exact)
        if STATE_CLOCK in sections:
            self._clock.restore(unpack_event_time(sections[STATE_CLOCK])[0])
        if EVENT_TIME in sections:
            self._seen.restore(sections[EVENT_TIME])
            if self.ctx.watermarks_restored:
                self._times.restore(sections[EVENT_TIME])

    def _results(self, batch: Batch, input_index: int) -> Iterator[Produced]:
        rows = batch.rows()
        state, key_of, handle = self.state, self._keys[input_index], self._handlers[input_index]
        upcoming = iter(rows.records)
        keys = [key_of(record) for record in upcoming]
        keys = exact_keys(keys, batch, self._key_columns[input_index])
        check_stored_keys(keys, rows.records, self.ctx.label)
        keys = distinct_keys(keys)
        state.change(keys)
        self._timers.goes_on(keys)
        if rows.timestamps and self._times.reached == NO_WATERMARK:
            newest = max(rows.timestamps)
            self._newest_ms = newest if self._newest_ms is None else max(newest, self._newest_ms)
        if self._sweeper is not None:
            self._clock.tick()
        for key, (record, time) in zip(keys, rows_with_times(rows), strict=True):
            state.key = key
            self.timestamp = time
            yield record, handle(record, self), time

    def _event_time(self) -> int:
        """How far event time has come for the current key, as its state sees it."""
        seen = self._reached
        if self.timestamp is not None and self.domain == "event":
            seen = max(seen, self.timestamp)
        if seen == NO_WATERMARK:
            raise UserCodeError(
                f"operator {self.ctx.label}: its state expires by event time, but a record of the key "
                f"{self.state.key!r} has none and no watermark has come; give all sources watermarks=..., "
                "or the state clock='processing'"
            )
        return seen

    def _time_of_clock_timer(self) -> int | None:
        """The event time of what a timer of the clock gives out, which tells nothing of event time itself.

        It is right behind the watermark that the key has seen, before a restore as well: late for nobody,
        and ahead of nobody. Before the first watermark, it is that of the newest record.
        """
        seen = self._reached_in(self._seen)
        return self._newest_ms if seen == NO_WATERMARK else seen + 1

    @property
    def _reached(self) -> int:
        """The watermark that the current key has seen, the end of input left aside."""
        return self._reached_in(self._times)

    def _reached_in(self, times: EventTimes) -> int:
        if not times.differ:
            return times.reached
        groups = key_groups([self.state.key], self.ctx.max_parallelism)
        return int(times.reached_by(groups)[0])

    def _event_time_of_all(self) -> int | None:
        seen = self._times.reached
        return None if seen == NO_WATERMARK else seen

    def _fire(
        self, domain: TimeDomain, pop: Callable[[], tuple[int, Any] | None]
    ) -> Iterator[None]:
        """Fire all timers that `pop` gives, one a step; those set meanwhile included."""
        while (due := pop()) is not None:
            at, key = due
            self.domain, self.state.key = domain, key
            self._clock.tick()
            # A timer for the end of input may be later than all windows: its results would be in none.
            time = min(at, LATEST_MS)
            self.timestamp = time if domain == "event" else self._time_of_clock_timer()
            self.state.change((key,))
            with Calling(self.ctx.label, f"timer at {at} of key {shown(key)}"):
                emit_results([(due, self._process.on_timer(at, self), self.timestamp)], self.ctx)
            yield


def _timer_ms(at: int | dt.datetime) -> int:
    """The time of a timer. Raises ValueError for one before all events, or too late to be stored.

    One that is later than all events stands for the end of input.
    """
    time = event_time_ms(at)
    if not EARLIEST_MS <= time <= MAX_WATERMARK:
        raise ValueError(
            f"a timer cannot be set for {time} milliseconds since 1970: times are in the years 1 to 9999. "
            "A timer for the end of input may be as late as 2**63 - 1"
        )
    return time
