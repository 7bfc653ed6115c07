"""The NexMark generator as a source of a job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa

import minirt as rt
from minirt.io.base import Offset
from minirt.laboratory.nexmark.generator import generator
from minirt.laboratory.nexmark.schemas import KINDS, SCHEMAS, Kind
from minirt.laboratory.nexmark.workload import Workload
from minirt.units import positive

BLOCK_EVENTS = 10_000
"""Larger batches are not made faster: their columns no longer fit the processor's cache."""


class NexmarkSource(rt.Source):
    """The first `events` events of a workload, those of one kind or all of them, as columns.

    Split i of n has every n-th block of `block_events` events, beginning with the i-th, so all splits
    go through event time side by side. Events do not depend on how they are split. There are
    `splits` of them, one a subtask by default. `kind` is "person", "auction", "bid", or "all" for rows
    that hold one event of any kind, see `schemas.ALL`. Event time is the column `dateTime`.

    Raises ConfigurationError for values that cannot work.
    """

    interleave = True

    def __init__(
        self,
        events: int,
        kind: Kind = "all",
        *,
        workload: Workload | None = None,
        splits: int | None = None,
        block_events: int = BLOCK_EVENTS,
    ) -> None:
        if kind not in KINDS:
            raise rt.ConfigurationError(f"kind is one of {', '.join(KINDS)}, got {kind!r}")
        self._events = positive("events", events)
        self._kind = kind
        self._workload = Workload() if workload is None else workload
        self._splits = None if splits is None else positive("splits", splits)
        self._block = positive("block_events", block_events)

    def plan_splits(self, parallelism: int) -> Sequence[rt.Split]:
        blocks = -(-self._events // self._block)
        count = min(self._splits or parallelism, blocks)
        return [
            rt.Split(f"blocks-{first}-of-{count}", {"first": first, "count": count})
            for first in range(count)
        ]

    def open_split(self, split: rt.Split, offset: Offset) -> rt.SplitReader:
        make = partial(generator(self._workload).events, self._kind)
        return _BlockReader(make, self._events, self._block, split, offset)

    def schema(self) -> pa.Schema:
        return SCHEMAS[self._kind]


class _BlockReader(rt.SplitReader):
    """Its offset is the position of the next event."""

    def __init__(
        self,
        make: Callable[[int, int], pa.RecordBatch],
        events: int,
        block: int,
        split: rt.Split,
        offset: Offset,
    ) -> None:
        self._make = make
        self._events = events
        self._block = block
        self._stride: int = split.info["count"] * block
        self.offset: int = split.info["first"] * block if offset is None else offset

    def read(self) -> pa.RecordBatch | None:
        while self.offset < self._events:
            start = self.offset
            begin = start - start % self._block
            self.offset = begin + self._stride
            batch = self._make(start, min(begin + self._block, self._events))
            if batch.num_rows:  # A block may hold none of the wanted kind.
                return batch
        return None
