"""Sources of numbered records: what comes out of them is known without running anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import minirt as rt


def numbered(name: str, splits: int, count: int) -> list[tuple[str, int, int]]:
    """Every record of such a source: its name, split and number."""
    return [(name, split, number) for split in range(splits) for number in range(count)]


def event_time(record: tuple[str, int, int]) -> int:
    """Milliseconds: within a split, never more than 3 behind the newest before."""
    _, split, number = record
    return 10 + number * 2 + split % 2 - (3 if number % 3 == 1 else 0)


OUT_OF_ORDER_MS = 5


class NumberedSource(rt.Source):
    """Gives out `count` records of each split in small batches; every other time it has none yet."""

    interleave = True

    def __init__(self, name: str, splits: int, count: int, batch: int = 4) -> None:
        self.name = name
        self.splits = splits
        self.count = count
        self.batch = batch

    def plan_splits(self, parallelism: int) -> Sequence[rt.Split]:
        return [rt.Split(f"{self.name}-{i}", {"split": i}) for i in range(self.splits)]

    def open_split(self, split: rt.Split, offset: Any) -> rt.SplitReader:
        return _NumberedReader(self, split.info["split"], offset or 0)


class _NumberedReader(rt.SplitReader):
    def __init__(self, source: NumberedSource, split: int, offset: int) -> None:
        self.offset = offset
        self._source = source
        self._split = split
        self._waiting = False

    def read(self) -> list[Any] | None:
        source = self._source
        self._waiting = not self._waiting
        if self._waiting:
            return []
        # The size depends on the offset alone: reading again gives the same batches, as a file would.
        size = 1 + (self.offset * 7 + self._split) % source.batch
        stop = min(source.count, self.offset + size)
        if stop == self.offset:
            return None
        batch = [(source.name, self._split, number) for number in range(self.offset, stop)]
        self.offset = stop
        return batch
