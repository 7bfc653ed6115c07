"""One window of all records of a key, whose results are given out when time has passed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from minirt.data.batch import Columns
from minirt.kernels.contract import Slots
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
        self._oldest = np.empty(0, np.int64)
        """By slot, the oldest event time of its records, until the first watermark comes."""

    def take(self, columns: Columns, times: Times | None) -> None:
        with Calling(self.ctx.label, otherwise=columns.table.schema.names):
            slots = self._values.add_rows(columns.table, times)
        self._values.hold_back(self._values.distinct(slots))
        if self._turn is None and times is not None and self._trigger.clock == "event":
            self._note_oldest(slots, times)
        if self._trigger.clock == "processing" and self._early_at is None:
            self._early_at = self.ctx.monotonic() + self._trigger.interval_ms / 1000

    def fire(self) -> Iterator[None]:
        least = self._times.least
        turn = least // self._trigger.interval_ms
        before, self._turn = self._turn, turn
        pending = self._values.pending()
        if least != MAX_WATERMARK:
            if self._trigger.clock != "event" or turn == before:
                return
            if before is None:
                pending = self._passed(pending, turn)
        yield from self._give_out(pending)

    def fire_early(self) -> Iterator[None]:
        yield from self._give_out(self._values.pending())

    def _give_out(self, pending: Slots) -> Iterator[None]:
        pending = self._ordered(self._values, pending)
        while len(pending):
            piece, pending = pending[:CHUNK_KEYS], pending[CHUNK_KEYS:]
            with self._giving_out:
                results, times = self._values.give_out(piece)
            if self._purge and (kept := self._values.drop(piece)) is not None:
                moved_to = np.zeros(int(kept.max(initial=0)) + 1, np.intp)
                moved_to[kept] = np.arange(len(kept))
                pending = moved_to[pending]
            self._show(results, None, "on_time", times)
            yield

    def _note_oldest(self, slots: Slots, times: Times) -> None:
        missing = self._values.used - len(self._oldest)
        if missing > 0:
            unknown = np.full(missing, MAX_WATERMARK)
            self._oldest = np.concatenate([self._oldest, unknown])
        np.minimum.at(self._oldest, slots, times)

    def _passed(self, pending: Slots, turn: int) -> Slots:
        """The slots for which the first watermark has passed a multiple of the interval.

        Event time began with their oldest records, as nothing is known of the time before.
        """
        oldest = self._values.times(pending)  # The newest ones, of what was restored.
        known = pending < len(self._oldest)
        oldest[known] = np.minimum(oldest[known], self._oldest[pending[known]])
        self._oldest = np.empty(0, np.int64)
        return pending[oldest // self._trigger.interval_ms < turn]

    def tables(self) -> Mapping[str, ArrayTable]:
        return {_TABLE: self._values}

    def table_named(self, name: str) -> ArrayTable:
        return self._values

    def restored(self) -> None:
        if self._times.least != NO_WATERMARK:
            self._turn = self._times.least // self._trigger.interval_ms
        if self._trigger.clock == "processing" and len(self._values.pending()):
            self._early_at = self.ctx.monotonic() + self._trigger.interval_ms / 1000
