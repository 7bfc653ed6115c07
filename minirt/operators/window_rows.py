"""`window(...).reduce` and `window(...).process`: functions over the records of windows.

The windows are those that columns have: `minirt.operators.windows` runs them, over entries of Python
objects in place of numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from minirt.data.batch import Batch, Columns, Rows
from minirt.data.keys import distinct_keys, exact_keys
from minirt.errors import ConfigurationError
from minirt.functions import KeyedProcess, Process, WindowPane, WindowProcess
from minirt.graph.operator_spec import (
    Form,
    OperatorSpec,
    Site,
    StateDealing,
    class_name,
    function_name,
)
from minirt.operators.common.base import Operator, OperatorContext
from minirt.operators.common.calling import Calling, result_of_each
from minirt.operators.common.checks import check_hooks, check_instance
from minirt.operators.common.clock_use import asks_for_clock
from minirt.operators.common.functions import check_declared, check_function
from minirt.operators.common.keyed import KeyedOperator, check_stored_keys
from minirt.operators.common.results import ContextOperator, Produced, emit_results, several
from minirt.operators.window import (
    check_emission,
    emission_details,
    gives_again,
    waits_for_clock,
)
from minirt.operators.windows import frame_of
from minirt.operators.windows.held import ROW, Exchange, HeldRecords, HeldValue
from minirt.operators.windows.outlet import LATE_TAG, Bounds, Outlet, Pane, Task
from minirt.operators.windows.states import TABLE, WindowStates, has_state
from minirt.protocol.watermarks import MAX_WATERMARK
from minirt.state.array_table import Times
from minirt.state.binding import declarations
from minirt.state.kinds_of_state import KindsOfState
from minirt.state.row_keys import HASHED, PACKED, key_columns
from minirt.state.sections import Section
from minirt.state.stored import STATE, STATE_KINDS, STRETCH
from minirt.windows import AT_THE_END, CountWindow, Emission, GlobalWindow, Session, Window

Function = Callable[[Any, Any], Any]

_STATES = (STATE + TABLE, STATE + TABLE + STRETCH)
"""The sections of what a process keeps for each window."""


@dataclass(frozen=True, slots=True)
class RowWindowSpec(OperatorSpec):
    """Combines the records of each key and window by a function, or hands them to a process, or both."""

    kind: ClassVar = "row_window"
    inputs: ClassVar = 1
    state: ClassVar = StateDealing.BY_KEY_GROUP
    takes: ClassVar = Form.ROWS

    window: Window
    function: Function | None = None
    process: WindowProcess | None = None
    emission: Emission = AT_THE_END

    @property
    def keyed(self) -> bool:
        return True

    @property
    def in_arrays(self) -> bool:
        """Windows are kept in tables."""
        return True

    @property
    def subject(self) -> str | None:
        return function_name(self.function) if self.process is None else class_name(self.process)

    @property
    def repeats_batches(self) -> bool:
        return gives_again(self.window, self.emission)

    @property
    def by_clock(self) -> bool:
        return waits_for_clock(self.window) or asks_for_clock(self.process)

    @property
    def needs_event_time(self) -> bool:
        return self.window.in_event_time

    @property
    def late_after_ms(self) -> int | None:
        return self.window.allowed_lateness_ms if self.window.in_event_time else None

    @property
    def details(self) -> str:
        return emission_details(self.window, self.emission)

    @property
    def owned(self) -> object | None:
        return self.process

    def check(self, site: Site) -> None:
        if self.function is not None:
            check_function(
                self.function, site.label, "the value so far", "the record", returns="the new value"
            )
        if self.function is None or self.process is not None:
            _check_process(self.process, self.window, site.label)
        check_emission(self.window, self.emission, site.label)

    def side_output(self, tag: str, label: str) -> Form:
        if tag != LATE_TAG and self.process is None:
            raise ConfigurationError(
                f"{label}: windows have one side output, {LATE_TAG!r}, and no {tag!r}; a WindowProcess "
                "can have others"
            )
        if tag == LATE_TAG and not self.window.in_event_time:
            raise ConfigurationError(
                f"{label}: nothing is late for {self.window.words}: they do not go by event time"
            )
        return Form.ROWS

    def build(self, ctx: OperatorContext) -> Operator:
        return RowWindowOperator(ctx, self)


class RowWindowAllSpec(RowWindowSpec):
    """As `RowWindowSpec`, of all records of a stream without keys: one subtask sees them all."""

    kind: ClassVar = "row_window_all"
    state: ClassVar = StateDealing.BY_OPERATOR

    @property
    def keyed(self) -> bool:
        return False


class RowWindowOperator(ContextOperator, Outlet):
    """Has a frame that keeps the windows, whose outlet it is; and is the context of the user's process."""

    def __init__(self, ctx: OperatorContext, spec: RowWindowSpec) -> None:
        super().__init__(ctx)
        self.key: Any = None
        self.start: int | None = None
        self.end: int | None = None
        self.pane: WindowPane = "on_time"
        self._key_of = ctx.keys[0].on_rows() if spec.keyed else None
        self._key_columns = ctx.keys[0].columns if spec.keyed else ()
        self._window, self._process = spec.window, spec.process
        self._exchange = Exchange()
        held = HeldRecords(ROW, "records", exchange=self._exchange, ctx=ctx)
        if spec.function is not None:
            held = HeldValue(ROW, "value", exchange=self._exchange, ctx=ctx, function=spec.function)
        self._reduces = spec.function is not None
        task = Task(spec.window, (held,), spec.emission, keys=(HASHED, PACKED), routing=1)
        self._frame = frame_of(spec.window)(ctx, task, self)
        self._keyed = KeyedOperator(ctx)
        self._states: WindowStates | None = None
        self._kinds = KindsOfState.of_process(ctx.label, spec.process)
        self._late = ctx.side(LATE_TAG)
        self._once = isinstance(spec.window, CountWindow) or (
            isinstance(spec.window, GlobalWindow) and spec.window.purge
        )
        """Whether a window gives one result, so that nothing has to be kept for a later one."""

    # What the subtask sees of it.

    def open(self) -> None:
        if self._process is not None:
            if has_state(self._process):
                by_end = not isinstance(self._window, Session)
                self._states = WindowStates(
                    self._process, self._keyed.state, self.ctx.custody, by_end=by_end
                )
                self._states.restored(self._kinds)
            self._process.open()
        if self._states is None:
            self._keyed.state.empty(TABLE)
        self._frame.open()

    def close(self) -> None:
        if self._process is not None:
            self._process.close()

    def process(self, batch: Batch, input_index: int) -> None:
        if not len(batch):
            return
        rows = batch.rows()
        keys = exact_keys(self._keys_of(rows.records), batch, self._key_columns)
        self._exchange.records, self._exchange.keys = rows.records, keys
        columns = [*key_columns(distinct_keys(keys)), pa.array(np.arange(len(keys)))]
        table = pa.RecordBatch.from_arrays(columns, [HASHED, PACKED, ROW])
        times = None if rows.timestamps is None else np.array(rows.timestamps, np.int64)
        self._frame.process(Columns(table, times), input_index)
        self._exchange.clear()

    def on_watermark(self, watermark: int) -> Iterator[None]:
        self.watermark = watermark
        return self._then_forget(self._frame.on_watermark(watermark), watermark)

    @property
    def due_at(self) -> float | None:
        return self._frame.due_at

    def on_due(self) -> Iterator[None]:
        return self._frame.on_due()

    def snapshot(self) -> Mapping[str, Section]:
        return {**self._frame.snapshot(), **self._kinds.beside(self._keyed.snapshot())}

    def builds_on(self) -> Mapping[str, Collection[str]]:
        return {**self._frame.builds_on(), **self._keyed.builds_on()}

    def on_stored(self, path: str) -> None:
        self._frame.on_stored(path)
        self._keyed.on_stored(path)

    def restore(self, sections: Mapping[str, bytes], *, exact: bool) -> None:
        self._kinds.check(sections)
        own = {name: data for name, data in sections.items() if name in _STATES}
        self._keyed.restore(own, exact=exact)
        of_others = (*_STATES, STATE_KINDS)
        others = {name: data for name, data in sections.items() if name not in of_others}
        self._frame.restore(others, exact=exact)

    # What leaves the windows.

    def show(
        self, results: pa.RecordBatch, bounds: Bounds | None, pane: Pane, times: Times | None
    ) -> None:
        shown, starts, ends = self._entries(results, bounds)
        stamps = [] if times is None else times.tolist()
        if self._process is not None:
            with Calling(self.ctx.label, Where(self)):
                emit_results(self._processed(shown, starts, ends, stamps, pane), self.ctx)
        elif pane != "retracted":
            values = self.ctx.custody.lend_all([value for _, value in shown])
            self.ctx.emit(Rows(values, stamps or None))

    def late(self, batch: Batch) -> None:
        assert isinstance(batch, Columns)  # As `process` gives them to the frame.
        rows = batch.table.column(ROW).to_pylist()
        times = None if batch.timestamps is None else batch.timestamps.tolist()
        self._late(Rows([self._exchange.records[row] for row in rows], times))

    @property
    def follows_windows(self) -> bool:
        return self._states is not None

    def closed(self, results: pa.RecordBatch, bounds: Bounds) -> None:
        assert self._states is not None
        entries, starts, ends = self._entries(results, bounds)
        keys = distinct_keys([key for key, _ in entries])
        for key, start, end in zip(keys, starts, ends, strict=True):
            self._states.forget(key, start, end)

    # Steps of these.

    def _keys_of(self, records: list[Any]) -> list[Any]:
        if self._key_of is None:
            return [None] * len(records)
        with Calling(self.ctx.label):
            keys = result_of_each(self._key_of, records)
        check_stored_keys(keys, records, self.ctx.label)
        return keys

    def _then_forget(self, steps: Iterable[None], watermark: int) -> Iterator[None]:
        yield from steps
        if self._states is not None and watermark != MAX_WATERMARK:
            self._states.forget_until(watermark + 1 - self._window.allowed_lateness_ms)
        elif self._states is not None:
            self._states.forget_until(watermark)

    def _entries(
        self, results: pa.RecordBatch, bounds: Bounds | None
    ) -> tuple[list[list[Any]], list[int | None], list[int | None]]:
        """Each key with what is held, and when their windows begin and end."""
        count = results.num_rows
        places = results.column(results.num_columns - 1).to_pylist()
        shown = [self._exchange.shown[place] for place in places]
        self._exchange.shown = []
        if bounds is None:
            return shown, [None] * count, [None] * count
        starts, ends = (np.broadcast_to(np.asarray(at, np.int64), count).tolist() for at in bounds)
        return shown, starts, ends

    def _processed(
        self,
        shown: list[list[Any]],
        starts: list[int | None],
        ends: list[int | None],
        stamps: list[int],
        pane: Pane,
    ) -> Iterator[Produced]:
        """What the process makes of each window."""
        self.pane = pane
        names = distinct_keys([key for key, _ in shown]) if self._states is not None else shown
        for place, (key, held) in enumerate(shown):
            self.key, self.start, self.end = key, starts[place], ends[place]
            self.timestamp = stamps[place] if stamps else None
            yield held, self._call(names[place], held), self.timestamp

    def _call(self, name: Any, held: Any) -> Iterable[Any] | None:
        """Call the process for the current window; `name` is what its state goes by."""
        process, states = self._process, self._states
        assert process is not None
        if states is not None:
            states.enter(name, self.start, self.end, partial(process.merge, ctx=self))
        if self.pane == "retracted":
            results = process.retract(self)
        else:
            lend = self.ctx.custody.lend_all
            results = process.process(lend([held] if self._reduces else held), self)
        if states is None:
            return results
        return self._with_state(states, name, results)

    def _with_state(
        self, states: WindowStates, name: Any, results: Iterable[Any] | None
    ) -> Iterable[Any]:
        """The results; a generator may use state until the last of them."""
        if results is not None:
            yield from several(results)
        if not self._once:
            states.leave(name, self.start, self.end)

    @property
    def where(self) -> str:
        """The window in work, as messages name it."""
        of = "" if self._key_of is None else f" of key {self.key!r}"
        bounds = "" if self.start is None else f" from {self.start} to {self.end}"
        return f"the window{bounds}{of}"


