"""Opens Parquet files so that times in INT96 come as they are stored.

Spark, Hive and Impala write INT96: a day, and nanoseconds of it. Arrow reads it as nanoseconds since 1970
by default, which end in the year 2262 and begin anew in 1677.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from minirt.data.simple_columns import converted_type

_INT96 = "INT96"


class ParquetRows:
    """The rows of one file. INT96 is read as microseconds, or as nanoseconds where the schema wants these.

    Raises what `pyarrow.parquet.ParquetFile` raises.
    """

    def __init__(self, stream: Any, **options: Any) -> None:
        self.file = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us", **options)
        self._int96 = _int96_columns(self.file)
        self._fine = pq.ParquetFile(stream, **options) if self._int96 else None

    def batches(
        self, group: int, columns: Sequence[str], rows: int, schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """The columns of one row group, at most so many `rows` at a time, on their way into `schema`.

        Raises ArrowInvalid for a time in INT96 that the type in the schema cannot hold.
        """
        special = [name for name in columns if name in self._int96]
        fine = self._fine.read_row_group(group, special) if self._fine and special else None
        at = 0
        for batch in self.file.iter_batches(
            rows, row_groups=[group], columns=columns, use_threads=False
        ):
            for name in special:
                assert fine is not None
                place = batch.schema.get_field_index(name)
                nanoseconds = fine.column(name).slice(at, batch.num_rows).combine_chunks()
                wanted = schema.field(name).type
                column = _exact(batch.column(place), nanoseconds, wanted, name, at)
                batch = batch.set_column(place, name, in_zone(column, wanted))
            yield batch
            at += batch.num_rows


def _int96_columns(file: pq.ParquetFile) -> frozenset[str]:
    """The columns that are INT96, or have it inside."""
    leaves = (file.schema.column(place) for place in range(len(file.schema)))
    return frozenset(leaf.path.partition(".")[0] for leaf in leaves if leaf.physical_type == _INT96)


def _exact(
    microseconds: pa.Array, nanoseconds: pa.Array, wanted: pa.DataType, name: str, first: int
) -> pa.Array:
    """The times in the unit that is wanted, if that loses nothing."""
    if isinstance(nanoseconds, pa.ChunkedArray):
        nanoseconds = (
            pa.concat_arrays(nanoseconds.chunks) if nanoseconds.num_chunks else microseconds
        )
    if _has_unit(wanted, "ns"):
        microseconds.cast(
            nanoseconds.type
        )  # Raises ArrowInvalid for what nanoseconds cannot reach.
        return nanoseconds
    # Both wrap alike, so they are the same if and only if no digit behind the microsecond is there.
    if microseconds.cast(nanoseconds.type, safe=False).equals(nanoseconds):
        return microseconds
    raise pa.ArrowInvalid(
        f"column {name!r}: times are INT96 with nanoseconds, in rows {first} to "
        f"{first + len(microseconds) - 1} of a row group, and cannot become {wanted} without a change; a "
        'schema with pyarrow.timestamp("ns") reads them'
    )


def in_zone(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Times without a zone as those of UTC, if the type that is wanted has one: what their writers mean."""
    zoned = converted_type(
        array.type,
        lambda leaf: pa.timestamp(leaf.unit, "UTC") if pa.types.is_timestamp(leaf) else leaf,
    )
    return array.cast(zoned) if zoned != array.type and _has_zone(wanted) else array


def _has_unit(type: pa.DataType, unit: str) -> bool:
    return unit in _timestamps(type, lambda leaf: leaf.unit)


def _has_zone(type: pa.DataType) -> bool:
    return True in _timestamps(type, lambda leaf: leaf.tz is not None)


def _timestamps(type: pa.DataType, tell: Any) -> set[Any]:
    """What is told of the timestamps inside of a type."""
    told: set[Any] = set()

    def look(leaf: pa.DataType) -> pa.DataType:
        if pa.types.is_timestamp(leaf):
            told.add(tell(leaf))
        return leaf

    converted_type(type, look)
    return told
