"""Brings two DataFrames to the same columns in the same order, with types that can be compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minirt.errors import ConfigurationError
from minirt_connectors.spark.columns import column, refuse_unreadable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType


def align(output: DataFrame, expected: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Both with the columns of `expected`; where types differ, both get one that holds either.

    Numbers are widened, so that no difference is rounded away; points in time without zone count as
    in the session's time zone. Raises ConfigurationError if a column is missing, is in excess, or
    has a type of another kind.
    """
    refuse_unreadable(output)
    refuse_unreadable(expected)
    missing = [name for name in expected.columns if name not in output.columns]
    extra = [name for name in output.columns if name not in expected.columns]
    if missing or extra:
        raise ConfigurationError(
            "the output has other columns than expected: "
            f"missing {', '.join(missing) or 'none'}; in excess {', '.join(extra) or 'none'}"
        )
    types = {
        name: _common(name, output.schema[name].dataType, expected.schema[name].dataType)
        for name in expected.columns
    }
    return _cast(output, types), _cast(expected, types)


def _cast(df: DataFrame, types: dict[str, DataType | None]) -> DataFrame:
    columns = [column(name) for name in types]
    return df.select(
        *[
            one if kind is None else one.cast(kind).alias(name)
            for one, (name, kind) in zip(columns, types.items(), strict=True)
        ]
    )


def _common(name: str, output: DataType, expected: DataType) -> DataType | None:
    """The type to cast both to, None if they are alike (but for what may be null in them)."""
    from pyspark.sql import types as T

    if output.simpleString() == expected.simpleString():
        return None
    both = (output, expected)
    if all(isinstance(kind, T.IntegralType) for kind in both):
        return T.LongType()
    if all(isinstance(kind, T.IntegralType | T.DecimalType) for kind in both):
        return _common_decimal(*both)
    if all(isinstance(kind, T.NumericType) for kind in both):
        return T.DoubleType()
    if all(isinstance(kind, T.StringType | T.CharType | T.VarcharType) for kind in both):
        return T.StringType()
    if all(isinstance(kind, T.TimestampType | T.TimestampNTZType) for kind in both):
        return T.TimestampType()
    raise ConfigurationError(
        f"column {name} is {output.simpleString()} in the output and {expected.simpleString()} in "
        "what is expected: cast one of them"
    )


def _common_decimal(left: DataType, right: DataType) -> DataType:
    from pyspark.sql import types as T

    decimals = [
        kind if isinstance(kind, T.DecimalType) else T.DecimalType(19, 0) for kind in (left, right)
    ]
    scale = max(kind.scale for kind in decimals)
    whole = max(kind.precision - kind.scale for kind in decimals)
    return T.DecimalType(min(whole + scale, 38), scale)
