"""Checks of the columns of a DataFrame: their existence, their types, their content."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from minirt.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

_UNREADABLE = frozenset(
    [
        "void",
        "interval",
        "daytimeinterval",
        "yearmonthinterval",
        "variant",
        "geometry",
        "geography",
        "udt",
    ]
)
"""Types that Parquet does not hold, or not in a way that others than Spark understand."""

_EXACT_JSON = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def column(name: str) -> Column:
    """The column of exactly this name, whatever characters are in it."""
    from pyspark.sql import functions as F

    return F.col(quoted(name))


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def refuse_unknown(df: DataFrame, names: Iterable[str], option: str) -> None:
    """Raise ConfigurationError for a name that is not a column."""
    unknown = [name for name in names if name not in df.columns]
    if unknown:
        raise ConfigurationError(
            f"{option}: no column {', '.join(unknown)}; there are {', '.join(df.columns)}"
        )


def refuse_unreadable(df: DataFrame) -> None:
    """Raise ConfigurationError for columns that records cannot carry, or that share a name."""
    seen: set[str] = set()
    for field in df.schema:
        if field.name in seen:
            raise ConfigurationError(f"two columns are called {field.name}: rename one")
        seen.add(field.name)
        bad = next((t for t in _nested_types(field.dataType) if _type_name(t) in _UNREADABLE), None)
        if bad is not None:
            raise ConfigurationError(
                f"column {field.name}: records cannot carry the type {bad.simpleString()}; cast it"
            )


def content_hash(df: DataFrame) -> str:
    """A hash of the rows as a multiset: equal for equal rows, in whatever order Spark reads them.

    Every column is hashed with a flag, since Spark's hash leaves nulls out; nested values are
    hashed as JSON for the same reason.
    """
    from pyspark.sql import functions as F

    parts = []
    for field in df.schema:
        value = column(field.name)
        parts += [F.to_json(F.struct(value), _EXACT_JSON) if _is_nested(field.dataType) else value]
        parts += [value.isNull()]
    hashed = (F.xxhash64(*parts) if parts else F.lit(0)).cast("decimal(38,0)")
    row = df.select(hashed.alias("hash")).agg(F.count("*"), F.sum("hash")).first()
    assert row is not None
    return f"{row[0]} rows, {row[1] or 0}"


@contextmanager
def single_timestamp_format(spark: SparkSession) -> Iterator[None]:
    """Have Spark write timestamps as instants in UTC, not in its old format without a time zone."""
    option = "spark.sql.parquet.outputTimestampType"
    before = spark.conf.get(option)
    spark.conf.set(option, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        spark.conf.set(option, before)


def is_orderable(kind: DataType) -> bool:
    """Whether Spark can sort by values of this type."""
    return all(_type_name(inner) not in ("map", "variant") for inner in _nested_types(kind))


def _is_nested(kind: DataType) -> bool:
    return len(list(_nested_types(kind))) > 1 or _type_name(kind) == "struct"


def _nested_types(kind: DataType) -> Iterator[DataType]:
    from pyspark.sql.types import ArrayType, MapType, StructType

    yield kind
    if isinstance(kind, StructType):
        inner = [field.dataType for field in kind.fields]
    elif isinstance(kind, ArrayType):
        inner = [kind.elementType]
    elif isinstance(kind, MapType):
        inner = [kind.keyType, kind.valueType]
    else:
        return
    for each in inner:
        yield from _nested_types(each)


def _type_name(kind: DataType) -> str:
    return str(kind.typeName()).split(" ")[0]
