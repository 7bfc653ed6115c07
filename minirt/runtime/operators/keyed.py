"""Operators with state per key."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from minirt.data.batch import Batch, Rows
from minirt.errors import UserCodeError
from minirt.functions import KeyedCoProcess, KeyedProcess, TimeDomain
from minirt.graph.key_groups import group_range
from minirt.protocol.watermarks import MAX_WATERMARK
from minirt.runtime.operators.base import Operator, OperatorContext, user_error
from minirt.runtime.operators.stateless import (
    ContextOperator,
    Produced,
    emit_results,
    rows_with_times,
)
from minirt.state.handles import bind_states
from minirt.state.keyed import KeyedState
from minirt.state.sections import Section
from minirt.state.stored import STATE, TIMERS
from minirt.state.timers import Timers
from minirt.units import event_time_ms

_MISSING = object()


class KeyedOperator(Operator):
    """Owns the keyed state of its key groups."""

    def __init__(self, ctx: OperatorContext) -> None:
        super().__init__(ctx)
        groups = group_range(ctx.subtask, ctx.parallelism, ctx.max_parallelism)
        self._groups = groups
        self.state = KeyedState(ctx.max_parallelism, groups, allow_pickle=ctx.allow_pickle)

    def snapshot(self) -> Mapping[str, Section]:
        return _named(STATE, self.state.snapshot())

    def builds_on(self) -> Mapping[str, Collection[str]]:
        return {STATE + name: paths for name, paths in self.state.builds_on().items()}

    def on_stored(self, path: str) -> None:
        self.state.on_stored(path)

    def restore(self, sections: Mapping[str, bytes], *, exact: bool) -> None:
        self.state.restore(_only(STATE, sections), filter_groups=not exact)


class ReduceOperator(KeyedOperator):
    """Emits the combined value of a key after each of its records."""

    def __init__(
        self,
        ctx: OperatorContext,
        key_of: Callable[[Any], Any],
        function: Callable[[Any, Any], Any],
    ) -> None:
        super().__init__(ctx)
        self._key_of = key_of
        self._function = function
        self._values = self.state.table("value")

    def process(self, batch: Batch, input_index: int) -> None:
        rows = batch.rows()
        values, combine, key_of = self._values, self._function, self._key_of
        missing, known = _MISSING, self._values.get
        results: list[Any] = []
        append = results.append
        try:
            keys = [key_of(record) for record in rows.records]
            self.state.change(keys)
            for key, record in zip(keys, rows.records, strict=True):
                value = known(key, missing)
                value = record if value is missing else combine(value, record)
                values[key] = value
                append(value)
        except Exception as error:
            raise user_error(self.ctx.label, error) from error
        self.ctx.emit(Rows(results, rows.timestamps))


class KeyedProcessOperator(ContextOperator, KeyedOperator):
    """Runs a user's KeyedProcess or KeyedCoProcess."""

    def __init__(
        self,
        ctx: OperatorContext,
        keys: tuple[Callable[[Any], Any], ...],
        process: KeyedProcess | KeyedCoProcess,
    ) -> None:
        super().__init__(ctx)
        self._keys = keys
        self._process = process
        self._handlers = (
            (process.process_left, process.process_right)
            if isinstance(process, KeyedCoProcess)
            else (process.process,)
        )
        self._timers = Timers(ctx.max_parallelism, self._groups)
        self.domain: TimeDomain = "event"

    # What the user's function sees of it.

    @property
    def key(self) -> Any:
        return self.state.key

    def set_timer(self, at: int | dt.datetime) -> None:
        self._timers.set("event", event_time_ms(at), self.state.key)

    def set_processing_timer(self, at: int | dt.datetime) -> None:
        self._timers.set("processing", event_time_ms(at), self.state.key)

    def delete_timer(self, at: int | dt.datetime) -> None:
        self._timers.delete("event", event_time_ms(at), self.state.key)

    def delete_processing_timer(self, at: int | dt.datetime) -> None:
        self._timers.delete("processing", event_time_ms(at), self.state.key)

    # What the subtask sees of it.

    def open(self) -> None:
        bind_states(self._process, self.state)
        self._process.open()

    def close(self) -> None:
        self._process.close()

    def process(self, batch: Batch, input_index: int) -> None:
        self.domain = "event"
        try:
            emit_results(self._results(batch.rows(), input_index), self.ctx.emit)
        except Exception as error:
            raise user_error(self.ctx.label, error) from error

    def on_watermark(self, watermark: int) -> Iterable[None]:
        self.watermark = watermark
        return self._fire("event", watermark)

    def on_processing_time(self, now_ms: int) -> Iterator[None]:
        return self._fire("processing", now_ms)

    @property
    def next_processing_time(self) -> int | None:
        return self._timers.next("processing")

    def on_end(self) -> Iterable[None]:
        """Processing-time timers that are still pending fire now rather than never."""
        return self._fire("processing", MAX_WATERMARK)

    def snapshot(self) -> Mapping[str, Section]:
        return {**super().snapshot(), **_named(TIMERS, self._timers.snapshot())}

    def restore(self, sections: Mapping[str, bytes], *, exact: bool) -> None:
        super().restore(sections, exact=exact)
        self._timers.restore(_only(TIMERS, sections), filter_groups=not exact)

    def _results(self, rows: Rows, input_index: int) -> Iterator[Produced]:
        state, key_of, handle = self.state, self._keys[input_index], self._handlers[input_index]
        keys = [key_of(record) for record in rows.records]
        state.change(keys)
        for key, (record, time) in zip(keys, rows_with_times(rows), strict=True):
            state.key = key
            self.timestamp = time
            yield record, handle(record, self), time

    def _fire(self, domain: TimeDomain, until: int) -> Iterator[None]:
        """Fire all timers up to `until`, one a step; those set meanwhile included."""
        while (due := self._timers.pop_due(domain, until)) is not None:
            at, key = due
            self.domain, self.state.key = domain, key
            self.timestamp = at
            self.state.change((key,))
            try:
                emit_results([(due, self._process.on_timer(at, self), at)], self.ctx.emit)
            except Exception as error:
                raise _timer_error(self.ctx.label, error, at, key) from error
            yield


def _named(prefix: str, sections: Mapping[str, Section]) -> dict[str, Section]:
    return {prefix + name: data for name, data in sections.items()}


def _only(prefix: str, sections: Mapping[str, bytes]) -> dict[str, bytes]:
    return {
        name.removeprefix(prefix): data
        for name, data in sections.items()
        if name.startswith(prefix)
    }


def _timer_error(label: str, error: Exception, at: int, key: Any) -> Exception:
    wrapped = user_error(label, error, f"timer at {at} of key {key!r}")
    return wrapped if isinstance(wrapped, UserCodeError) else error
