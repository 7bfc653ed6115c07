"""Compares two DataFrames as multisets of rows, in one pass of Spark over both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minirt.errors import ConfigurationError, SourceDataError
from minirt_connectors.spark.columns import (
    EXACT_JSON,
    column,
    is_orderable,
    quoted,
    refuse_unknown,
)
from minirt_connectors.spark.session import reasons, require_pyspark
from minirt_connectors.spark.verify.alignment import align
from minirt_connectors.spark.verify.committed import Found, read_committed, within_reach
from minirt_connectors.spark.verify.tolerance import Tolerance, check_tolerance, pair
from minirt_connectors.spark.verify.verdict import Verdict

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

_KINDS = ("lost", "duplicated", "unexpected")


def verify(
    spark: SparkSession,
    output: str | DataFrame,
    expected: DataFrame,
    *,
    keys: Sequence[str] | None = None,
    tolerance: Tolerance | None = None,
    examples: int = 10,
    report: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Verdict:
    """Have Spark compare the committed output of a job with what it must be.

    `output` is a folder or file of Parquet or JSONL, read as any reader sees it (files that are not
    committed are hidden), or a DataFrame. It may also be a Delta table, by its folder, an Iceberg table,
    by its file of metadata (`table.metadata_location`), or a topic of JSON values,
    `kafka://HOST:PORT/TOPIC`, of which committed records count. What is not local is copied by fsspec or by
    the client of the system, which gets `storage_options`, so Spark needs no connector.

    Both sides are multisets of rows: the order of rows and of columns does not count, null equals null.

    Without `keys`, a row that is there less often than expected is lost, one that is there more
    often is duplicated, and one that is not expected at all is unexpected. With `keys`, columns that
    identify a result, the same is asked of keys instead of rows; of the rows whose key is there as
    often as expected, those with other values than expected are unexpected, not lost.

    Values are compared as they are written. Lines of JSON are read by Python's own reader: a second value
    behind the first, a field twice, a value that is none of the expected type end the comparison, with file
    and line. What folders are called has the type that is expected, if it is written so: 007 is not 7.
    Numbers of different types are equal if none is rounded.

    `tolerance` gives numeric columns a largest difference that still counts as equal, as a number or as a
    share of the expected number, such as "0.1%": rows that are alike otherwise are paired so that as many
    as can have a near one, and numbers count as what they print. `examples` is how many findings of each
    kind the verdict shows, `report` where to write it as JSON.

    Raises ConfigurationError if columns or types do not fit, StorageError for a path that holds
    nothing, and SourceDataError if the output cannot be read.
    """
    with reading():
        return compare(
            spark,
            output,
            Found(expected),
            keys=keys,
            tolerance=tolerance,
            examples=examples,
            report=report,
            storage_options=storage_options,
        )


@contextmanager
def reading() -> Iterator[None]:
    """Raise SourceDataError, in Spark's words alone, for what Spark cannot read or compare."""
    require_pyspark()
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise SourceDataError(f"Spark cannot compare the output: {reasons(error)}") from error


