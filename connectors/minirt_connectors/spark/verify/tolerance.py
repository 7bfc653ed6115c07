"""Numbers that are nearly equal, made equal before rows are compared."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from minirt.errors import ConfigurationError
from minirt_connectors.spark.columns import column, quoted, refuse_unknown

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def check_tolerance(
    expected: DataFrame, tolerance: Mapping[str, float], keys: Sequence[str]
) -> None:
    """Raise ConfigurationError unless each is a number for a numeric column that is not a key."""
    from pyspark.sql.types import NumericType

    refuse_unknown(expected, tolerance, "tolerance")
    for name, allowed in tolerance.items():
        kind = expected.schema[name].dataType
        if not isinstance(kind, NumericType):
            raise ConfigurationError(
                f"tolerance: column {name} is {kind.simpleString()}, not a number"
            )
        if name in keys:
            raise ConfigurationError(f"tolerance: column {name} is one of the keys")
        if isinstance(allowed, bool) or not (math.isfinite(allowed) and allowed >= 0):
            raise ConfigurationError(
                f"tolerance of {name} must be finite and not negative, got {allowed!r}"
            )


def snap(
    output: DataFrame,
    expected: DataFrame,
    keys: Sequence[str] | None,
    tolerance: Mapping[str, float],
) -> DataFrame:
    """The output with the nearest expected numbers of the same key, where all are within tolerance.

    Without `keys`, rows belong together when all columns without tolerance are equal. Raises
    ConfigurationError if there is no such column.
    """
    from pyspark.sql import functions as F

    same = list(keys or [name for name in output.columns if name not in tolerance])
    if not same:
        raise ConfigurationError("tolerance: at least one column must be compared exactly")
    expected_numbers = F.struct(*[column(name) for name in tolerance])
    near = expected.groupBy(*[column(n).alias(f"key{i}") for i, n in enumerate(same)]).agg(
        F.collect_set(expected_numbers).alias("near")
    )
    row = F.struct(*[column(name) for name in output.columns])
    joined = output.select(row.alias("row")).join(
        near, [_of_row(n).eqNullSafe(F.col(f"key{i}")) for i, n in enumerate(same)], "left"
    )
    nearest = joined.select("row", _nearest(tolerance).alias("nearest"))
    snapped = [
        F.coalesce(F.col(f"nearest.{quoted(n)}"), _of_row(n)) if n in tolerance else _of_row(n)
        for n in output.columns
    ]
    return nearest.select(*[c.alias(n) for c, n in zip(snapped, output.columns, strict=True)])


def _nearest(tolerance: Mapping[str, float]) -> Column:
    """Of the structs in `near`, the one nearest to `row` if it is near enough, else null."""
    from pyspark.sql import functions as F

    def distance(numbers: Column, name: str) -> Column:
        there, wanted = _of_row(name), numbers[name]
        gap = F.abs(there.cast("double") - wanted.cast("double"))
        return F.when(there.eqNullSafe(wanted), 0.0).otherwise(gap)

    def near_enough(numbers: Column) -> Column:
        within = [distance(numbers, name) <= allowed for name, allowed in tolerance.items()]
        return F.coalesce(functools.reduce(operator.and_, within), F.lit(False))

    def ranked(numbers: Column) -> Column:
        total = functools.reduce(operator.add, [distance(numbers, name) for name in tolerance])
        return F.struct(total.alias("distance"), numbers.alias("numbers"))

    ranking = F.transform(F.filter("near", near_enough), ranked)
    return F.array_min(ranking)["numbers"]


def _of_row(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.col(f"row.{quoted(name)}")
