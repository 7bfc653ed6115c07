"""Windows that overlap: a table for each pane, merged when a window is over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minirt.data.batch import Columns
from minirt.data.simple_columns import simple
from minirt.kernels.contract import Slots
from minirt.operators.common.aggregation import CHUNK_KEYS
from minirt.operators.common.base import OperatorContext
from minirt.operators.common.calling import Calling
from minirt.operators.windows.frame import WindowFrame, by_value, part_of
from minirt.operators.windows.outlet import Outlet, Pane, Task
from minirt.protocol.watermarks import MAX_WATERMARK
from minirt.state.accumulators import Arrivals
from minirt.state.array_table import ArrayTable, Times
from minirt.state.group_times import GroupMarks
from minirt.state.panes import MergedPanes, Part
from minirt.state.sections import Section
from minirt.state.stored import EVENT_TIME
from minirt.windows import PanedWindow

_PANE = "pane/"
_FIRED = f"{EVENT_TIME}/fired"


class SlidingFrame(WindowFrame):
    """Keeps a table for each pane of which a window is open.

    What was given out is known by key group: a mark says up to which end all windows were. A window is
    given out group by group, and a snapshot in between stores the marks.
    """

    def __init__(self, ctx: OperatorContext, task: Task, outlet: Outlet | None = None) -> None:
        super().__init__(ctx, task, outlet)
        assert isinstance(task.window, PanedWindow)
        self._window = task.window
        self._arrivals = Arrivals()
        self._empty = ArrayTable(
            self._keys,
            task.aggregates,
            ctx.label,
            routing=self._routing,
            arrivals=self._arrivals,
        )
        self._panes: dict[int, ArrayTable] = {}
        self._merged = MergedPanes(self._panes, self._empty)
        self._fired = GroupMarks(self._groups)
        self._first_open: int | None = None
        """All windows before this one were given out to all; None if that is not known."""
        self._changed: dict[int, ArrayTable] = {}
        """By pane, the keys that have changed since early results were given out."""

    def take(self, columns: Columns, times: Times | None) -> None:
        assert times is not None
        panes = self._window.panes_of(times)
        if self._closes_at(int(panes.min())) <= self._times.greatest:
            late = self._closings(panes) <= self._watermarks(columns)
            if late.any():
                self._put_aside(columns, late)
                columns, panes = columns.where(~late), panes[~late]
        self._arrivals.come(len(columns))
        for pane, rows in by_value(panes):
            part = part_of(columns.table, rows)
            self._arrivals.of_part(rows)
            with Calling(self.ctx.label, otherwise=part.schema.names):
                self._add(pane, part)
            self._merged.changed(pane)
        self._follow(columns.table, panes)

    def _add(self, pane: int, part: pa.RecordBatch) -> None:
        """Panes are merged, so their columns are all of one type."""
        table = self._open(pane)
        before = table.types
        table.add_rows(part, None)
        if before is not None and table.types != before:
            self._align(table)

    def _align(self, newest: ArrayTable) -> None:
        """Give the columns of all panes the types that those of one have got."""
        types = newest.types
        assert types is not None
        for pane, table in self._panes.items():
            table.take_types(types)
            self._merged.changed(pane)

    def fire(self) -> Iterator[None]:
        for window in self._due():
            yield from self._fire_window(window)
        for pane in sorted(self._panes):
            if self._closes_at(pane) > self._times.least:
                break
            del self._panes[pane]
            self._changed.pop(pane, None)
            self._merged.changed(pane)
        if self._times.least == MAX_WATERMARK:
            self._fired.clear()  # The end is not stored, as a restored job may go on.
            self._first_open = None
        else:
            # Also windows without records: one that comes later is not to open them again.
            self._fired.mark_all(self._times.least + 1)

    def fire_early(self) -> Iterator[None]:
        changed, self._changed = self._changed, {}
        windows = {window for pane in changed for window in self._windows(pane)}
        for window in sorted(windows):
            if self._window.end_of(window) - 1 <= self._times.least:
                continue
            first = window * self._window.step
            keys = self._empty.of_keys()
            for pane in filter(range(first, first + self._window.panes).__contains__, changed):
                keys.list_keys(changed[pane].keys(changed[pane].live()))
            batch = pa.RecordBatch.from_arrays(keys.keys(keys.live()), self._keys)
            batch = self._not_given(window, batch)
            if len(batch):
                self._give_again(window, batch, "early")
                yield

    def tables(self) -> Mapping[str, ArrayTable]:
        return {f"{_PANE}{self._window.start_of(n)}": pane for n, pane in self._panes.items()}

    def table_named(self, name: str) -> ArrayTable:
        [number] = self._window.panes_of(np.array([int(name.removeprefix(_PANE))])).tolist()
        return self._open(number)

    def snapshot(self) -> Mapping[str, Section]:
        return {**super().snapshot(), _FIRED: self._fired.snapshot()}

    def restore(self, sections: Mapping[str, bytes], *, exact: bool) -> None:
        super().restore(sections, exact=exact)
        if _FIRED in sections:
            self._fired.restore(sections[_FIRED])

    def restored(self) -> None:
        """Panes of before types were widened in all of them may have several."""
        for table in [*self._panes.values()]:
            if table.types is not None:
                self._align(table)
        if self._task.emission.when == "interval":
            for pane, table in self._panes.items():
                if len(table):
                    self._note(table.keys(table.live()), pane)

    def _due(self) -> Iterator[int]:
        """The windows that are over and were not given out to all, in their order."""
        if not self._panes:
            return
        window, last = self._window.first_window(min(self._panes)), max(self._panes)
        newest, fired = self._window.last_window(last), self._fired.least
        if self._first_open is not None:
            window = max(window, self._first_open)
        while window <= newest and self._window.end_of(window) - 1 <= self._times.least:
            given = self._window.end_of(window) <= fired
            window += 1
            if given:
                self._first_open = window
            else:
                yield window - 1
            if window * self._window.step not in self._panes:
                window = self._first_filled(window)

    def _first_filled(self, window: int) -> int:
        """The first window from this one on that has a pane with records."""
        first = window * self._window.step
        ahead = [pane for pane in self._panes if pane >= first]
        return max(window, self._window.first_window(min(ahead))) if ahead else window

    def _fire_window(self, window: int) -> Iterator[None]:
        end = self._window.end_of(window)
        part = self._part(window)
        if part is not None:
            groups = self._merged.groups(part, self.ctx.max_parallelism)
            if self._fired.least < end:
                order = self._by_group(part, groups)
                order = order[self._fired.of(groups[order]) < end]
                for places in _by_group(groups, order):
                    self._show_part(window, part, places, "on_time")
                    self._fired.mark(groups[places], end)
                    yield
            self._merged.forget_unused(part)
        self._fired.mark_all(end)

    def _by_group(self, part: Part, groups: npt.NDArray[np.int64]) -> Slots:
        """The places of a part, group by group."""
        # numpy sorts short numbers by their digits, in a tenth of the time.
        short = groups.astype(np.uint16)
        if not self.ctx.repeats:
            return np.argsort(short, kind="stable")
        places = self._merged.by_key(part, np.arange(len(groups)))
        return places[np.argsort(short[places], kind="stable")]

    def _follow(self, table: pa.RecordBatch, panes: Times) -> None:
        """Give out windows that these records have changed: those given out before, and early ones."""
        updates = self._task.emission.when == "updates"
        if not (updates or self._lateness or self._task.emission.when == "interval"):
            return
        again: dict[tuple[int, Pane], list[pa.RecordBatch]] = {}
        for pane, rows in by_value(panes):
            keys = part_of(table.select(list(self._keys)), rows)
            groups = self._empty.key_groups(keys, self.ctx.max_parallelism)
            fired, seen = self._fired.of(groups), self._seen(groups)
            for window in self._windows(pane):
                end = self._window.end_of(window)
                out = (fired >= end) & (end - 1 + self._lateness > seen)
                if out.any():
                    again.setdefault((window, "late"), []).append(keys.filter(pa.array(out)))
                coming = fired < end
                if updates and coming.any():
                    again.setdefault((window, "early"), []).append(keys.filter(pa.array(coming)))
            if self._task.emission.when == "interval":
                self._note([simple(column) for column in keys.columns], pane)
        for (window, mark), batches in sorted(again.items(), key=lambda item: item[0]):
            for batch in batches:
                self._give_again(window, batch, mark)

    def _not_given(self, window: int, keys: pa.RecordBatch) -> pa.RecordBatch:
        """The keys that were not given this window yet: after a restore some may be ahead of others."""
        fired = self._fired.of(self._empty.key_groups(keys, self.ctx.max_parallelism))
        return keys.filter(pa.array(fired < self._window.end_of(window)))

    def _note(self, keys: Sequence[pa.Array], pane: int) -> None:
        if pane not in self._changed:
            self._changed[pane] = self._empty.of_keys()
        self._changed[pane].list_keys(keys)

    def _give_again(self, window: int, keys: pa.RecordBatch, mark: Pane) -> None:
        part = self._part(window)
        assert part is not None
        places = self._merged.places(part, keys)
        if self.ctx.repeats:
            places = self._merged.by_key(part, places)
        self._show_part(window, part, places, mark)

    def _part(self, window: int) -> Part | None:
        first = window * self._window.step
        with self._giving_out:
            return self._merged.window(first, first + self._window.panes)

    def _show_part(self, window: int, part: Part, places: Slots, mark: Pane) -> None:
        chosen = Part(part.keys[places], part.slots[places], part.types, part.accumulators)
        with self._giving_out:
            columns = [held.result(chosen.slots) for held in chosen.accumulators]
        names = [*self._keys, *(aggregate.output for aggregate in self._task.aggregates)]
        results = pa.RecordBatch.from_arrays([*self._merged.keys(chosen), *columns], names)
        start = self._window.start_of(window * self._window.step)
        self._show(results, (start, self._window.end_of(window)), mark)

    def _open(self, pane: int) -> ArrayTable:
        if pane not in self._panes:
            known = next(iter(self._panes.values()), self._empty)
            self._panes[pane] = known.without_keys()
        return self._panes[pane]

    def _windows(self, pane: int) -> range:
        return range(self._window.first_window(pane), self._window.last_window(pane) + 1)

    def _closes_at(self, pane: int) -> int:
        """The watermark that makes further records of the pane late, for all its windows."""
        return self._window.end_of(self._window.last_window(pane)) - 1 + self._lateness

    def _closings(self, panes: Times) -> Times:
        distinct, places = np.unique(panes, return_inverse=True)
        return np.array([self._closes_at(pane) for pane in distinct.tolist()])[places]

    def _watermarks(self, columns: Columns) -> Times | int:
        """The watermark that the key of each record has seen."""
        if not self._times.differ:
            return self._times.least
        return self._seen(self._empty.key_groups(columns.table, self.ctx.max_parallelism))


def _by_group(groups: npt.NDArray[np.int64], order: Slots) -> Iterator[Slots]:
    """Places that go by group, in chunks that end where a group does."""
    ends = np.append(np.flatnonzero(np.diff(groups[order])) + 1, len(order))
    first = 0
    for end, following in zip(ends, [*ends[1:], None], strict=True):
        if end > first and (following is None or following - first > CHUNK_KEYS):
            yield order[first:end]
            first = int(end)
