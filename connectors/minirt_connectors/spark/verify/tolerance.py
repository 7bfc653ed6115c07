"""Numbers that are nearly equal, made equal before rows are compared."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from minirt.errors import ConfigurationError
from minirt_connectors.spark.columns import EXACT_JSON, column, is_orderable, quoted, refuse_unknown
from minirt_connectors.spark.session import without_pandas
from minirt_connectors.spark.verify import near_numbers
from minirt_connectors.spark.verify.by_value import by_value
from minirt_connectors.spark.verify.near_numbers import Allowed, Row, pairs

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_SHARE = re.compile(r"(\d\d?(?:\.\d+)?(?:[eE]-\d+)?)\s*%")

_MINUS_ZERO = r"(?<=[:,\[])-0\.0(?=[,}\]])"
"""As it is in JSON. In a text it is hit as well, which does no harm: groups say which rows may pair."""

Tolerance = Mapping[str, "float | str"]
"""For a column, the largest difference that counts as none: a number, or a share such as "0.1%"."""


def check_tolerance(expected: DataFrame, tolerance: Tolerance, keys: Sequence[str]) -> None:
    """Raise ConfigurationError unless each is a number or a share for a numeric column that is no key."""
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
        _allowed(name, allowed)
    if tolerance and set(tolerance) == set(expected.columns):
        raise ConfigurationError("tolerance: at least one column must be compared exactly")


def tolerance_of(text: str) -> dict[str, float | str]:
    """`price=0.01,ratio=0.1%` as the tolerance of columns. Raises ConfigurationError for other texts."""
    found: dict[str, float | str] = {}
    for part in text.split(","):
        name, _, allowed = part.rpartition("=")
        try:
            found[name.strip()] = allowed.strip() if "%" in allowed else float(allowed)
        except ValueError:
            name = ""
        if not name:
            raise ConfigurationError(
                f"a tolerance is written as price=0.01,ratio=0.1%, not {text!r}"
            )
    return found


def _allowed(name: str, allowed: object) -> Allowed:
    if isinstance(allowed, str) and (match := _SHARE.fullmatch(allowed.strip())):
        return Allowed(Decimal(0), Decimal(match[1]) / 100)
    number = isinstance(allowed, int | float | Decimal) and not isinstance(allowed, bool)
    if not number or not (math.isfinite(allowed) and allowed >= 0):  # type: ignore[arg-type, operator]
        raise ConfigurationError(
            f'tolerance of {name} must be finite and not negative, or a share such as "0.1%", got '
            f"{allowed!r}"
        )
    return Allowed(Decimal(str(allowed)), Decimal(0))


def pair(
    output: DataFrame, expected: DataFrame, tolerance: Tolerance
) -> tuple[DataFrame, DataFrame]:
    """Both, where each row of the output has the numbers of an expected row that is near enough.

    Rows belong together when all columns without tolerance are equal; each expected row has at most one of
    the output, and as many find one as can. Numbers whose types differ on both sides become text.
    """
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    names = list(tolerance)
    kinds = {name: (output.schema[name].dataType, expected.schema[name].dataType) for name in names}
    for name, (there, wanted) in kinds.items():
        if not isinstance(there, T.NumericType):
            raise ConfigurationError(
                f"column {name} is {there.simpleString()} in the output and {wanted.simpleString()} in "
                "what is expected: cast one of them"
            )
    others = [name for name in output.columns if name not in tolerance]
    row_type = T.StructType([output.schema[name] for name in others])
    kept = F.struct(*[column(name) for name in others])
    sides = [
        _flat(output, others, names, kept.cast(row_type)),
        _flat(expected, others, names, F.lit(None).cast(row_type)),
    ]
    both = sides[0].unionAll(sides[1]).repartition("group").sortWithinPartitions("group", "rough")
    schema = T.StructType(
        [T.StructField("row", row_type), T.StructField("numbers", T.ArrayType(T.StringType()))]
    )
    with without_pandas(), by_value(near_numbers):
        paired = both.mapInArrow(_pairing([_allowed(*item) for item in tolerance.items()]), schema)
    there_numbers = {name: F.col("numbers")[place] for place, name in enumerate(names)}
    present = [
        _number(there_numbers[name], kinds[name]).alias(name)
        if name in tolerance
        else F.col(f"row.{quoted(name)}").alias(name)
        for name in output.columns
    ]
    wanted_columns = [
        _number(_text(column(name)), kinds[name]).alias(name) if name in tolerance else column(name)
        for name in expected.columns
    ]
    return paired.select(*present), expected.select(*wanted_columns)


def _flat(df: DataFrame, others: Sequence[str], names: Sequence[str], row: Column) -> DataFrame:
    """What pairing goes by: equal rows have one text as their group, and numbers are texts."""
    from pyspark.sql import functions as F

    whole = F.to_json(
        F.struct(*[_sorted(column(name), df.schema[name].dataType) for name in others]),
        {**EXACT_JSON, "ignoreNullFields": "false"},
    )
    return df.select(
        F.regexp_replace(whole, _MINUS_ZERO, "0.0").alias("group"),
        column(names[0]).cast("double").alias("rough"),
        F.array(*[_text(column(name)) for name in names]).alias("numbers"),
        row.alias("row"),
    )


def _sorted(value: Column, kind: DataType) -> Column:
    """The value, a map as its sorted entries: maps are equal in any order."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if isinstance(kind, T.MapType) and is_orderable(kind.valueType):
        return F.array_sort(F.map_entries(value))
    return value


def _text(value: Column) -> Column:
    return value.cast("string")


def _number(text: Column, kinds: tuple[DataType, DataType]) -> Column:
    """The number again, where both sides have one type for it."""
    there, wanted = kinds
    return text.cast(wanted) if there.simpleString() == wanted.simpleString() else text


def _pairing(allowed: Sequence[Allowed]) -> Callable[[Any], Any]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        row_type: Any = None

        def rows() -> Iterator[Row]:
            nonlocal row_type
            for batch in batches:
                group, rough, numbers, whole = batch.columns
                row_type = whole.type
                for place in range(batch.num_rows):
                    one = whole[place]
                    yield Row(
                        group[place].as_py(),
                        rough[place].as_py(),
                        tuple(numbers[place].as_py()),
                        one if one.is_valid else None,
                    )

        def batch_of(found: list[tuple[Any, Any]]) -> pa.RecordBatch:
            columns = [
                pa.array([place for place, _ in found], row_type),
                pa.array([list(numbers) for _, numbers in found], pa.list_(pa.string())),
            ]
            return pa.RecordBatch.from_arrays(columns, ["row", "numbers"])

        found: list[tuple[Any, Any]] = []
        for one in pairs(rows(), allowed):
            found.append(one)
            if len(found) == 4096:
                yield batch_of(found)
                found = []
        if found:
            yield batch_of(found)

    return run
