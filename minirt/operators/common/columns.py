"""Batches as columns, for operators that compute on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from minirt.data.batch import Batch, Columns
from minirt.data.simple_columns import no_column, steady
from minirt.errors import UserCodeError
from minirt.operators.common.base import shown


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """A batch of these columns without records: what an expression makes of it shows what it gives."""
    return pa.RecordBatch.from_pylist([], schema=schema)


def check_names(table: pa.RecordBatch) -> None:
    """Raise ValueError for columns of one name: what is meant by the name could not be told."""
    names = table.schema.names
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(
            f"there is more than one column {repeated!r} in a batch of {', '.join(names)}; rename them"
        )


def to_columns(batch: Batch, label: str) -> Columns:
    """The batch, which must not be empty, as columns.

    Raises UserCodeError where its records are not dicts of like types.
    """
    if isinstance(batch, Columns):
        return batch
    try:
        names = batch.records[0].keys()
        strange = next((record for record in batch.records if record.keys() != names), None)
        table = steady(pa.RecordBatch.from_pylist(batch.records))
    except (pa.ArrowException, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise _no_columns(label, _misfit(batch.records) or no_column(error)) from error
    if not names:
        raise _no_columns(label, "a record without fields has no columns")
    if strange is not None:
        raise _no_columns(label, f"{shown(batch.records[0])} and {shown(strange)} differ in names")
    times = None if batch.timestamps is None else pa.array(batch.timestamps, pa.int64()).to_numpy()
    return Columns(table, times)


def _misfit(records: Sequence[Any]) -> str | None:
    """Which column cannot be made, and why; None if it is not because of one."""
    if not all(isinstance(record, Mapping) for record in records):
        return None
    for name in records[0]:
        values = [record.get(name) for record in records]
        try:
            pa.array(values)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            return f"column {name!r}: {no_column(error)}"
    return None


def _no_columns(label: str, reason: str) -> UserCodeError:
    return UserCodeError(
        f"operator {label} needs columns, but its records cannot be laid out as such: {reason}; make "
        "every record a dict with the same columns and types"
    )
