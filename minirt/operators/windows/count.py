"""Windows of so many records: a table of panes, and one of how many records each key has had."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from minirt.aggregates import Count
from minirt.data.batch import Columns
from minirt.kernels.contract import Slots
from minirt.operators.common.base import OperatorContext
from minirt.operators.common.calling import Calling
from minirt.operators.windows.frame import WindowFrame, part_of
from minirt.operators.windows.outlet import Outlet, Task
from minirt.state.accumulators import Arrivals
from minirt.state.array_table import ArrayTable, Times
from minirt.windows import AfterCount, CountWindow, GlobalWindow

_SEEN, _PANES = "seen", "pane"

PANE = "\x1epane"
_TOTAL = -1
"""Stands for the number of a pane where all that a key has had so far is added up."""


class CountFrame(WindowFrame):
    """Numbers the records of each key. A pane that is full is merged into the windows that end with it."""

    def __init__(self, ctx: OperatorContext, task: Task, outlet: Outlet | None = None) -> None:
        super().__init__(ctx, task, outlet)
        match task.window:
            case CountWindow(size=size, every=every):
                self._size, self._every, self._pane = size, every, task.window.pane
            case GlobalWindow(trigger=AfterCount(count=count)):
                self._size = self._every = self._pane = count
        self._running = isinstance(task.window, GlobalWindow) and not task.window.purge
        self._forgets = self._size == self._every and not self._running
        """Whether a key is as it was before its first record, once its window is full."""
        self._seen_records = self._table(aggregates=(Count("seen"),))
        self._panes = ArrayTable(
            [*self._keys, PANE],
            task.aggregates,
            ctx.label,
            routing=self._routing,
            arrivals=Arrivals(),
        )

    def take(self, columns: Columns, times: Times | None) -> None:
        table = columns.table
        keys = self._seen_records.add_rows(table.select(list(self._keys)), None)
        distinct, places = np.unique(keys, return_inverse=True)
        after, _ = self._seen_records.numbers(0, distinct)
        before = after - np.bincount(places)
        numbers = before[places] + _ranks(places)
        while len(numbers):
            # As many records as do not fill a window after the next one of their key.
            turn = (before - self._size) // self._every + 1
            limit = np.maximum(turn, 0) * self._every + self._size
            now = numbers < limit[places]
            self._add(table, numbers, times, now)
            before = np.minimum(after, limit)
            full = (before == limit) & np.isin(np.arange(len(limit)), places[now])
            self._give_out(distinct[full], np.maximum(turn, 0)[full])
            later = ~now
            rows = np.flatnonzero(later)
            table, numbers, places = part_of(table, rows), numbers[later], places[later]
            times = None if times is None else times[later]
        if self._forgets:
            done = distinct[after % self._size == 0]
            self._seen_records.drop(done)

    def fire(self) -> Iterator[None]:
        yield from ()

    def tables(self) -> Mapping[str, ArrayTable]:
        return {_SEEN: self._seen_records, _PANES: self._panes}

    def table_named(self, name: str) -> ArrayTable:
        return self.tables()[name]

    def _add(
        self, table: pa.RecordBatch, numbers: Times, times: Times | None, now: Sequence[bool]
    ) -> None:
        if not np.any(now):
            return
        rows = np.flatnonzero(now)
        part = part_of(table, rows).append_column(PANE, pa.array(numbers[rows] // self._pane))
        with Calling(self.ctx.label, otherwise=part.schema.names):
            self._panes.add_rows(part, None if times is None else times[rows])

    def _give_out(self, keys: Slots, windows: Times) -> None:
        """Give out one full window of each of these keys, and free what no later one needs."""
        if not len(keys):
            return
        if self.ctx.repeats:
            order = self._seen_records.key_order(keys)
            keys, windows = keys[order], windows[order]
        first, panes = windows * (self._every // self._pane), self._size // self._pane
        columns = self._seen_records.keys(keys)
        if self._running:
            self._give_out_all(columns, first)
            return
        slots = [self._find(columns, first + apart) for apart in range(panes)]
        _, accumulators = self._panes.fresh()
        for place, held in enumerate(accumulators):
            own = self._panes.contents[1][place]  # type: ignore[index]
            held.make_room(len(keys))
            for each in slots:
                with self._panes.naming_sums(place, lambda of: [c.take(of) for c in columns]):
                    held.merge(np.arange(len(keys)), own, each)
        times = np.max([self._panes.times(each) for each in slots], axis=0)
        self._show_results(
            columns, [held.result(np.arange(len(keys))) for held in accumulators], times
        )
        self._panes.drop(np.concatenate(slots[: self._every // self._pane]))

    def _give_out_all(self, columns: list[pa.Array], pane: Times) -> None:
        full = self._find(columns, pane)
        total = self._find(columns, np.full(len(pane), _TOTAL))
        self._panes.merge(total, full)
        results, times = self._panes.results(total)
        keys = len(self._keys)
        self._show_results(columns, results.columns[keys + 1 :], times)
        self._panes.drop(full)

    def _find(self, columns: list[pa.Array], panes: Times) -> Slots:
        return self._panes.list_keys([*columns, pa.array(panes, pa.int64())])

    def _show_results(
        self, keys: list[pa.Array], results: Sequence[pa.Array], times: Times | None
    ) -> None:
        names = [*self._keys, *(aggregate.output for aggregate in self._task.aggregates)]
        shown = pa.RecordBatch.from_arrays([*keys, *results], names)
        known = times is not None and (times > np.iinfo(np.int64).min).all()
        self._show(shown, None, "on_time", times if known else None)


def _ranks(places: Slots) -> Slots:
    """How many equal ones there are before each."""
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    first = np.append(True, ordered[1:] != ordered[:-1])
    starts = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    ranks = np.empty(len(order), np.intp)
    ranks[order] = np.arange(len(order)) - starts
    return ranks
