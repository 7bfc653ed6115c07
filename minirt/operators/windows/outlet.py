"""What leaves windows: results and late records, as columns unless a job asks for something else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from minirt.aggregates import Aggregate
from minirt.data.batch import Batch, Columns
from minirt.functions import WindowPane
from minirt.operators.common.base import OperatorContext
from minirt.state.array_table import Times
from minirt.windows import AT_THE_END, Emission, Window

LATE_TAG = "late"
"""The side output that carries the records that came too late for their window."""

WINDOW_TIME = pa.timestamp("ms", "UTC")

PANE = "pane"
"""The column that says which result of its window one is."""

Pane = WindowPane

ALL = "\x1eall"
"""The key column of a stream without keys."""


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be computed of which windows."""

    window: Window
    aggregates: tuple[Aggregate, ...]
    emission: Emission = AT_THE_END
    keyed: bool = True
    keys: tuple[str, ...] | None = None
    """The key columns; None for those that the stream is keyed by."""
    routing: int | None = None
    """How many of them tell the key group; None for all."""

    @property
    def marks_panes(self) -> bool:
        """Whether results say which one of their window they are."""
        return self.emission.early or self.window.takes_results_back


Bounds = tuple[Times | int, Times | int]
"""When windows begin and when they end, for each result or for all of them."""


class Outlet(ABC):
    """Takes what a frame gives out of its windows."""

    @property
    def follows_windows(self) -> bool:
        """Whether it is to be told of the sessions that are closed."""
        return False

    @abstractmethod
    def show(
        self, results: pa.RecordBatch, bounds: Bounds | None, pane: Pane, times: Times | None
    ) -> None:
        """Give out keys and results, at least one, with the bounds of their windows and their event times.

        Those of a window that is taken back are the last ones of it, and not to be given out.
        """

    @abstractmethod
    def late(self, batch: Batch) -> None:
        """Give out records that came too late."""

    def closed(self, results: pa.RecordBatch, bounds: Bounds) -> None:
        """These sessions take in no more records, and their results were given out."""


class ColumnOutlet(Outlet):
    """Columns: the key, what tells the window, the results."""

    def __init__(self, ctx: OperatorContext, task: Task, keys: Sequence[str]) -> None:
        self._task = task
        self._keys = len(keys)
        self._emit = ctx.emit
        self._late = ctx.side(LATE_TAG)

    def show(
        self, results: pa.RecordBatch, bounds: Bounds | None, pane: Pane, times: Times | None
    ) -> None:
        count, keys = results.num_rows, self._keys
        columns, names = list(results.columns), list(results.schema.names)
        if pane == "retracted":
            columns[keys:] = [pa.nulls(count, column.type) for column in columns[keys:]]
        key_columns, key_names = columns[:keys], names[:keys]
        if not self._task.keyed:
            key_columns, key_names = [], []
        window: list[pa.Array] = []
        if bounds is not None:
            window = [
                pa.array(np.broadcast_to(np.asarray(at, np.int64), count)).cast(WINDOW_TIME)
                for at in bounds
            ]
        window_names = [*self._task.window.bounds]
        if self._task.marks_panes:
            window.append(pa.repeat(pa.scalar(pane), count))
            window_names.append(PANE)
        shown = pa.RecordBatch.from_arrays(
            [*key_columns, *window, *columns[keys:]], [*key_names, *window_names, *names[keys:]]
        )
        self._emit(Columns(shown, None if times is None else np.array(times)))

    def late(self, batch: Batch) -> None:
        if isinstance(batch, Columns) and not self._task.keyed:
            batch = Columns(batch.table.drop_columns([ALL]), batch.timestamps)
        self._late(batch)
