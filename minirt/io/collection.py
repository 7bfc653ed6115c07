"""Sources that need no storage: Python collections and sequences of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from minirt.data.copies import copied_all
from minirt.errors import ConfigurationError
from minirt.generics import T
from minirt.io.base import Offset, Source, Split, SplitReader
from minirt.units import positive

BATCH_RECORDS = 8192


class CollectionSource(Source[T]):
    """Reads the given records, cut into `splits` runs. They travel into every worker: keep it small.

    A pyarrow.Table, a RecordBatch or a list of RecordBatches of one schema is read as columns.
    """

    def __init__(self, records: Iterable[T], *, splits: int = 1) -> None:
        table = _table(records)
        self._records: list[Any] | pa.RecordBatch = list(records) if table is None else table
        self._splits = positive("splits", splits)

    def plan_splits(self, parallelism: int) -> Sequence[Split]:
        return [
            Split(f"records-{start}", {"start": start, "stop": stop})
            for start, stop in _runs(len(self._records), self._splits)
        ]

    def open_split(self, split: Split, offset: Offset) -> SplitReader:
        return _CollectionReader(self._records, split, offset)

    def schema(self) -> pa.Schema | None:
        return self._records.schema if isinstance(self._records, pa.RecordBatch) else None


class _CollectionReader(SplitReader):
    def __init__(self, records: list[Any] | pa.RecordBatch, split: Split, offset: Offset) -> None:
        self._records = records
        self._stop: int = split.info["stop"]
        self.offset: int = split.info["start"] if offset is None else offset

    def read(self) -> list[Any] | pa.RecordBatch | None:
        batch = self._records[self.offset : min(self._stop, self.offset + BATCH_RECORDS)]
        self.offset += len(batch)
        if not len(batch):
            return None
        return batch if isinstance(batch, pa.RecordBatch) else copied_all(batch)


def _table(records: Any) -> pa.RecordBatch | None:
    """Columns as one batch; None for records that are given one by one."""
    if isinstance(records, pa.RecordBatch):
        return records
    if isinstance(records, pa.Table):
        return pa.RecordBatch.from_arrays(
            [column.combine_chunks() for column in records.columns], schema=records.schema
        )
    if not isinstance(records, list) or not any(isinstance(r, pa.RecordBatch) for r in records):
        return None
    try:
        return pa.concat_batches(records)
    except (pa.ArrowException, TypeError) as error:
        raise ConfigurationError(f"record batches must all be of one schema: {error}") from error


class SequenceSource(Source[int]):
    """Reads whole numbers, as `range` does: `SequenceSource(1000)` gives 0 to 999.

    It is cut into `splits` runs, one a subtask by default.
    """

    def __init__(self, start: int, stop: int | None = None, *, splits: int | None = None) -> None:
        first, end = (0, start) if stop is None else (start, stop)
        for name, value in (("start", first), ("stop", end)):
            if not isinstance(value, int) or isinstance(value, bool):
                raise ConfigurationError(f"{name} must be a whole number, got {value!r}")
        self._first = first
        self._end: int | None = end
        self._splits = None if splits is None else positive("splits", splits)

    @classmethod
    def endless(cls, start: int = 0, *, splits: int | None = None) -> SequenceSource:
        """All whole numbers from `start` on; split i of n gives every n-th, beginning with the i-th."""
        source = cls(start, start, splits=splits)
        source._end = None
        source.bounded = False
        return source

    def plan_splits(self, parallelism: int) -> Sequence[Split]:
        count = self._splits or parallelism
        if self._end is None:
            return [
                Split(f"from-{self._first + i}", {"start": self._first + i, "step": count})
                for i in range(count)
            ]
        return [
            Split(
                f"from-{self._first + start}",
                {"start": self._first + start, "stop": self._first + stop, "step": 1},
            )
            for start, stop in _runs(max(0, self._end - self._first), count)
        ]

    def open_split(self, split: Split, offset: Offset) -> SplitReader:
        return _SequenceReader(split, offset)


class _SequenceReader(SplitReader):
    """Its offset is the next number."""

    def __init__(self, split: Split, offset: Offset) -> None:
        self._step: int = split.info["step"]
        self._stop: int | None = split.info.get("stop")
        self.offset: int = split.info["start"] if offset is None else offset

    def read(self) -> list[Any] | None:
        stop = self.offset + BATCH_RECORDS * self._step
        if self._stop is not None:
            stop = min(stop, self._stop)
        batch = list(range(self.offset, stop, self._step))
        if not batch:
            return None
        self.offset = stop
        return batch


def _runs(length: int, count: int) -> list[tuple[int, int]]:
    """`length` items in up to `count` runs of nearly equal size; none is empty."""
    bounds = [length * i // count for i in range(count + 1)]
    return [(start, stop) for start, stop in pairwise(bounds) if start < stop]
