"""A DataFrame as the keyed state of a job that has not run yet."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

import minirt as rt
from minirt.errors import ConfigurationError, StorageError
from minirt_connectors.spark.columns import arrow_schema, refuse_unknown, refuse_unreadable
from minirt_connectors.spark.session import without_pandas

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SUBTASK = "__minirt_subtask"
_RECEIPTS = "receipt binary, refusal string"
_ROWS_MAX = 65536
"""How many rows are turned into state at once."""


def write_savepoint(
    df: DataFrame,
    path: str | os.PathLike[str],
    *,
    job: rt.Environment,
    uid: str,
    key: str | Sequence[str],
    parallelism: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> rt.Savepoint:
    """Make a savepoint that holds the state of one operator of `job`, filled from a DataFrame.

    The operator has this `uid`, and is a `reduce`, an `aggregate` or a `process` with keys. `key` names the
    columns of its key; a key may come once. Each other column fills what has its name: the results of the
    aggregates (of a Mean, a struct of `sum` and `count`), the states of the KeyedProcess (of a ListState an
    array, of a MapState a map), `value` of `reduce`. Null fills nothing. A `timestamp` is in UTC.
    Whole numbers of the key have the type that the job has for them, 64 bits if that is not known before.

    Spark's executors write `parallelism` parts, as many as the operator has subtasks unless you say so; a
    part has to fit into the memory of a Python worker of Spark. The job may start at any parallelism.
    `path` is an empty folder or URL that driver and executors reach; `storage_options` go to fsspec.

    Raises ConfigurationError for columns that do not fit, for repeated keys, for another operator, for a
    path where something is; StorageError where nothing can be stored.
    """
    names = [key] if isinstance(key, str) else list(key)
    if df.isStreaming:
        raise ConfigurationError("a savepoint is made of a finite DataFrame, this one is streaming")
    refuse_unreadable(df)
    refuse_unknown(df, names, "key")
    schema = arrow_schema(df.schema)
    writer = rt.SavepointWriter(
        job,
        path,
        uid=uid,
        key=names,
        schema=schema,
        parallelism=parallelism,
        storage_options=storage_options,
    )
    try:
        return writer.complete(_receipts(df, writer, schema))
    except BaseException:
        with suppress(StorageError):
            writer.discard()
        raise


def _receipts(df: DataFrame, writer: rt.SavepointWriter, schema: pa.Schema) -> list[bytes]:
    """Have Spark write all parts. Raises ConfigurationError for what one of them refuses."""
    with without_pandas():
        dealt = df.mapInArrow(_dealing(writer, schema), _dealt_schema(df))
        apart = dealt.repartition(writer.parallelism, _SUBTASK).sortWithinPartitions(_SUBTASK)
        written = apart.mapInArrow(_writing(writer, schema), _RECEIPTS).collect()
    refusals = sorted(row["refusal"] for row in written if row["refusal"] is not None)
    if refusals:
        raise ConfigurationError(refusals[0])
    return [bytes(row["receipt"]) for row in written]


def _dealt_schema(df: DataFrame) -> Any:
    from pyspark.sql.types import LongType, StructType

    return StructType([*df.schema.fields]).add(_SUBTASK, LongType())


def _dealing(writer: rt.SavepointWriter, schema: pa.Schema) -> _MapInArrow:
    """Adds the column that says which part a row belongs to."""

    def deal(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            subtasks = pa.array(writer.subtasks_of(_like(batch, schema)))
            yield batch.append_column(_SUBTASK, subtasks)

    return deal


def _writing(writer: rt.SavepointWriter, schema: pa.Schema) -> _MapInArrow:
    """Writes the parts that a partition holds, one after the other."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for subtask, pieces in groupby(_pieces(batches), lambda piece: piece[0]):
            receipt, refusal = None, None
            try:
                receipt = writer.write(subtask, (_like(piece, schema) for _, piece in pieces))
            except ConfigurationError as error:
                refusal = str(error)
            yield pa.RecordBatch.from_pydict(
                {"receipt": [receipt], "refusal": [refusal]},
                pa.schema([("receipt", pa.binary()), ("refusal", pa.string())]),
            )
            if refusal is not None:
                return

    return write


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches cut so that all rows of one are of one part, with its number; they come sorted by it."""
    for batch in batches:
        column, rest = batch.column(_SUBTASK), batch.drop_columns([_SUBTASK])
        ends = pc.run_end_encode(column)
        start = 0
        for subtask, end in zip(ends.values.to_pylist(), ends.run_ends.to_pylist(), strict=True):
            for begin in range(start, end, _ROWS_MAX):
                yield subtask, rest.slice(begin, min(_ROWS_MAX, end - begin))
            start = end


def _like(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in the types of the schema: Spark gives times in the zone of the session."""
    columns = [column.cast(type) for column, type in zip(batch.columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


_MapInArrow = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
