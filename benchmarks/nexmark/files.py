"""Events in files, so that nobody makes them while a query is measured.

Each system has them in the form that costs it least to read: minirt as an Arrow file, Flink as blocks of
values and texts that Java takes apart without a library. Both have the same events in the same blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

import minirt as rt
from benchmarks.nexmark.source import BLOCK_EVENTS
from minirt.io.base import Offset
from minirt.laboratory.nexmark.generator import generator
from minirt.laboratory.nexmark.schemas import ALL, KINDS
from minirt.laboratory.nexmark.workload import Workload

ARROW, BLOCKS, INDEX = "events.arrow", "events.blocks", "events.index"


def write_events(workload: Workload, events: int, folder: Path) -> None:
    """The first events of a workload, in both forms. `events` is a multiple of `BLOCK_EVENTS`."""
    if events % BLOCK_EVENTS:
        raise rt.ConfigurationError(
            f"the number of events must be a multiple of {BLOCK_EVENTS}, got {events}"
        )
    made = generator(workload)
    starts = []
    with (
        pa.OSFile(str(folder / ARROW), "wb") as file,
        pa.ipc.new_file(file, ALL) as writer,
        open(folder / BLOCKS, "wb") as blocks,
    ):
        for start in range(0, events, BLOCK_EVENTS):
            batch = made.events("all", start, start + BLOCK_EVENTS)
            writer.write_batch(batch)
            starts.append(blocks.tell())
            for part in _parts(batch):
                blocks.write(part)
        starts.append(blocks.tell())
    (folder / INDEX).write_bytes(np.array(starts, ">i8").tobytes())


def _parts(batch: pa.RecordBatch) -> list[bytes]:
    """The type of each event; then of each kind how many there are, and one column after the other.

    Numbers are big-endian, as Java has them: times are milliseconds, a text is found by where it begins.
    """
    types = batch["event_type"].to_numpy()
    parts = [types.astype(">i4").tobytes()]
    for number, kind in enumerate(KINDS[:3]):
        rows = pa.RecordBatch.from_struct_array(batch[kind].filter(pa.array(types == number)))
        parts.append(np.array([rows.num_rows], ">i4").tobytes())
        for column in rows.columns:
            if pa.types.is_string(column.type):
                parts += _texts(column)
            else:
                parts.append(column.cast(pa.int64()).to_numpy().astype(">i8").tobytes())
    return parts


def _texts(column: pa.StringArray) -> list[bytes]:
    _, offsets, characters = column.buffers()
    starts = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    texts = memoryview(characters)[starts[0] : starts[-1]].tobytes()
    return [(starts - starts[0]).astype(">i4").tobytes(), texts]


class ArrowEvents(rt.Source):
    """The events of a file that `write_events` has written. Splits are as those of `NexmarkSource`."""

    interleave = True

    def __init__(self, folder: Path) -> None:
        self._path = str(folder / ARROW)

    def plan_splits(self, parallelism: int) -> Sequence[rt.Split]:
        count = min(parallelism, _opened(self._path).num_record_batches)
        return [
            rt.Split(f"blocks-{first}-of-{count}", {"first": first, "count": count})
            for first in range(count)
        ]

    def open_split(self, split: rt.Split, offset: Offset) -> rt.SplitReader:
        first = split.info["first"] if offset is None else offset
        return _ArrowReader(_opened(self._path), first, split.info["count"])

    def schema(self) -> pa.Schema:
        return ALL


class _ArrowReader(rt.SplitReader):
    """Its offset is the number of the next block."""

    def __init__(self, file: pa.RecordBatchFileReader, next: int, stride: int) -> None:
        self._file = file
        self._stride = stride
        self.offset = next

    def read(self) -> pa.RecordBatch | None:
        if self.offset >= self._file.num_record_batches:
            return None
        batch = self._file.get_batch(self.offset)
        self.offset += self._stride
        return batch


def _opened(path: str) -> pa.RecordBatchFileReader:
    """Not mapped into memory: then columns that a query passes over would not be read."""
    return pa.ipc.open_file(pa.OSFile(path))
