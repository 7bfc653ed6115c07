"""Checks of the columns of a DataFrame: their existence, their types, their content."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from minirt.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

_UNREADABLE = frozenset(
    [
        "void",
        "interval",
        "daytimeinterval",
        "yearmonthinterval",
        "variant",
        "geometry",
        "geography",
    ]
)
"""Types that Parquet does not hold, or not in a way that others than Spark understand."""

_EXACT_PARQUET = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
}

EXACT_JSON = {
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
    if not df.columns:
        raise ConfigurationError("the DataFrame has no columns")
    with_case = df.sparkSession.conf.get("spark.sql.caseSensitive", "false") == "true"
    seen: dict[str, str] = {}
    for field in df.schema:
        folded = field.name if with_case else field.name.lower()
        if field.name == seen.get(folded):
            raise ConfigurationError(f"two columns are called {field.name}: rename one")
        if folded in seen:
            raise ConfigurationError(
                f"columns {seen[folded]} and {field.name} differ in case only, which this session passes "
                "over (spark.sql.caseSensitive): rename one"
            )
        seen[folded] = field.name
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

    parts, zeros = [], []
    for field in df.schema:
        value = column(field.name)
        parts += [F.to_json(F.struct(value), EXACT_JSON) if _is_nested(field.dataType) else value]
        parts += [value.isNull()]
        if _type_name(field.dataType) in ("float", "double"):
            zeros.append(F.coalesce(value.cast("string") == "-0.0", F.lit(False)))
    hashed = F.xxhash64(*parts).cast("decimal(38,0)")
    # Spark hashes -0.0 as 0.0: a second hash has the rows in which there is one, and where.
    has_zero = functools.reduce(operator.or_, zeros, F.lit(False))
    with_zeros = F.when(has_zero, F.xxhash64(*parts, *zeros).cast("decimal(38,0)"))
    both = df.select(hashed.alias("hash"), with_zeros.alias("zeros"))
    row = both.agg(F.count("*"), F.sum("hash"), F.sum("zeros")).first()
    assert row is not None
    return f"{row[0]} rows, {row[1] or 0}" + ("" if row[2] is None else f", -0.0 in {row[2]}")


def arrow_schema(schema: StructType) -> pa.Schema:
    """The columns as `mapInArrow` has them, but with times in UTC, whatever the zone of the session is."""
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        found = to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # Spark 4.0 takes no time zone: it is UTC.
        found = to_arrow_schema(schema)
    return pa.schema([pa.field(one.name, one.type) for one in found])


@contextmanager
def exact_parquet(spark: SparkSession) -> Iterator[None]:
    """Have Spark write values as they are, whatever the session says.

    Timestamps become instants in UTC, not the old format without a time zone; dates and times before the
    Gregorian calendar are not shifted to the Julian one; lists and decimals have the form of today.
    """
    before = {option: spark.conf.get(option, None) for option in _EXACT_PARQUET}
    for option, value in _EXACT_PARQUET.items():
        spark.conf.set(option, value)
    try:
        yield
    finally:
        for option, earlier in before.items():
            if earlier is None:
                spark.conf.unset(option)
            else:
                spark.conf.set(option, earlier)


def is_deterministic(df: DataFrame) -> bool:
    """False if Spark knows that the rows are others at each pass; a client of Spark Connect cannot tell."""
    try:
        return bool(df._jdf.queryExecution().analyzed().deterministic())
    except Exception:
        return True


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
