"""Windows that do not overlap: a table for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from minirt.data.batch import Columns
from minirt.kernels.contract import Slots
from minirt.operators.common.aggregation import CHUNK_KEYS
from minirt.operators.common.base import OperatorContext
from minirt.operators.common.calling import Calling
from minirt.operators.windows.frame import WindowFrame, by_value, part_of
from minirt.operators.windows.outlet import Outlet, Pane, Task
from minirt.state.array_table import ArrayTable, Times
from minirt.state.numbers import Mask
from minirt.windows import PanedWindow

_WINDOW = "window/"


class TumblingFrame(WindowFrame):
    """Keeps a table for each window that is open: until the watermark passes its end, plus lateness.

    A record is *late* if its window is no longer open for its key. The watermark that the key has seen
    decides that. It is part of the state: otherwise a restore would open windows a second time that were
    given out before. The watermark of the subtask, which all its keys have seen, gives out results.
    """

    def __init__(self, ctx: OperatorContext, task: Task, outlet: Outlet | None = None) -> None:
        super().__init__(ctx, task, outlet)
        assert isinstance(task.window, PanedWindow)
        self._window = task.window
        self._empty = self._table()
        self._tables: dict[int, ArrayTable] = {}
        """By the number of the window."""
        self._changed: dict[int, list[Slots]] = {}
        """By window, what has changed since early results were given out."""

    def take(self, columns: Columns, times: Times | None) -> None:
        assert times is not None
        first, last = self._window.panes_of(np.array([times.min(), times.max()])).tolist()
        if first == last and self._closes_at(first) > self._times.greatest:
            self._add(first, columns.table)  # Most batches lie in one window.
        else:
            self._take_apart(columns, times)

    def _take_apart(self, columns: Columns, times: Times) -> None:
        """Take in records of several windows, or that may be late."""
        numbers = self._window.panes_of(times)
        if self._closes_at(int(numbers.min())) <= self._times.greatest:
            late = self._is_late(columns, numbers)
            if late.any():
                self._put_aside(columns, late)
                columns, numbers = columns.where(~late), numbers[~late]
        for number, rows in by_value(numbers):
            self._add(number, part_of(columns.table, rows))

    def fire(self) -> Iterator[None]:
        """Give out what is pending of all windows that are over; then close them."""
        for number in sorted(self._tables):
            if self._window.end_of(number) - 1 > self._times.least:
                return
            table = self._tables[number]
            self._changed.pop(number, None)
            pending = self._ordered(table, table.pending())
            for first in range(0, len(pending), CHUNK_KEYS):
                self._give_out(number, pending[first : first + CHUNK_KEYS], "on_time")
                yield
            if self._closes_at(number) <= self._times.least:
                del self._tables[number]

    def fire_early(self) -> Iterator[None]:
        for number in sorted(self._changed):
            for slots in _chunks(np.unique(np.concatenate(self._changed.pop(number)))):
                self._show_early(number, slots)
                yield

    def tables(self) -> Mapping[str, ArrayTable]:
        return {
            f"{_WINDOW}{self._window.start_of(number)}": table
            for number, table in self._tables.items()
        }

    def table_named(self, name: str) -> ArrayTable:
        [number] = self._window.panes_of(np.array([int(name.removeprefix(_WINDOW))])).tolist()
        return self._open(number)

    def restored(self) -> None:
        if self._task.emission.when == "interval":
            self._changed = {number: [table.pending()] for number, table in self._tables.items()}

    def _is_late(self, columns: Columns, numbers: Times) -> Mask:
        distinct, places = np.unique(numbers, return_inverse=True)
        closes = np.array([self._closes_at(number) for number in distinct.tolist()])[places]
        if not self._times.differ:
            late: Mask = closes <= self._times.least
            return late
        return closes <= self._seen(self._empty.key_groups(columns.table, self.ctx.max_parallelism))

    def _add(self, number: int, part: pa.RecordBatch) -> None:
        table = self._open(number)
        with Calling(self.ctx.label, otherwise=part.schema.names):
            changed = table.add(part, None)
        if self._window.end_of(number) - 1 <= self._times.least:
            self._give_out(number, changed, "late")
            return
        table.hold_back(changed)
        if self._task.emission.when == "updates":
            self._show_early(number, changed)
        elif self._task.emission.when == "interval":
            self._changed.setdefault(number, []).append(changed)

    def _give_out(self, number: int, slots: Slots, pane: Pane) -> None:
        with self._giving_out:
            results, _ = self._tables[number].give_out(slots)
        self._show(results, self._bounds(number), pane)

    def _show_early(self, number: int, slots: Slots) -> None:
        with self._giving_out:
            results, _ = self._tables[number].results(slots)
        self._show(results, self._bounds(number), "early")

    def _bounds(self, number: int) -> tuple[int, int]:
        return self._window.start_of(number), self._window.end_of(number)

    def _open(self, number: int) -> ArrayTable:
        if number not in self._tables:
            # The results of all windows have the same types, so any open window tells them.
            known = next(iter(self._tables.values()), self._empty)
            self._tables[number] = known.without_keys()
        return self._tables[number]

    def _closes_at(self, number: int) -> int:
        """The watermark that makes further records of the window late."""
        return self._window.end_of(number) - 1 + self._lateness


def _chunks(slots: Slots) -> Iterator[Slots]:
    for first in range(0, len(slots), CHUNK_KEYS):
        yield slots[first : first + CHUNK_KEYS]
