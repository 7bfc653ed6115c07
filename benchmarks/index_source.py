"""A source of columns that costs little, so that a benchmark measures the rest of the job."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import minirt as rt
from benchmarks.workload import KEY_PREFIX, SPREAD, announce

BATCH_RECORDS = 1 << 16

Maker = Callable[[int, int, int], Any]
"""Makes the records from one number to another, of a split that begins at the third."""


class IndexSource(rt.Source):
    """`records`, each made from its number by what `new_maker` returns; a split for each subtask."""

    def __init__(
        self,
        records: int,
        new_maker: Callable[[], Maker],
        schema: pa.Schema | None = None,
        records_per_batch: int = BATCH_RECORDS,
        records_per_s: float = 0,
    ) -> None:
        """`records_per_s` is the pace of each split; 0 for as fast as it can."""
        self.records = records
        self.records_per_batch = records_per_batch
        self.records_per_s = records_per_s
        self._new_maker = new_maker
        self._schema = schema

    def schema(self) -> pa.Schema | None:
        return self._schema

    def plan_splits(self, parallelism: int) -> Sequence[rt.Split]:
        bounds = [self.records * split // parallelism for split in range(parallelism + 1)]
        return [
            rt.Split(f"{start}", {"start": start, "stop": stop}) for start, stop in pairwise(bounds)
        ]

    def open_split(self, split: rt.Split, offset: Any) -> rt.SplitReader:
        maker = self._new_maker()
        announce()
        return _Reader(self, maker, split.info["start"], split.info["stop"], offset)


class _Reader(rt.SplitReader):
    """Its offset is the number of the next record."""

    def __init__(
        self, source: IndexSource, maker: Maker, start: int, stop: int, offset: int | None
    ) -> None:
        self._source = source
        self._maker = maker
        self._start = start
        self._stop = stop
        self.offset = self._opened = start if offset is None else offset
        self._opened_at = time.monotonic()

    def read(self) -> Any:
        first = self.offset
        if first == self._stop:
            return None
        self.offset = min(self._stop, first + self._source.records_per_batch, self._due())
        return self._maker(first, self.offset, self._start)

    def _due(self) -> int:
        pace = self._source.records_per_s
        if not pace:
            return self._stop
        return self._opened + int((time.monotonic() - self._opened_at) * pace)


def key_walk(keys: int) -> npt.NDArray[np.int64]:
    """The keys of consecutive records. They repeat after `keys` records: any batch is a slice of these."""
    return (np.arange(keys + BATCH_RECORDS, dtype=np.int64) * SPREAD) % keys


def pairs(keys: int) -> Maker:
    """Columns "k" and "v", which is 1."""
    return _pairs(pa.array(key_walk(keys)), keys)


def named_pairs(keys: int) -> Maker:
    """As `pairs`, with keys of text."""
    names = pa.array([f"{KEY_PREFIX}{number:08d}" for number in range(keys)])
    return _pairs(names.take(pa.array(key_walk(keys))), keys)


def _pairs(walk: pa.Array, keys: int) -> Maker:
    ones = pa.array(np.ones(BATCH_RECORDS, np.int64))

    def make(start: int, stop: int, _: int) -> pa.RecordBatch:
        count = stop - start
        return pa.record_batch([walk.slice(start % keys, count), ones[:count]], ["k", "v"])

    return make


def numbered(keys: int, width: int) -> Maker:
    """Columns "k", "v0", "v1" and so on: the number of the record, that number plus one and so on."""
    walk = pa.array(key_walk(keys))
    steps = np.arange(BATCH_RECORDS, dtype=np.int64)
    names = ["k", *(f"v{place}" for place in range(width))]

    def make(start: int, stop: int, _: int) -> pa.RecordBatch:
        count = stop - start
        values = [steps[:count] + (start + place) for place in range(width)]
        return pa.record_batch([walk.slice(start % keys, count), *values], names)

    return make


def timed(keys: int, records_per_ms: int) -> Maker:
    """Columns "k" and "at": milliseconds of event time, so many records of a split in each."""
    walk = pa.array(key_walk(keys))
    passed = np.arange(BATCH_RECORDS + records_per_ms, dtype=np.int64) // records_per_ms

    def make(start: int, stop: int, split_start: int) -> pa.RecordBatch:
        count = stop - start
        ms, into = divmod(start - split_start, records_per_ms)
        at = passed[into : into + count] + ms
        return pa.record_batch([walk.slice(start % keys, count), at], ["k", "at"])

    return make
