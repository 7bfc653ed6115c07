"""The stored form of records that wait for partners: a run of them, and which of it are done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from minirt.data.batch import dicts_of
from minirt.data.errors import MalformedDataError
from minirt.state.numbers import Mask
from minirt.state.runs import Times
from minirt.state.sections import metadata_of_columns, pack_columns, unpack_columns

RUN = b"RUNS"

_TIME = "\x1ftime"
_UNTIL = "\x1funtil"
"""Behind the columns of the records: their event time; before it, where time does not tell that, until when
each waits."""
_ROWS = b"rows"


class Unpacked(NamedTuple):
    """Records that wait, each with its event time, and if that is stored until when."""

    table: pa.RecordBatch
    times: Times
    until: Times | None


def pack_run(table: pa.RecordBatch, times: Times, until: Times | None = None) -> bytes:
    """Records with their event times as a section."""
    stored = table if until is None else table.append_column(_UNTIL, pa.array(until))
    stored = stored.append_column(_TIME, pa.array(times))
    return pack_columns(RUN, [stored], {_ROWS: str(len(times))})


def unpack_run(section: bytes) -> Unpacked:
    """Raises MalformedDataError."""
    stored = pa.concat_batches(unpack_columns(RUN, section))
    names = stored.schema.names
    if not names or names[-1] != _TIME:
        raise MalformedDataError("a run of records does not say their event time")
    own = len(names) - (2 if names[-2:-1] == [_UNTIL] else 1)
    times = stored.column(len(names) - 1).to_numpy()
    until = stored.column(own).to_numpy() if own < len(names) - 1 else None
    table = pa.RecordBatch.from_arrays(stored.columns[:own], names=names[:own])
    return Unpacked(table, times, until)


def count_run(section: bytes) -> int:
    """How many records there are. Raises MalformedDataError."""
    try:
        return int(metadata_of_columns(RUN, section)[_ROWS])
    except (KeyError, ValueError) as error:
        raise MalformedDataError("a run of records does not say how many there are") from error


def entries_of_run(section: bytes) -> Iterator[tuple[list[Any], list[Any]]]:
    """Event times, and the records as dicts."""
    table, times, _ = unpack_run(section)
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
