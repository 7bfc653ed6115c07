"""The stored form of records that wait for partners: a run of them, and which of it are done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from minirt.data.batch import dicts_of
from minirt.data.errors import MalformedDataError
from minirt.state.numbers import Mask
from minirt.state.runs import Times
from minirt.state.sections import metadata_of_columns, pack_columns, unpack_columns

RUN = b"RUNS"

_TIME = "\x1ftime"
"""Behind the columns of the records: their event time."""
_ROWS = b"rows"


def pack_run(table: pa.RecordBatch, times: Times) -> bytes:
    """Records with their event times as a section."""
    stored = table.append_column(_TIME, pa.array(times))
    return pack_columns(RUN, [stored], {_ROWS: str(len(times))})


def unpack_run(section: bytes) -> tuple[pa.RecordBatch, Times]:
    """Raises MalformedDataError."""
    stored = pa.concat_batches(unpack_columns(RUN, section))
    names = stored.schema.names
    if not names or names[-1] != _TIME:
        raise MalformedDataError("a run of records does not say their event time")
    times = stored.column(len(names) - 1).to_numpy()
    table = pa.RecordBatch.from_arrays(stored.columns[:-1], names=names[:-1])
    return table, times


def count_run(section: bytes) -> int:
    """How many records there are. Raises MalformedDataError."""
    try:
        return int(metadata_of_columns(RUN, section)[_ROWS])
    except (KeyError, ValueError) as error:
        raise MalformedDataError("a run of records does not say how many there are") from error


def entries_of_run(section: bytes) -> Iterator[tuple[list[Any], list[Any]]]:
    """Event times, and the records as dicts."""
    table, times = unpack_run(section)
    yield times.tolist(), dicts_of(table)


def pack_done(done: Mask) -> bytes:
    """One bit for each record of a run, in the order in which it is stored."""
    return np.packbits(done).tobytes()


def unpack_done(section: bytes, count: int) -> Mask:
    """Raises MalformedDataError."""
    if len(section) != -(-count // 8):
        raise MalformedDataError(
            f"{len(section)} bytes do not tell {count} records from each other"
        )
    return np.unpackbits(np.frombuffer(section, np.uint8), count=count).view(np.bool_)
