"""A source of columns that costs next to nothing: what a job makes of them is what takes time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

import minirt as rt

BATCH_RECORDS = 1 << 16


class ColumnSource(rt.Source):
    """`records` of `width` columns of int64, cut into `splits`: "k" of `keys` values, "v0", "v1" and so on.

    The same batch is given out again and again: making numbers is not what is measured.
    """

    def __init__(self, records: int, width: int, keys: int, splits: int) -> None:
        self.records = records
        self.width = width
        self.keys = keys
        self.splits = splits

    def schema(self) -> pa.Schema:
        return pa.schema([(name, pa.int64()) for name in self.names])

    @property
    def names(self) -> list[str]:
        return ["k", *(f"v{number}" for number in range(self.width - 1))]

    def batch(self) -> pa.RecordBatch:
        numbers = np.arange(BATCH_RECORDS, dtype=np.int64)
        keys = (numbers * 2654435761) % self.keys
        columns = [keys, *(numbers + place for place in range(self.width - 1))]
        return pa.record_batch(columns, schema=self.schema())

    def plan_splits(self, parallelism: int) -> Sequence[rt.Split]:
        bounds = [self.records * split // self.splits for split in range(self.splits + 1)]
        return [rt.Split(f"{start}", {"count": stop - start}) for start, stop in pairwise(bounds)]

    def open_split(self, split: rt.Split, offset: Any) -> rt.SplitReader:
        return _Reader(self.batch(), split.info["count"], offset or 0)


class _Reader(rt.SplitReader):
    """Its offset is the number of records given out."""

    def __init__(self, batch: pa.RecordBatch, count: int, offset: int) -> None:
        self._batch = batch
        self._count = count
        self.offset = offset

    def read(self) -> pa.RecordBatch | None:
        size = min(self._batch.num_rows, self._count - self.offset)
        if not size:
            return None
        self.offset += size
        return self._batch.slice(0, size)
