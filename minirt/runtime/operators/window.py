"""Aggregates of keyed columns in windows of event time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from minirt.data.batch import Batch, Columns
from minirt.errors import UserCodeError
from minirt.graph.job_graph import LATE_TAG, WINDOW_END, WINDOW_START, WINDOW_TIME, WindowSpec
from minirt.protocol.watermarks import MAX_WATERMARK
from minirt.runtime.operators.aggregate import CHUNK_KEYS, outputs, own_groups
from minirt.runtime.operators.base import Operator, OperatorContext, user_error
from minirt.runtime.operators.columns import to_columns
from minirt.state.array_table import ArrayTable, Times
from minirt.state.key_columns import Slots
from minirt.state.sections import Section
from minirt.state.stored import EVENT_TIME, NO_WATERMARK, STATE, pack_event_time, unpack_event_time

_WINDOW = f"{STATE}window/"


class WindowOperator(Operator):
    """Keeps a table for each window that is open: until the watermark passes its end, plus lateness.

    A record is *late* if its window is no longer open. What is late is decided by the watermark, which
    is part of the state: else a restore would open windows a second time that were given out before.
    Only the end of event time is not, since a restored job may go on with more records.
    """

    def __init__(self, ctx: OperatorContext, spec: WindowSpec) -> None:
        super().__init__(ctx)
        self._spec = spec
        self._size = spec.window.size_ms
        self._empty = ArrayTable(spec.key.columns, spec.aggregates, ctx.label)
        self._tables: dict[int, ArrayTable] = {}
        """By the start of the window, in milliseconds."""
        self._time = NO_WATERMARK
        self._stored_time = NO_WATERMARK
        self._restored = False
        self._late = ctx.side(LATE_TAG)

    def process(self, batch: Batch, input_index: int) -> None:
        if not len(batch):
            return
        columns = to_columns(batch, self.ctx.label)
        times = columns.timestamps
        if times is None:
            raise UserCodeError(
                f"operator {self.ctx.label}: windows need event time, but these records have no "
                "timestamps; give their source watermarks=..."
            )
        starts = times - (times - self._spec.window.offset_ms) % self._size
        for start, rows in _by_value(starts):
            part = columns.table if rows is None else columns.table.take(pa.array(rows))
            if self._closes_at(start) <= self._time:
                self.ctx.metrics.late_records += part.num_rows
                self._late(Columns(part, times if rows is None else times[rows]))
            else:
                self._add(start, part)

    def on_watermark(self, watermark: int) -> Iterator[None]:
        self.watermark = watermark
        self._time = max(self._time, watermark)
        if watermark < MAX_WATERMARK:
            self._stored_time = self._time
        return self._fire()

    def snapshot(self) -> Mapping[str, Section]:
        sections: dict[str, Section] = {EVENT_TIME: pack_event_time(self._stored_time)}
        for start, table in self._tables.items():
            section = table.snapshot()
            if section is not None:
                sections[f"{_WINDOW}{start}"] = section
        return sections

    def builds_on(self) -> Mapping[str, Collection[str]]:
        return {f"{_WINDOW}{start}": table.builds_on() for start, table in self._tables.items()}

    def on_stored(self, path: str) -> None:
        for table in self._tables.values():
            table.on_stored(path)

    def restore(self, sections: Mapping[str, bytes], *, exact: bool) -> None:
        groups = own_groups(self.ctx, exact=exact)
        for name, section in sections.items():
            if name.startswith(_WINDOW):
                table = self._table(int(name.removeprefix(_WINDOW)))
                table.restore(section, groups, self.ctx.max_parallelism)
        if EVENT_TIME in sections:
            # Of several old subtasks the least counts: nothing is late that was not late before.
            time = unpack_event_time(sections[EVENT_TIME])
            self._time = min(self._time, time) if self._restored else time
            self._stored_time, self._restored = self._time, True

    def _add(self, start: int, part: pa.RecordBatch) -> None:
        table = self._table(start)
        try:
            changed = table.add(part, None)
        except Exception as error:
            raise user_error(self.ctx.label, error, part.schema.names) from error
        if start + self._size - 1 <= self._time:
            self._give_out(start, table, changed)
        else:
            table.hold_back(changed)

    def _fire(self) -> Iterator[None]:
        """Give out what is pending of all windows that are over, in steps; then close them."""
        for start in sorted(self._tables):
            if start + self._size - 1 > self._time:
                return
            table = self._tables[start]
            pending = table.pending()
            for first in range(0, len(pending), CHUNK_KEYS):
                self._give_out(start, table, pending[first : first + CHUNK_KEYS])
                yield
            if self._closes_at(start) <= self._time:
                del self._tables[start]

    def _give_out(self, start: int, table: ArrayTable, slots: Slots) -> None:
        try:
            results, _ = table.give_out(slots)
        except Exception as error:
            raise user_error(self.ctx.label, error, outputs(self._spec.aggregates)) from error
        count, end, keys = results.num_rows, start + self._size, len(self._spec.key.columns)
        columns, names = results.columns, results.schema.names
        window = [pa.repeat(pa.scalar(at, WINDOW_TIME), count) for at in (start, end)]
        shown = pa.RecordBatch.from_arrays(
            [*columns[:keys], *window, *columns[keys:]],
            [*names[:keys], WINDOW_START, WINDOW_END, *names[keys:]],
        )
        self.ctx.emit(Columns(shown, np.full(count, end - 1, np.int64)))

    def _table(self, start: int) -> ArrayTable:
        if start not in self._tables:
            # The results of all windows have the same types: those of any window that is open.
            known = next(iter(self._tables.values()), self._empty)
            self._tables[start] = known.without_keys()
        return self._tables[start]

    def _closes_at(self, start: int) -> int:
        """The watermark that makes further records of this window late."""
        return start + self._size - 1 + self._spec.window.allowed_lateness_ms


def _by_value(values: Times) -> Iterable[tuple[int, Slots | None]]:
    """Each value with the rows where it is, in their order; None stands for all rows."""
    if (values == values[0]).all():
        return [(int(values[0]), None)]
    # Time mostly goes up, which numpy's stable sort makes use of.
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    firsts = np.flatnonzero(np.diff(ordered)) + 1
    distinct = ordered[np.concatenate(([0], firsts))].tolist()
    return zip(distinct, np.split(order, firsts), strict=True)
