"""Reads a source of a table as a subtask does that has all of it."""

from __future__ import annotations

import pyarrow as pa

from minirt.io import Offset, SplitReader
from minirt_connectors.versions import VersionedSource


def reader(source: VersionedSource, offset: Offset = None) -> SplitReader:
    source.validate()
    [split] = source.plan_splits(1)
    return source.open_split(split, offset)


def ids(reader: SplitReader) -> list[int]:
    """What is there now."""
    found = []
    while batch := reader.read():
        found += batch.column("id").to_pylist() if isinstance(batch, pa.RecordBatch) else []
    return found
