"""Brings two DataFrames to the same columns in the same order, with types that can be compared."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from minirt.errors import ConfigurationError
from minirt_connectors.spark.columns import column, refuse_unreadable
from minirt_connectors.spark.verify.committed import Found
from minirt_connectors.spark.verify.partition_folders import refuse_texts

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, DecimalType

_LONGS_AS_DOUBLE_MAX = 2**63 - 1024
"""The largest double that is a long."""
_WHOLE_DOUBLES = 2.0**53
"""From here on every double is a whole number."""
_LONG_DOUBLES = 2.0**63
_DECIMAL_DIGITS_MAX = 38

Form = Callable[["Column"], "Column"]
"""Brings a column to a type of both sides."""


def align(
    output: Found, expected: Found, numbers: Collection[str] = ()
) -> tuple[DataFrame, DataFrame]:
    """Both with the columns of `expected`; where types differ, both get one that holds either.

    No difference is rounded away. Numbers are equal if each is what the other is in its own type: a double
    and a whole number or a decimal are compared there and back. Where no type of Spark holds either number,
    both become text. Points in time without zone count as in the session's time zone, and texts have no
    collation. What folders are called (`day=2024-05-06`) has the type of the other side.

    The columns `numbers` stay as they are, since they are compared otherwise.
    Raises ConfigurationError if a column is missing, is in excess, or has a type of another kind.
    """
    refuse_unreadable(output.frame)
    refuse_unreadable(expected.frame)
    wanted = expected.frame.columns
    missing = [name for name in wanted if name not in output.frame.columns]
    extra = [name for name in output.frame.columns if name not in wanted]
    if missing or extra:
        raise ConfigurationError(
            "the output has other columns than expected: "
            f"missing {', '.join(missing) or 'none'}; in excess {', '.join(extra) or 'none'}"
        )
    present, right = typed(output, expected), typed(expected, output)
    forms = {
        name: (_as_it_is, _as_it_is)
        if name in numbers
        else _forms(name, present.schema[name].dataType, right.schema[name].dataType)
        for name in wanted
    }
    return (
        present.select(*[forms[name][0](column(name)).alias(name) for name in wanted]),
        right.select(*[forms[name][1](column(name)).alias(name) for name in wanted]),
    )


def typed(found: Found, other: Found) -> DataFrame:
    """The rows with the texts of folders in the types of the other side, if that has types.

    Raises ConfigurationError for a text that is not how such a value is written.
    """
    columns = []
    for name in found.frame.columns:
        one = column(name)
        if name in found.texts and name in other.frame.columns and name not in other.texts:
            kind = other.frame.schema[name].dataType
            refuse_texts(name, found.texts[name], kind)
            one = one.cast(kind).alias(name)
        columns.append(one)
    return found.frame.select(*columns)


def _forms(name: str, output: DataType, expected: DataType) -> tuple[Form, Form]:
    from pyspark.sql import types as T

    both = (output, expected)
    if _without_collation(output).simpleString() == _without_collation(expected).simpleString():
        return _cast(_without_collation(output)), _cast(_without_collation(expected))
    if all(isinstance(kind, T.IntegralType) for kind in both):
        return _cast(T.LongType()), _cast(T.LongType())
    if all(isinstance(kind, T.IntegralType | T.DecimalType) for kind in both):
        return _decimals(*both)
    if all(isinstance(kind, T.FloatType | T.DoubleType) for kind in both):
        return _cast(T.DoubleType()), _cast(T.DoubleType())
    if all(isinstance(kind, T.NumericType) for kind in both):
        return _as_double(output), _as_double(expected)
    if all(isinstance(kind, T.StringType | T.CharType | T.VarcharType) for kind in both):
        return _cast(T.StringType()), _cast(T.StringType())
    if all(isinstance(kind, T.TimestampType | T.TimestampNTZType) for kind in both):
        return _cast(T.TimestampType()), _cast(T.TimestampType())
    raise ConfigurationError(
        f"column {name} is {output.simpleString()} in the output and {expected.simpleString()} in "
        "what is expected: cast one of them"
    )


def _as_it_is(value: Column) -> Column:
    return value


def _cast(kind: DataType) -> Form:
    return lambda value: value.cast(kind)


def _decimals(left: DataType, right: DataType) -> tuple[Form, Form]:
    """Decimals that hold both; texts where those would have too many digits."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    first, second = _decimal(left), _decimal(right)
    scale = max(first.scale, second.scale)
    whole = max(first.precision - first.scale, second.precision - second.scale)
    if whole + scale <= _DECIMAL_DIGITS_MAX:
        return _cast(T.DecimalType(whole + scale, scale)), _cast(
            T.DecimalType(whole + scale, scale)
        )
    fine = first if first.scale == scale else second

    def as_text(value: Column) -> Column:
        # What is too large for the finer type is equal to no value of it.
        return F.coalesce(value.try_cast(fine).cast("string"), value.cast("string"))

    return as_text, as_text


def _decimal(kind: DataType) -> DecimalType:
    from pyspark.sql import types as T

    return kind if isinstance(kind, T.DecimalType) else T.DecimalType(19, 0)


def _as_double(kind: DataType) -> Form:
    """The text of the double that the number is. One that is no double has a text that no double has."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    def of_double(value: Column) -> Column:
        # -0.0 is 0.0, as it is elsewhere.
        return (value.cast("double") + F.lit(0.0)).cast("string")

    def of_exact(value: Column) -> Column:
        near = value.cast("double")
        if isinstance(kind, T.IntegralType):
            long = value.cast("long")
            safe = F.least(long, F.lit(_LONGS_AS_DOUBLE_MAX))
            same = (long <= _LONGS_AS_DOUBLE_MAX) & (safe.cast("double").cast("long") == long)
        else:
            whole = (F.abs(near) >= _WHOLE_DOUBLES) & (F.abs(near) < _LONG_DOUBLES)
            back = F.when(whole, F.when(whole, near).cast("long").try_cast(kind))
            same = F.coalesce(back, near.try_cast(kind)) == value
        return F.when(same, of_double(near)).otherwise(
            F.concat(value.cast("string"), F.lit(" exactly"))
        )

    return of_double if isinstance(kind, T.FloatType | T.DoubleType) else of_exact


def _without_collation(kind: DataType) -> DataType:
    """The type, with texts that are equal only if they are the same."""
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        return T.StructType(
            [
                T.StructField(one.name, _without_collation(one.dataType), one.nullable)
                for one in kind.fields
            ]
        )
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_without_collation(kind.elementType), kind.containsNull)
    if isinstance(kind, T.MapType):
        key, value = _without_collation(kind.keyType), _without_collation(kind.valueType)
        return T.MapType(key, value, kind.valueContainsNull)
    return T.StringType() if type(kind) is T.StringType else kind
