"""What the log of a Delta table says of a file, so that readers can pass over it.

After the part "Per-file Statistics" of the Delta protocol. Bounds are left out wherever they could be wrong
for some reader: a reader without a bound reads the file.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Set
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_COLUMNS_MAX = 32
"""As many columns have statistics, as by default everywhere else."""
_TEXT_MAX = 64
"""A longer text is no bound: the log is read as a whole by everybody."""


def statistics(metadata: pq.FileMetaData, schema: pa.Schema, with_nan: Set[str]) -> dict[str, Any]:
    """Rows, bounds and counts of null of a Parquet file. `with_nan` names columns that hold NaN.

    NaN is above all numbers for some readers, and Parquet leaves it out of its bounds.
    """
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    places = {metadata.schema.column(n).path: n for n in range(metadata.num_columns)}
    for field in list(schema)[:_COLUMNS_MAX]:
        if pa.types.is_nested(field.type) or field.name not in places:
            continue
        groups = [
            metadata.row_group(n).column(places[field.name]).statistics
            for n in range(metadata.num_row_groups)
        ]
        if any(group is None or not group.has_null_count for group in groups):
            continue
        nulls[field.name] = sum(group.null_count for group in groups)
        bounds = None if field.name in with_nan else _bounds(groups, field.type)
        if bounds is not None:
            least[field.name], most[field.name] = bounds
    return {
        "numRecords": metadata.num_rows,
        "minValues": least,
        "maxValues": most,
        "nullCount": nulls,
    }


def nan_columns(batch: pa.RecordBatch) -> set[str]:
    """The columns of a batch that hold a NaN."""
    floats = [field.name for field in batch.schema if pa.types.is_floating(field.type)]
    found = set()
    for name in floats:
        values = batch.column(name).to_numpy(zero_copy_only=False)
        nulls = batch.column(name).null_count
        if int((values != values).sum()) > nulls:
            found.add(name)
    return found


def partition_text(value: object) -> str | None:
    """A value of a partition as the log has it. None for what it cannot hold."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | str):
        return str(value) or None
    return value.isoformat() if isinstance(value, dt.date) else None


def _bounds(groups: list[Any], kind: pa.DataType) -> tuple[Any, Any] | None:
    if not (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_string(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
    ):
        return None
    known = [group for group in groups if group.has_min_max]
    # A row group of nulls alone has no bounds, and needs none.
    if not known or any(not one.has_min_max and one.num_values for one in groups):
        return None
    least, most = min(one.min for one in known), max(one.max for one in known)
    if isinstance(least, str) and max(len(least), len(most)) > _TEXT_MAX:
        return None
    if isinstance(least, float) and not all(map(_is_finite, (least, most))):
        return None
    if isinstance(least, dt.datetime):
        return _time(least, 0), _time(most, 999)
    if isinstance(least, dt.date):
        return least.isoformat(), most.isoformat()
    return least, most


def _is_finite(value: float) -> bool:
    return value - value == 0


def _time(value: dt.datetime, more_us: int) -> str:
    """In whole milliseconds, as readers take it: down, or up with 999 more microseconds."""
    utc = value.replace(tzinfo=None) if value.tzinfo is None else value.astimezone(dt.UTC)
    text = (utc + dt.timedelta(microseconds=more_us)).replace(tzinfo=None)
    shown = text.isoformat(timespec="milliseconds")
    return shown if value.tzinfo is None else f"{shown}Z"
