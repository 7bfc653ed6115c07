"""What all kinds of windows of columns have in common: event time, late records, and how results look."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minirt.aggregates import Aggregate
from minirt.data.batch import Batch, Columns, Rows
from minirt.errors import ConfigurationError, UserCodeError
from minirt.kernels.contract import Slots
from minirt.operators.common.aggregation import outputs, reading_of
from minirt.operators.common.base import Operator, OperatorContext
from minirt.operators.common.calling import Calling
from minirt.operators.common.columns import needed_columns
from minirt.operators.windows.outlet import ALL, Bounds, ColumnOutlet, Outlet, Pane, Task
from minirt.protocol.key_groups import group_range
from minirt.protocol.watermarks import MAX_WATERMARK
from minirt.state.array_table import ArrayTable, Times
from minirt.state.event_times import EventTimes
from minirt.state.numbers import Mask
from minirt.state.sections import Section
from minirt.state.stored import EVENT_TIME, STATE, WINDOW_SHAPE

_PLACE = "\x1eplace"
"""The column with the place of each record among the rows in work."""


class WindowFrame(Operator):
    """Subclasses keep tables, named as they are stored, and say what becomes of records and watermarks."""

    def __init__(self, ctx: OperatorContext, task: Task, outlet: Outlet | None = None) -> None:
        """Without an `outlet` results and late records leave as columns."""
        super().__init__(ctx)
        self._task = task
        keys = task.keys if task.keys is not None else ctx.keys[0].columns if task.keyed else (ALL,)
        self._keys: Sequence[str] = keys
        self._routing = len(keys) if task.routing is None else task.routing
        self._reading = reading_of(ctx.keys[0] if ctx.keys else None, task.aggregates)
        self._given: Rows | None = None
        """The rows in work, of which the columns need not be all."""
        self._outlet = ColumnOutlet(ctx, task, keys) if outlet is None else outlet
        self._groups = group_range(ctx.subtask, ctx.parallelism, ctx.max_parallelism)
        self._times = EventTimes(self._groups)
        self._lateness = task.window.allowed_lateness_ms
        self._early_at: float | None = None
        """When early results are due by the monotonic clock."""
        self._early_from: int | None = None
        """The watermark at which the last early results were given out."""

    # What a kind of window says.

    @abstractmethod
    def take(self, columns: Columns, times: Times | None) -> None:
        """Take in records, at least one; `times` are there if the window is in event time."""

    @abstractmethod
    def fire(self) -> Iterator[None]:
        """Give out what is over by `self._times`, in steps, and free what nobody needs any more."""

    def fire_early(self) -> Iterator[None]:
        """Give out what has changed of windows that are not over."""
        yield from ()

    @abstractmethod
    def tables(self) -> Mapping[str, ArrayTable]:
        """The tables by the names of their sections."""

    @abstractmethod
    def table_named(self, name: str) -> ArrayTable:
        """The table that a stored section belongs to."""

    def restored(self) -> None:
        """All has been restored."""

    # What the subtask sees.

    def open(self) -> None:
        self.restored()
        if any(map(len, self.tables().values())):
            self._arm()

    def process(self, batch: Batch, input_index: int) -> None:
        if not len(batch):
            return
        columns = needed_columns(batch, self.ctx.label, self._reading)
        if self._task.window.in_event_time and columns.timestamps is None:
            raise UserCodeError(
                f"operator {self.ctx.label}: windows need event time, but these records have no "
                "timestamps; give their source watermarks=..."
            )
        table = columns.table
        if not self._task.keyed:
            table = table.append_column(ALL, pa.nulls(len(columns), pa.int8()))
        if isinstance(batch, Rows):
            self._given = batch
            table = table.append_column(_PLACE, pa.array(np.arange(len(batch))))
        self.take(Columns(table, columns.timestamps), columns.timestamps)
        self._given = None
        self._arm()

    def on_watermark(self, watermark: int) -> Iterator[None]:
        self.watermark = watermark
        self._times.advance(watermark)
        return self._advanced()

    @property
    def due_at(self) -> float | None:
        return self._early_at

    def on_due(self) -> Iterator[None]:
        self._early_at = None
        return self.fire_early()

    def snapshot(self) -> Mapping[str, Section]:
        sections: dict[str, Section] = {EVENT_TIME: self._times.snapshot()}
        for name, table in self.tables().items():
            section = table.snapshot()
            if section is not None:
                sections[STATE + name] = section
                sections[WINDOW_SHAPE] = self._task.window.shape.encode()
        return sections

    def builds_on(self) -> Mapping[str, Collection[str]]:
        return {STATE + name: table.builds_on() for name, table in self.tables().items()}

    def on_stored(self, path: str) -> None:
        for table in self.tables().values():
            table.on_stored(path)

    def restore(self, sections: Mapping[str, bytes], *, exact: bool) -> None:
        self._check_shape(sections.get(WINDOW_SHAPE))
        groups = None if exact else self._groups
        for name, section in sections.items():
            if name.startswith(STATE):
                table = self.table_named(name.removeprefix(STATE))
                table.restore(section, groups, self.ctx.max_parallelism)
        if EVENT_TIME in sections:
            self._times.restore(sections[EVENT_TIME])

    def _check_shape(self, stored: bytes | None) -> None:
        """Raise ConfigurationError for windows in which other records count together.

        Checkpoints of earlier versions do not say.
        """
        shape = self._task.window.shape
        if stored is not None and stored != shape.encode():
            raise ConfigurationError(
                f"operator {self.ctx.label}: the checkpoint holds {stored.decode(errors='replace')}, whose "
                f"results are no part of those of {shape}; give the operator a new uid, or the windows "
                "that it had"
            )

    # What kinds of windows use.

    def _arm(self) -> None:
        """There is something to be given out early by the clock, if a job asks for that."""
        emission = self._task.emission
        by_clock = emission.when == "interval" and emission.clock == "processing"
        if by_clock and self._early_at is None:
            self._early_at = self.ctx.monotonic() + emission.interval_s

    def _advanced(self) -> Iterator[None]:
        yield from self.fire()
        emission = self._task.emission
        if emission.when == "interval" and emission.clock == "event":
            turn = self._times.least // emission.interval_ms
            if turn != self._early_from and self._times.least != MAX_WATERMARK:
                self._early_from = turn
                yield from self.fire_early()

    def _table(self, *more: str, aggregates: Sequence[Aggregate] | None = None) -> ArrayTable:
        """An empty table; `more` are key columns behind those of the stream."""
        aggregates = self._task.aggregates if aggregates is None else aggregates
        return ArrayTable([*self._keys, *more], aggregates, self.ctx.label, routing=self._routing)

    def _seen(self, groups: npt.NDArray[np.integer]) -> Times:
        """The watermark that the keys of these groups have seen."""
        return self._times.of(groups)

    def _put_aside(self, columns: Columns, late: Mask) -> None:
        """Give late records to the side output."""
        self.ctx.metrics.late_records += int(late.sum())
        records = columns.where(late)
        if self._given is None:
            self._outlet.late(records)
        else:
            self._outlet.late(self._given.take(records.table.column(_PLACE).to_pylist()))

    def _ordered(self, table: ArrayTable, slots: Slots) -> Slots:
        """These slots as their results are given out."""
        return table.by_key(slots) if self.ctx.repeats else slots

    def _show(
        self,
        results: pa.RecordBatch,
        bounds: Bounds | None,
        pane: Pane,
        times: Times | None = None,
    ) -> None:
        """Give out keys and results, at `times` or the last millisecond of their window."""
        if not results.num_rows:
            return
        if times is None and bounds is not None:
            times = np.broadcast_to(np.asarray(bounds[1], np.int64) - 1, results.num_rows)
        self._outlet.show(results, bounds, pane, times)

    @property
    def _giving_out(self) -> Calling:
        return Calling(self.ctx.label, otherwise=outputs(self._task.aggregates))


def by_value(values: Times) -> Iterator[tuple[int, npt.NDArray[np.intp] | None]]:
    """Each value with the rows where it is, in their order; None stands for all rows."""
    if not len(values):
        return
    if (values == values[0]).all():
        yield int(values[0]), None
        return
    # Time mostly goes up, which numpy's stable sort makes use of.
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    firsts = np.flatnonzero(np.diff(ordered)) + 1
    distinct = ordered[np.concatenate(([0], firsts))].tolist()
    yield from zip(distinct, np.split(order, firsts), strict=True)


def part_of(table: pa.RecordBatch, rows: npt.NDArray[np.intp] | None) -> pa.RecordBatch:
    return table if rows is None else Columns(table).take(rows).table
