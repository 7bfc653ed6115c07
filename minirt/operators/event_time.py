"""Reads the event time of records, by the column or function that a source's watermarks name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minirt.data.batch import Batch, Columns, Rows
from minirt.errors import SourceDataError
from minirt.functions import Watermarks
from minirt.operators.common.base import shown
from minirt.units import event_time_ms

Stamp = Callable[[list[Any] | pa.RecordBatch], Batch]
"""Turns records, at least one, into a batch with timestamps. Raises SourceDataError."""

_PER_MS = {"us": 1_000, "ns": 1_000_000}
_EARLIEST_MS, _LATEST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999, those of Python's datetimes: what lies outside is in another unit, or no time."""


def stamper(strategy: Watermarks | None) -> Stamp | None:
    """The function that gives records their timestamps; None without event time."""
    if strategy is None:
        return None
    spec = strategy.timestamp
    if callable(spec):
        return lambda read: _stamp_rows(read, spec, "the timestamp function")
    return lambda read: _stamp_by_column(read, spec)


def _stamp_by_column(read: list[Any] | pa.RecordBatch, column: str) -> Batch:
    if isinstance(read, pa.RecordBatch):
        if column not in read.schema.names:
            raise SourceDataError(
                f"the event time is in column {column!r}, but there are {', '.join(read.schema.names)}"
            )
        times = _column_ms(read.column(column), column)
        _check_range(int(times.min()), int(times.max()), f"column {column!r}")
        return Columns(read, times)
    return _stamp_rows(read, lambda record: _field_ms(record, column), f"column {column!r}")


def _stamp_rows(
    read: list[Any] | pa.RecordBatch, timestamp: Callable[[Any], Any], origin: str
) -> Rows:
    records = Columns(read).rows().records if isinstance(read, pa.RecordBatch) else read
    upcoming = iter(records)
    times = [timestamp(record) for record in upcoming]
    if not all(type(time) is int for time in times):
        upcoming = iter(records)
        times = [event_time_ms(timestamp(record)) for record in upcoming]
    _check_range(min(times), max(times), origin)
    return Rows(records, times)


def _field_ms(record: Any, column: str) -> int:
    try:
        return event_time_ms(record[column])
    except KeyError as error:
        problem = f"the event time is in column {column!r}, which is missing in {shown(record)}"
        raise SourceDataError(problem) from error
    except TypeError as error:
        why = str(error) if isinstance(record, Mapping) else "records must be dicts to have columns"
        problem = f"column {column!r} is the event time: {why}; in {shown(record)}"
        raise SourceDataError(problem) from error


def _check_range(earliest: int, latest: int, origin: str) -> None:
    if earliest >= _EARLIEST_MS and latest <= _LATEST_MS:
        return
    beyond = earliest if earliest < _EARLIEST_MS else latest
    raise SourceDataError(
        f"{origin} gives an event time of {beyond} milliseconds since 1970, which is not in the years "
        "1 to 9999; convert numbers of another unit to milliseconds"
    )


def _column_ms(values: pa.Array, column: str) -> npt.NDArray[np.int64]:
    """Event times in milliseconds; finer ones are rounded down. Raises SourceDataError."""
    if values.null_count:
        raise SourceDataError(
            f"column {column!r} is the event time but holds {values.null_count} nulls"
        )
    kind = values.type
    per_ms = _PER_MS.get(kind.unit, 1) if pa.types.is_timestamp(kind) else 1
    try:
        if pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.unit == "s"):
            values = values.cast(pa.timestamp("ms"))
        elif not (pa.types.is_timestamp(kind) or pa.types.is_integer(kind)):
            raise SourceDataError(
                f"column {column!r} of type {kind} cannot be the event time: it must be a timestamp, a "
                "date or an integer of milliseconds"
            )
        times: npt.NDArray[np.int64] = values.cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid as error:
        raise SourceDataError(
            f"column {column!r} is the event time but holds more than 64 bits of milliseconds: {error}"
        ) from error
    return times if per_ms == 1 else times // per_ms
