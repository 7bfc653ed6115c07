"""Reads event times and watermarks from records, by the columns and function that a source names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minirt.data.batch import Batch, Columns, Rows
from minirt.errors import BadRecordError
from minirt.operators.common.base import shown
from minirt.units import event_time_ms
from minirt.watermarks import TimestampSpec, Watermarks

Stamp = Callable[[list[Any] | pa.RecordBatch], Batch]
"""Turns records, at least one, into a batch with timestamps. Raises BadRecordError."""

_PER_MS = {"us": 1_000, "ns": 1_000_000}
EARLIEST_MS, LATEST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999, those of Python's datetimes: what lies outside is in another unit, or no time."""


def stamper(strategy: Watermarks | None) -> Stamp | None:
    """The function that gives records their timestamps; None without event time."""
    return None if strategy is None else stamper_by(strategy.timestamp)


def stamper_by(spec: TimestampSpec) -> Stamp:
    """The function that gives records the timestamps that a column or a function of them says."""
    if callable(spec):
        return lambda read: _stamp_rows(read, spec, "the timestamp function")
    return lambda read: _stamp_by_column(read, spec)


_EVENT_TIME, _WATERMARK = "the event time", "the watermark"
NO_WATERMARK = -(2**63)
"""What a record says about the watermark that says nothing."""


def told_watermarks(batch: Batch, column: str) -> npt.NDArray[np.int64]:
    """The watermarks that records tell in a column, in milliseconds. Raises BadRecordError."""
    if isinstance(batch, Columns):
        values = _values(batch.table, column, _WATERMARK)
        told = np.full(len(values), NO_WATERMARK)
        known = values.is_valid().to_numpy(zero_copy_only=False)
        told[known] = _column_ms(values.drop_null(), column, _WATERMARK)
    else:
        times = [_field_ms(record, column, _WATERMARK, _told_ms) for record in batch.records]
        told = np.array(times, np.int64)
        known = told != NO_WATERMARK
    if known.any():
        newest, oldest = int(told[known].max()), int(told[known].min())
        check_range(oldest, newest, f"column {column!r}", "a watermark")
    return told


def _told_ms(value: object) -> int:
    return NO_WATERMARK if value is None else event_time_ms(value)


def _stamp_by_column(read: list[Any] | pa.RecordBatch, column: str) -> Batch:
    if isinstance(read, pa.RecordBatch):
        times = _column_ms(_values(read, column, _EVENT_TIME), column, _EVENT_TIME)
        check_range(int(times.min()), int(times.max()), f"column {column!r}", "an event time")
        return Columns(read, times)
    return _stamp_rows(
        read,
        lambda record: _field_ms(record, column, _EVENT_TIME, event_time_ms),
        f"column {column!r}",
    )


def _stamp_rows(
    read: list[Any] | pa.RecordBatch, timestamp: Callable[[Any], Any], origin: str
) -> Rows:
    records = Columns(read).rows().records if isinstance(read, pa.RecordBatch) else read
    upcoming = iter(records)
    times = [timestamp(record) for record in upcoming]
    if not all(type(time) is int for time in times):
        upcoming = iter(records)
        times = [event_time_ms(timestamp(record)) for record in upcoming]
    check_range(min(times), max(times), origin, "an event time")
    return Rows(records, times)


def _values(table: pa.RecordBatch, column: str, what: str) -> pa.Array:
    if column not in table.schema.names:
        raise BadRecordError(
            f"{what} is in column {column!r}, but there are {', '.join(table.schema.names)}"
        )
    return table.column(column)


def _field_ms(record: Any, column: str, what: str, convert: Callable[[Any], int]) -> int:
    try:
        return convert(record[column])
    except KeyError as error:
        problem = f"{what} is in column {column!r}, which is missing in {shown(record)}"
        raise BadRecordError(problem) from error
    except TypeError as error:
        why = str(error) if isinstance(record, Mapping) else "records must be dicts to have columns"
        problem = f"column {column!r} is {what}: {why}; in {shown(record)}"
        raise BadRecordError(problem) from error


def check_range(earliest: int, latest: int, origin: str, what: str) -> None:
    """Raise BadRecordError for times that no clock shows."""
    if earliest >= EARLIEST_MS and latest <= LATEST_MS:
        return
    beyond = earliest if earliest < EARLIEST_MS else latest
    raise BadRecordError(
        f"{origin} gives {what} of {beyond} milliseconds since 1970, which is not in the years "
        "1 to 9999; convert numbers of another unit to milliseconds"
    )


def column_ms(values: pa.Array, column: str) -> npt.NDArray[np.int64]:
    """The event times in a column, in milliseconds. Raises BadRecordError for what is none."""
    return _column_ms(values, column, _EVENT_TIME)


def _column_ms(values: pa.Array, column: str, what: str) -> npt.NDArray[np.int64]:
    """Times in milliseconds; finer ones are rounded down. Raises BadRecordError."""
    if values.null_count:
        raise BadRecordError(f"column {column!r} is {what} but holds {values.null_count} nulls")
    kind = values.type
    per_ms = _PER_MS.get(kind.unit, 1) if pa.types.is_timestamp(kind) else 1
    try:
        if pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.unit == "s"):
            values = values.cast(pa.timestamp("ms"))
        elif not (pa.types.is_timestamp(kind) or pa.types.is_integer(kind)):
            raise BadRecordError(
                f"column {column!r} of type {kind} cannot be {what}: it must be a timestamp, a "
                "date or an integer of milliseconds"
            )
        times: npt.NDArray[np.int64] = values.cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid as error:
        raise BadRecordError(
            f"column {column!r} is {what} but holds more than 64 bits of milliseconds: {error}"
        ) from error
    return times if per_ms == 1 else times // per_ms
