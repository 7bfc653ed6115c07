"""Batches as columns, for operators that compute on them."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import pyarrow as pa

from minirt.data.batch import Batch, Columns, Rows
from minirt.data.row_columns import LaidOut, lay_out
from minirt.errors import UserCodeError
from minirt.operators.common.base import shown


class Reading(NamedTuple):
    """The columns that an operator reads: its key, what it computes on, and if any others, conditions."""

    keys: tuple[str, ...]
    inputs: tuple[str, ...]
    conditions: bool


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

    Raises UserCodeError where its records are not dicts of like types, or a value would not come out of a
    column as it is.
    """
    if isinstance(batch, Columns):
        return batch
    laid = laid_out(batch, label)
    if laid.differing is not None:
        one, other = map(shown, laid.differing)
        raise _no_columns(label, f"{one} and {other} differ in names")
    return _whole(laid, batch, label)


def needed_columns(batch: Batch, label: str, reading: Reading) -> Columns:
    """As `to_columns`, for operators that read some columns only. A field that a record lacks is null.

    Of rows, other columns are laid out only where conditions may read them, and only those that would
    change no value. Raises UserCodeError for a record that lacks a part of the key.
    """
    if isinstance(batch, Columns):
        return batch
    needed = {*reading.keys, *reading.inputs}
    laid = laid_out(batch, label, None if reading.conditions or not needed else needed)
    if laid.differing is not None:
        for record in batch.records:
            missing = [name for name in reading.keys if name not in record]
            if missing:
                raise UserCodeError(
                    f"operator {label} failed on record {shown(record)}: it has no key column "
                    f"{missing[0]!r}; there are {', '.join(map(str, record))}"
                )
    if not needed <= laid.arrays.keys() | laid.problems.keys():
        laid = laid_out(batch, label)  # Whoever lacks a column says which there are.
    laid.problems = {name: why for name, why in laid.problems.items() if name in needed}
    return _whole(laid, batch, label)


def laid_out(batch: Rows, label: str, names: Collection[str] | None = None) -> LaidOut:
    """The columns of rows, at least one. Raises UserCodeError if records are no dicts with fields."""
    try:
        laid = lay_out(batch.records, names)
    except ValueError as error:
        raise _no_columns(label, str(error)) from error
    if not batch.records[0]:
        raise _no_columns(label, "a record without fields has no columns")
    return laid


def laid_columns(batch: Batch, label: str) -> tuple[LaidOut | None, Columns]:
    """The columns of a batch that there are; and of rows, how they were laid out."""
    if isinstance(batch, Columns):
        return None, batch
    laid = laid_out(batch, label)
    return laid, columns_of(laid, batch)


def columns_of(laid: LaidOut, batch: Rows) -> Columns:
    """The columns that there are, with the event times of the rows."""
    times = None if batch.timestamps is None else pa.array(batch.timestamps, pa.int64()).to_numpy()
    return Columns(laid.table(len(batch)), times)


def expression_failed(label: str, error: Exception, laid: LaidOut | None) -> UserCodeError:
    """The error of an expression: it may lack a column that could not be laid out."""
    if laid is not None and laid.problems:
        return _no_columns(label, "; ".join(laid.problems.values()))
    return UserCodeError(f"operator {label}: {error}")


def _whole(laid: LaidOut, batch: Rows, label: str) -> Columns:
    for problem in laid.problems.values():
        raise _no_columns(label, problem)
    return columns_of(laid, batch)


def _no_columns(label: str, reason: str) -> UserCodeError:
    return UserCodeError(
        f"operator {label} needs columns, but its records cannot be laid out as such: {reason}; make "
        "every record a dict with the same columns and types"
    )
