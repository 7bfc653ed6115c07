"""One window of all records of a key, whose results are given out when time has passed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from minirt.data.batch import Columns
from minirt.operators.common.aggregation import CHUNK_KEYS
from minirt.operators.common.base import OperatorContext
from minirt.operators.common.calling import Calling
from minirt.operators.windows.frame import WindowFrame
from minirt.operators.windows.outlet import Outlet, Task
from minirt.protocol.watermarks import MAX_WATERMARK
from minirt.state.array_table import ArrayTable, Times
from minirt.state.stored import NO_WATERMARK
from minirt.windows import AfterTime, GlobalWindow

_TABLE = "value"


class EverythingFrame(WindowFrame):
    def __init__(self, ctx: OperatorContext, task: Task, outlet: Outlet | None = None) -> None:
        super().__init__(ctx, task, outlet)
        assert isinstance(task.window, GlobalWindow)
        assert isinstance(task.window.trigger, AfterTime)
        self._trigger, self._purge = task.window.trigger, task.window.purge
        self._values = self._table()
        self._turn: int | None = None
        """How often the interval fits into the watermark at which results were given out last."""

    def take(self, columns: Columns, times: Times | None) -> None:
        with Calling(self.ctx.label, otherwise=columns.table.schema.names):
            changed = self._values.add(columns.table, times)
        self._values.hold_back(changed)
        if self._trigger.clock == "processing" and self._early_at is None:
            self._early_at = self.ctx.monotonic() + self._trigger.interval_ms / 1000

    def fire(self) -> Iterator[None]:
        least = self._times.least
        turn = least // self._trigger.interval_ms
        if self._turn is None:
            self._turn = turn
        if least == MAX_WATERMARK or (self._trigger.clock == "event" and turn != self._turn):
            self._turn = turn
            yield from self.fire_early()

    def fire_early(self) -> Iterator[None]:
        while len(pending := self._ordered(self._values, self._values.pending())[:CHUNK_KEYS]):
            with self._giving_out:
                results, times = self._values.give_out(pending)
            if self._purge:
                self._values.drop(pending)
            self._show(results, None, "on_time", times)
            yield

    def tables(self) -> Mapping[str, ArrayTable]:
        return {_TABLE: self._values}

    def table_named(self, name: str) -> ArrayTable:
        return self._values

    def restored(self) -> None:
        if self._times.least != NO_WATERMARK:
            self._turn = self._times.least // self._trigger.interval_ms
        if self._trigger.clock == "processing" and len(self._values.pending()):
            self._early_at = self.ctx.monotonic() + self._trigger.interval_ms / 1000
