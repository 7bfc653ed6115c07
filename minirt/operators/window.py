"""`window`: aggregates of keyed columns in windows of event time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from minirt.aggregates import Aggregate
from minirt.data.batch import Batch, Columns
from minirt.errors import ConfigurationError, UserCodeError
from minirt.graph.operator_spec import Form, OperatorSpec, Site, StateDealing
from minirt.operators.common.aggregation import (
    CHUNK_KEYS,
    aggregated_schema,
    check_aggregates,
    outputs,
    own_groups,
)
from minirt.operators.common.base import Operator, OperatorContext, user_error
from minirt.operators.common.columns import to_columns
from minirt.protocol.key_groups import group_range
from minirt.state.array_table import ArrayTable, Times
from minirt.state.event_times import EventTimes
from minirt.state.key_columns import Slots
from minirt.state.numbers import Mask
from minirt.state.sections import Section
from minirt.state.stored import EVENT_TIME, STATE
from minirt.windows import Tumbling

LATE_TAG = "late"
"""The side output that carries the records that came too late for their window."""

WINDOW_START, WINDOW_END = "window_start", "window_end"
"""The columns for the bounds of a window in its results; the end is the start of the next window."""

WINDOW_TIME = pa.timestamp("ms", "UTC")

_WINDOW = f"{STATE}window/"


@dataclass(frozen=True, slots=True)
class WindowSpec(OperatorSpec):
    """Computes aggregates of each key, whose parts are columns, and window of event time."""

    kind: ClassVar = "window"
    inputs: ClassVar = 1
    state: ClassVar = StateDealing.BY_KEY_GROUP
    takes: ClassVar = Form.COLUMNS
    needs_event_time: ClassVar = True

    aggregates: tuple[Aggregate, ...]
    window: Tumbling

    @property
    def details(self) -> str:
        return (
            f", windows of {self.window.size_ms / 1000:g} s, "
            f"open for another {self.window.allowed_lateness_ms / 1000:g} s"
        )

    def check(self, site: Site) -> None:
        check_aggregates(self.aggregates, site, WINDOW_START, WINDOW_END)

    def side_output(self, tag: str, label: str) -> Form:
        if tag != LATE_TAG:
            raise ConfigurationError(
                f"{label}: windows have one side output, {LATE_TAG!r}, and no {tag!r}"
            )
        return Form.COLUMNS

    def output_schema(self, site: Site) -> pa.Schema | None:
        """The results, with the bounds of the window behind the key."""
        results = aggregated_schema(self.aggregates, site)
        [key] = site.keys
        if results is None or key is None:
            return None
        for offset, name in enumerate((WINDOW_START, WINDOW_END)):
            results = results.insert(len(key.columns) + offset, pa.field(name, WINDOW_TIME))
        return results

    def build(self, ctx: OperatorContext) -> Operator:
        return WindowOperator(ctx, self)


class WindowOperator(Operator):
    """Keeps a table for each window that is open: until the watermark passes its end, plus lateness.

    A record is *late* if its window is no longer open for its key. The watermark that the key has seen
    decides that. It is part of the state: otherwise a restore would open windows a second time that were
    given out before. The watermark of the subtask, which all its keys have seen, gives out results.
    """

    def __init__(self, ctx: OperatorContext, spec: WindowSpec) -> None:
        super().__init__(ctx)
        self._spec = spec
        self._size = spec.window.size_ms
        self._key_columns = ctx.keys[0].columns
        self._empty = ArrayTable(self._key_columns, spec.aggregates, ctx.label)
        self._tables: dict[int, ArrayTable] = {}
        """By the start of the window, in milliseconds."""
        self._times = EventTimes(group_range(ctx.subtask, ctx.parallelism, ctx.max_parallelism))
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
        late = self._is_late(columns, starts)
        if late.any():
            self.ctx.metrics.late_records += int(late.sum())
            self._late(columns.where(late))
            columns, starts = columns.where(~late), starts[~late]
        for start, rows in _by_value(starts):
            self._add(start, columns.table if rows is None else columns.table.take(pa.array(rows)))

    def on_watermark(self, watermark: int) -> Iterator[None]:
        self.watermark = watermark
        self._times.advance(watermark)
        return self._fire()

    def snapshot(self) -> Mapping[str, Section]:
        sections: dict[str, Section] = {EVENT_TIME: self._times.snapshot()}
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
            self._times.restore(sections[EVENT_TIME])

    def _is_late(self, columns: Columns, starts: Times) -> Mask:
        closes = starts + self._closes_at(0)
        if not self._times.differ:
            late: Mask = closes <= self._times.least
            return late
        groups = self._empty.key_groups(columns.table, self.ctx.max_parallelism)
        return closes <= self._times.of(groups)

    def _add(self, start: int, part: pa.RecordBatch) -> None:
        table = self._table(start)
        try:
            changed = table.add(part, None)
        except Exception as error:
            raise user_error(self.ctx.label, error, part.schema.names) from error
        if start + self._size - 1 <= self._times.least:
            self._give_out(start, table, changed)
        else:
            table.hold_back(changed)

    def _fire(self) -> Iterator[None]:
        """Give out what is pending of all windows that are over, in steps; then close them."""
        for start in sorted(self._tables):
            if start + self._size - 1 > self._times.least:
                return
            table = self._tables[start]
            pending = table.pending()
            for first in range(0, len(pending), CHUNK_KEYS):
                self._give_out(start, table, pending[first : first + CHUNK_KEYS])
                yield
            if self._closes_at(start) <= self._times.least:
                del self._tables[start]

    def _give_out(self, start: int, table: ArrayTable, slots: Slots) -> None:
        try:
            results, _ = table.give_out(slots)
        except Exception as error:
            raise user_error(self.ctx.label, error, outputs(self._spec.aggregates)) from error
        count, end, keys = results.num_rows, start + self._size, len(self._key_columns)
        columns, names = results.columns, results.schema.names
        window = [pa.repeat(pa.scalar(at, WINDOW_TIME), count) for at in (start, end)]
        shown = pa.RecordBatch.from_arrays(
            [*columns[:keys], *window, *columns[keys:]],
            [*names[:keys], WINDOW_START, WINDOW_END, *names[keys:]],
        )
        self.ctx.emit(Columns(shown, np.full(count, end - 1, np.int64)))

    def _table(self, start: int) -> ArrayTable:
        if start not in self._tables:
            # The results of all windows have the same types, so any open window tells them.
            known = next(iter(self._tables.values()), self._empty)
            self._tables[start] = known.without_keys()
        return self._tables[start]

    def _closes_at(self, start: int) -> int:
        """The watermark that makes further records of the window from `start` on late."""
        return start + self._size - 1 + self._spec.window.allowed_lateness_ms


def _by_value(values: Times) -> Iterable[tuple[int, Slots | None]]:
    """Each value with the rows where it is, in their order; None stands for all rows."""
    if not len(values):
        return []
    if (values == values[0]).all():
        return [(int(values[0]), None)]
    # Time mostly goes up, which numpy's stable sort makes use of.
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    firsts = np.flatnonzero(np.diff(ordered)) + 1
    distinct = ordered[np.concatenate(([0], firsts))].tolist()
    return zip(distinct, np.split(order, firsts), strict=True)