def compare(
    spark: SparkSession,
    output: str | DataFrame,
    expected: Found,
    *,
    keys: Sequence[str] | None,
    tolerance: Tolerance | None = None,
    examples: int = 10,
    report: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Verdict:
    """As `verify`, of expected rows some of whose columns may be the texts of folders."""
    if isinstance(keys, str):
        raise ConfigurationError(f"keys is a list of columns, not {keys!r}")
    if not isinstance(examples, int) or examples < 0:
        raise ConfigurationError(f"examples must be 0 or more, got {examples!r}")
    refuse_unknown(expected.frame, keys or (), "keys")
    check_tolerance(expected.frame, tolerance or {}, keys or ())
    with ExitStack() as stack:
        if isinstance(output, str):
            path = stack.enter_context(within_reach(output, storage_options))
            untyped = expected.frame.drop(*expected.texts) if expected.texts else expected.frame
            found = read_committed(spark, path, untyped.schema)
        else:
            found = Found(output)
        present, wanted = align(found, expected, tolerance or ())
        if tolerance:
            present, wanted = pair(present, wanted, tolerance)
        verdict = _judge(present, wanted, keys or wanted.columns, examples)
    if report is not None:
        Path(report).write_text(verdict.to_json() + "\n")
    return verdict


def _judge(output: DataFrame, expected: DataFrame, keys: Sequence[str], examples: int) -> Verdict:
    from pyspark.sql import functions as F

    findings = _findings(output, expected, keys).persist()
    try:
        sums = ["rows_expected", "rows_output", *_KINDS]
        totals = findings.agg(*[F.coalesce(F.sum(name), F.lit(0)) for name in sums]).first()
        assert totals is not None
        counts = {name: int(total) for name, total in zip(sums, totals, strict=True)}
        shown = {
            kind: _examples(findings, expected, keys, kind, examples)
            for kind in _KINDS
            if counts[kind] and examples
        }
    finally:
        findings.unpersist()
    return Verdict(**counts, examples=shown)


def _findings(output: DataFrame, expected: DataFrame, keys: Sequence[str]) -> DataFrame:
    """One row for every key, with its counts and, where they are wrong, a row of either side."""
    from pyspark.sql import functions as F

    both = _tagged(expected, e=1, o=0).unionAll(_tagged(output, e=0, o=1))
    counted = both.groupBy("row").agg(F.sum("e").alias("e"), F.sum("o").alias("o"))
    e, o = F.col("e"), F.col("o")
    of_key = counted.groupBy(*[_of_row(name, i) for i, name in enumerate(keys)]).agg(
        F.sum(e).alias("rows_expected"),
        F.sum(o).alias("rows_output"),
        F.sum(F.least(e, o)).alias("right"),
        _some_row(e > o).alias("missing_row"),
        _some_row(o > e).alias("extra_row"),
        _some_row(e > 0).alias("known_row"),
    )
    there, wanted = F.col("rows_output"), F.col("rows_expected")
    surplus = F.greatest(there - wanted, F.lit(0))
    changed = F.least(there, wanted) - F.col("right")
    return of_key.withColumns(
        {
            "lost": F.greatest(wanted - there, F.lit(0)),
            "duplicated": F.when(wanted > 0, surplus).otherwise(0),
            "unexpected": changed + F.when(wanted > 0, 0).otherwise(surplus),
        }
    )


def _tagged(df: DataFrame, e: int, o: int) -> DataFrame:
    """Every row with how often it is expected and how often it is in the output."""
    from pyspark.sql import functions as F

    row = F.struct(*[column(name) for name in df.columns])
    return df.select(row.alias("row"), F.lit(e).alias("e"), F.lit(o).alias("o"))


def _of_row(name: str, position: int) -> Column:
    from pyspark.sql import functions as F

    return F.col(f"row.{quoted(name)}").alias(f"key{position}")


def _some_row(condition: Column) -> Column:
    from pyspark.sql import functions as F

    return F.first(F.when(condition, F.col("row")), ignorenulls=True)


def _examples(
    findings: DataFrame, expected: DataFrame, keys: Sequence[str], kind: str, limit: int
) -> list[dict[str, Any]]:
    """The first findings of this kind by key, so that two verdicts on the same output are equal."""
    from pyspark.sql import functions as F

    order = [_sortable(f"key{i}", expected.schema[name].dataType) for i, name in enumerate(keys)]
    found = findings.where(F.col(kind) > 0).orderBy(*order).limit(limit)
    return [_finding(each.asDict(recursive=True), kind) for each in found.collect()]


def _sortable(key: str, kind: DataType) -> Column:
    """The key, or its text where Spark has no order for the type: that of maps."""
    from pyspark.sql import functions as F

    return F.col(key) if is_orderable(kind) else F.to_json(F.struct(F.col(key)), EXACT_JSON)


def _finding(found: dict[str, Any], kind: str) -> dict[str, Any]:
    if kind == "lost":
        return {"row": found["missing_row"], "times": found[kind]}
    row = found["extra_row"]
    right = found["missing_row"] or found["known_row"]
    instead = {"expected_row": right} if right is not None and right != row else {}
    return {"row": row, **instead, "times": found[kind]}
