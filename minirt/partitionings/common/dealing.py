"""Dealing batches to receivers: what all partitionings build on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from minirt.data.batch import Columns, Rows
from minirt.errors import UserCodeError
from minirt.kernels.choice import kernels
from minirt.kernels.contract import Targets


class RowBuffer(Protocol):
    """Where the rows of one receiver are held, or of several that get the same."""

    records: list[Any]
    timestamps: list[int]


@dataclass(frozen=True, slots=True)
class DealingSite:
    """What deals the records of one sender: `buffers` are those of its receivers, in their order.

    The lists of a buffer stay the same objects: who has taken one's `append` may keep it.
    """

    buffers: Sequence[RowBuffer]
    max_parallelism: int
    """How many key groups there are."""
    label: str
    """The sending operator's, for messages."""
    routes_max: int
    """Of how many keys the receivers may be remembered."""

    @property
    def receivers(self) -> int:
        return len(self.buffers)


class Dealer(ABC):
    """Deals batches of one sender. Raises UserCodeError for what users' code does wrong."""

    @abstractmethod
    def rows(self, rows: Rows) -> None:
        """Append each record, and its timestamp if the batch has any, to the buffers of its receivers."""

    @abstractmethod
    def columns(self, batch: Columns) -> Iterable[tuple[int, Columns]]:
        """The part of each receiver that gets any: its place among the buffers, records in their order."""

    def check_columns(self, table: pa.RecordBatch) -> None:
        """Refuse columns that it could not deal, before any of a kind is gathered."""


class ToOne(Dealer):
    """All to one receiver, or to several that get the same."""

    def __init__(self, site: DealingSite) -> None:
        self._buffer = site.buffers[0]

    def rows(self, rows: Rows) -> None:
        buffer = self._buffer
        buffer.records += rows.records
        if rows.timestamps is not None:
            buffer.timestamps += rows.timestamps

    def columns(self, batch: Columns) -> Iterable[tuple[int, Columns]]:
        return ((0, batch),)


class InTurn(Dealer):
    """Round robin. Columns come in runs of nearly equal length."""

    def __init__(self, site: DealingSite) -> None:
        self._buffers = site.buffers
        self._turn = 0

    def rows(self, rows: Rows) -> None:
        count = len(self._buffers)
        for place in range(min(count, len(rows))):
            buffer = self._buffers[(self._turn + place) % count]
            buffer.records += rows.records[place::count]
            if rows.timestamps is not None:
                buffer.timestamps += rows.timestamps[place::count]
        self._turn = (self._turn + len(rows)) % count

    def columns(self, batch: Columns) -> Iterator[tuple[int, Columns]]:
        """The receivers that get one record more come from the next turn on."""
        count, first = len(self._buffers), self._turn
        least, more = divmod(len(batch), count)
        self._turn = (first + more) % count
        start = 0
        for place in range(min(count, len(batch))):
            stop = start + least + (place < more)
            yield (first + place) % count, batch.slice(start, stop)
            start = stop


def scatter(rows: Rows, targets: Sequence[int], buffers: Sequence[RowBuffer]) -> None:
    """Append each record to the buffer of its target."""
    if len(rows) < len(buffers):  # Looking at all buffers would take most of the time.
        for place, (target, record) in enumerate(zip(targets, rows.records, strict=True)):
            buffers[target].records.append(record)
            if rows.timestamps is not None:
                buffers[target].timestamps.append(rows.timestamps[place])
        return
    appends = [buffer.records.append for buffer in buffers]
    for append, record in zip(map(appends.__getitem__, targets), rows.records, strict=True):
        append(record)
    if rows.timestamps is not None:
        stamps = [buffer.timestamps.append for buffer in buffers]
        for stamp, time in zip(map(stamps.__getitem__, targets), rows.timestamps, strict=True):
            stamp(time)


def split(batch: Columns, targets: Targets, receivers: int) -> Iterator[tuple[int, Columns]]:
    """The part of each receiver that gets any, in the order of the batch."""
    order, counts = kernels().order(targets, receivers)
    if counts.max() == len(batch):
        yield int(targets[0]), batch
        return
    ordered = batch.take(order)
    ends = np.cumsum(counts).tolist()
    for receiver, (start, stop) in enumerate(zip([0, *ends], ends, strict=False)):
        if start < stop:
            yield receiver, ordered.slice(start, stop)


def check_targets(targets: Any, count: int, receivers: int, label: str) -> Sequence[int]:
    """The targets as ints. Raises UserCodeError unless each of `count` records has one of `receivers`."""
    chosen: Sequence[Any] = targets.tolist() if isinstance(targets, np.ndarray) else targets
    if len(chosen) != count:
        raise UserCodeError(
            f"operator {label}: the partitioner returned {len(chosen)} targets for {count} records"
        )
    for target in set(chosen):
        if not (isinstance(target, int) and 0 <= target < receivers):
            raise UserCodeError(
                f"operator {label}: the partitioner returned {target!r}; it must return an index "
                f"from 0 to {receivers - 1}"
            )
    return chosen


def check_present(names: Sequence[str], schema: pa.Schema, label: str) -> None:
    """Raise UserCodeError unless there are columns of these names."""
    for name in names:
        if name not in schema.names:
            raise UserCodeError(
                f"operator {label}: there is no column {name!r}, key of the next "
                f"operator; it emits {', '.join(schema.names)}"
            )
