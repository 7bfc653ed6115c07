"""A batch: the unit in which operators receive, process and emit records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minirt.data.errors import UnsupportedRecordError
from minirt.data.picking import picked
from minirt.data.simple_columns import in_microseconds, in_microseconds_type


@dataclass(slots=True)
class Rows:
    """Records as Python objects; `timestamps`, if there are any, in milliseconds, one a record."""

    records: list[Any]
    timestamps: list[int] | None = None

    def __len__(self) -> int:
        return len(self.records)

    def slice(self, start: int, stop: int) -> Rows:
        timestamps = None if self.timestamps is None else self.timestamps[start:stop]
        return Rows(self.records[start:stop], timestamps)

    def rows(self) -> Rows:
        return self

    def take(self, places: Sequence[int]) -> Rows:
        """The records at these places, in their order."""
        times = self.timestamps
        return Rows(
            [self.records[place] for place in places],
            None if times is None else [times[place] for place in places],
        )


@dataclass(slots=True)
class Columns:
    """Records as an Arrow record batch; `timestamps` (int64, milliseconds) as in `Rows`."""

    table: pa.RecordBatch
    timestamps: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def slice(self, start: int, stop: int) -> Columns:
        timestamps = None if self.timestamps is None else self.timestamps[start:stop]
        return Columns(self.table.slice(start, stop - start), timestamps)

    def rows(self) -> Rows:
        """The same records as dicts, one a row; times of nanoseconds are rounded down to microseconds.

        Raises UnsupportedRecordError for values that Python has no object for.
        """
        timestamps = None if self.timestamps is None else self.timestamps.tolist()
        return Rows(dicts_of(self.table), timestamps)

    def take(self, places: npt.NDArray[np.intp]) -> Columns:
        """The records at these places, in their order; nobody checks that there are any.

        Raises UnsupportedRecordError for columns of which Arrow cannot pick values.
        """
        timestamps = None if self.timestamps is None else self.timestamps[places]
        try:
            return Columns(picked(self.table, places), timestamps)
        except pa.ArrowNotImplementedError:
            indices = pa.array(places)
            columns = [
                _picked(self.table, place, indices) for place in range(len(self.table.schema))
            ]
            return Columns(
                pa.RecordBatch.from_arrays(columns, schema=self.table.schema), timestamps
            )

    def where(self, mask: npt.NDArray[np.bool_]) -> Columns:
        """The records for which the mask is true. Raises as `take`."""
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def cut(self, records: int) -> Iterator[Columns]:
        """The same records in pieces of about `size`, and of at most one and a half times as many."""
        count = len(self)
        pieces = max(1, round(count / records))
        if pieces == 1:
            yield self
            return
        for piece in range(pieces):
            yield self.slice(count * piece // pieces, count * (piece + 1) // pieces)


Batch = Rows | Columns


def concat_rows(batches: Sequence[Rows]) -> Rows:
    """One batch with the records of all, in order; either all or none carry timestamps."""
    if len(batches) == 1:
        return batches[0]
    records = [record for batch in batches for record in batch.records]
    if not batches or batches[0].timestamps is None:
        return Rows(records)
    return Rows(records, [time for batch in batches for time in batch.timestamps or ()])


def concat_columns(batches: Sequence[Columns]) -> list[Columns]:
    """The records of all, in order; all of one schema, and either all or none carry timestamps.

    It is one batch, unless the joined dictionary has too many entries for the type of its indices.
    """
    if len(batches) == 1:
        return [batches[0]]
    try:
        table = pa.concat_batches([batch.table for batch in batches])
    except pa.ArrowException:
        return list(batches)
    times = [batch.timestamps for batch in batches if batch.timestamps is not None]
    return [Columns(table, np.concatenate(times) if times else None)]


_LIKE = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
"""For a type whose values Arrow cannot pick: the type in which it can."""


def dicts_of(table: pa.RecordBatch) -> list[Any]:
    """The rows of a table, as functions of one record get them. Raises UnsupportedRecordError."""
    for place, field in enumerate(table.schema):
        if in_microseconds_type(field.type) != field.type:
            column = in_microseconds(table.column(place))
            table = table.set_column(place, field.with_type(column.type), column)
    try:
        records: list[Any] = table.to_pylist()
    except _NO_OBJECT as error:
        raise _without_object(table) from error
    return records


_NO_OBJECT = (ArithmeticError, ValueError, pa.ArrowException)


def _without_object(table: pa.RecordBatch) -> UnsupportedRecordError:
    for name, column in zip(table.schema.names, table.columns, strict=True):
        try:
            column.to_pylist()
        except _NO_OBJECT as error:
            return UnsupportedRecordError(
                f"column {name!r} of type {column.type} holds a value that Python has no object for "
                f"({error}); use column operators, or cast it"
            )
    raise AssertionError("each column by itself can be turned into objects")


def _picked(table: pa.RecordBatch, place: int, indices: pa.Array) -> pa.Array:
    column = table.column(place)
    try:
        if column.type in _LIKE:
            return column.cast(_LIKE[column.type]).take(indices).cast(column.type)
        return column.take(indices)
    except pa.ArrowNotImplementedError as error:
        raise UnsupportedRecordError(
            f"column {table.schema.names[place]!r} of type {column.type} cannot be dealt out or "
            f"filtered: Arrow cannot pick values of this type; cast it ({error})"
        ) from error