class Where:
    """Stands for the window that an operator has in work when an error is put into words."""

    def __init__(self, operator: RowWindowOperator) -> None:
        self._operator = operator

    def __repr__(self) -> str:
        return self._operator.where


def _check_process(process: Any, window: Window, label: str) -> None:
    if isinstance(process, Process | KeyedProcess):
        raise ConfigurationError(
            f"{label}: windows call a WindowProcess, with all records of a window; "
            f"{type(process).__name__} is called for each record, so give it to a stream without window"
        )
    check_instance(process, WindowProcess, label)
    check_hooks(label, process, "open", "close", "process", "retract", "merge")
    check_declared(label, process)
    check_function(process.process, label, "the records", "the context", may_yield=True)
    check_function(process.retract, label, "the context", may_yield=True)
    states = declarations(type(process))
    for name, handle in states.items():
        if handle.ttl is not None:
            raise ConfigurationError(
                f"{label}: state {name!r} of {type(process).__name__} goes with its window; leave ttl out"
            )
    if states and isinstance(window, Session) and type(process).merge is WindowProcess.merge:
        raise ConfigurationError(
            f"{label}: sessions grow together, and so must what {type(process).__name__} keeps for each, "
            f"{', '.join(states)}: give it a method merge(self, other, ctx)"
        )
