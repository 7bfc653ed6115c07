"""Files of JSON lines as a DataFrame, whose values are those of the lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from minirt.errors import ConfigurationError, SourceDataError
from minirt_connectors.spark.columns import arrow_schema
from minirt_connectors.spark.session import without_pandas
from minirt_connectors.spark.verify import json_lines, json_shapes, json_values
from minirt_connectors.spark.verify.by_value import by_value
from minirt_connectors.spark.verify.json_lines import BadLine, Piece, Scan
from minirt_connectors.spark.verify.json_shapes import Mixed
from minirt_connectors.spark.verify.partition_folders import Partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_HERE_BYTES_MAX = 4 * 1024 * 1024
"""Less than that is read by this process: Spark's own Python processes would take longer to start."""
_PIECE_BYTES = 32 * 1024 * 1024
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".lz4")


def read_json(
    spark: SparkSession, files: Mapping[str, Partition], like: StructType | None
) -> DataFrame:
    """The rows of files of JSON lines, each of which has the texts of its folders besides.

    A column has the type that it has in `like`, if all its values are exactly values of that type. Numbers
    that are not get a type that holds them. Columns that `like` does not have get the type of their values,
    as those of all folders are text. A column that no line has is left out.
    Raises SourceDataError, with file and line, for what is no JSON object or does not fit.
    """
    pieces = list(_pieces(files))
    partition = list(next(iter(files.values()), {}))
    known = {} if like is None else _arrow_types(like, partition)
    zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    here = sum(Path(path).stat().st_size for path in files) <= _HERE_BYTES_MAX
    found = _scanned(spark, pieces, known, zone, here)
    types = {name: kind for name, kind in known.items() if name in found.present or not found.rows}
    for name in found.misfits:
        types[name] = _wider(spark, pieces, name, known, found, zone, here)
    for name, shape in found.shapes.items():
        types[name] = _of_shape(name, shape)
    columns = [(name, pa.string()) for name in partition] + list(types.items())
    schema = pa.schema(columns)
    if here:
        batches = [
            one for piece in pieces for one in json_lines.record_batches(piece, schema, zone)
        ]
        table = pa.Table.from_batches(batches, schema)
        with without_pandas():
            return spark.createDataFrame(table, _spark_schema(schema))
    work, of_text = [piece.as_text() for piece in pieces], Piece.of_text

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for piece in batch.column(0).to_pylist():
                yield from json_lines.record_batches(of_text(piece), schema, zone)

    return _on_executors(spark, work, read, _spark_schema(schema))


def _scanned(
    spark: SparkSession,
    pieces: Sequence[Piece],
    types: Mapping[str, pa.DataType],
    zone: str,
    here: bool,
) -> Scan:
    found = Scan()
    try:
        if here:
            for piece in pieces:
                found.merge(json_lines.scan(piece, types, zone))
            return found
        for one in _scanned_by_executors(spark, pieces, types, zone):
            found.merge(one)
    except BadLine as bad:
        raise SourceDataError(f"cannot compare the output: {bad}") from None
    except TypeError as error:
        raise ConfigurationError(f"{error}: give what is expected in other types") from None
    return found


def _scanned_by_executors(
    spark: SparkSession, pieces: Sequence[Piece], types: Mapping[str, pa.DataType], zone: str
) -> Iterator[Scan]:
    work, of_text = [piece.as_text() for piece in pieces], Piece.of_text

    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for piece in batch.column(0).to_pylist():
                try:
                    found, refusal = json_lines.scan(of_text(piece), types, zone).as_text(), None
                except json_lines.BadLine as bad:
                    found, refusal = None, str(bad)
                columns = [pa.array([one], pa.string()) for one in (found, refusal)]
                yield pa.RecordBatch.from_arrays(columns, ["found", "refusal"])

    for row in _on_executors(spark, work, look, "found string, refusal string").collect():
        if row["refusal"] is not None:
            raise BadLine(row["refusal"])
        yield Scan.of_text(row["found"])


def _on_executors(
    spark: SparkSession, work: list[str], function: Callable[[Any], Any], schema: Any
) -> DataFrame:
    """What the function makes of pieces of work, one a task. Executors need no minirt for it."""
    with without_pandas(), by_value(json_values, json_shapes, json_lines):
        table = pa.table({"work": pa.array(work, pa.string())})
        pieces = spark.createDataFrame(table).repartition(len(work))
        return pieces.mapInArrow(function, schema)


def _wider(
    spark: SparkSession,
    pieces: Sequence[Piece],
    name: str,
    known: Mapping[str, pa.DataType],
    found: Scan,
    zone: str,
    here: bool,
) -> pa.DataType:
    """Of numbers that are not all of the expected type, the type that holds them.

    Raises SourceDataError for other values.
    """
    if not _is_number(known[name]):
        raise SourceDataError(f"cannot compare the output: {found.misfits[name]}")
    others = {other: kind for other, kind in known.items() if other != name}
    shape = _scanned(spark, pieces, others, zone, here).shapes[name]
    if shape.kind != "number":
        raise SourceDataError(f"cannot compare the output: {found.misfits[name]}")
    return _of_shape(name, shape)


def _of_shape(name: str, shape: json_shapes.Shape) -> pa.DataType:
    try:
        return shape.arrow()
    except Mixed as mixed:
        raise SourceDataError(f"cannot compare the output: column {name}: {mixed}") from None


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _arrow_types(like: StructType, without: Sequence[str]) -> dict[str, pa.DataType]:
    """The types of columns in Arrow. Raises ConfigurationError for those that it does not have."""
    from pyspark.errors import PySparkException

    try:
        found = arrow_schema(like)
    except PySparkException as error:
        raise ConfigurationError(
            f"what is expected cannot be compared with JSON: {error}"
        ) from None
    return {field.name: field.type for field in found if field.name not in without}


def _spark_schema(schema: pa.Schema) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def _pieces(files: Mapping[str, Partition]) -> Iterator[Piece]:
    for path, partition in files.items():
        if path.endswith(_COMPRESSED):
            yield Piece(path, 0, None, partition)
            continue
        size = Path(path).stat().st_size
        for begin in range(0, size, _PIECE_BYTES):
            yield Piece(path, begin, min(begin + _PIECE_BYTES, size), partition)
