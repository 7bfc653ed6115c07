"""Whether a driver takes the values of a column: it is tried out, since no driver tells."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal
from typing import Any

import pyarrow as pa

from minirt.errors import ConfigurationError, MinirtError, SinkDataError
from minirt_connectors.database.driver import Driver
from minirt_connectors.dbapi import rows


def check_types(driver: Driver, connection: Any, schema: pa.Schema) -> None:
    """Raise ConfigurationError, with the column, for a type whose values the driver has no form for.

    Its commits would fail for ever. A query of nothing but a parameter tells it, where the database has
    such queries.
    """
    if _refusal(driver, connection, 1) is not None:
        return
    for field in schema:
        value = sample(field.type)
        refusal = None if value is None else _refusal(driver, connection, value)
        if refusal is not None:
            raise ConfigurationError(
                f"column {field.name!r} is {field.type}, and the driver {driver.name!r} takes no value of "
                f"Python's {type(value).__name__}: {refusal}. Give the column another type in schema=..., "
                "such as string, and convert the records"
            )


def sample(kind: pa.DataType) -> Any:
    """Some value of an Arrow type as Python has it; None for a type without any."""
    if pa.types.is_null(kind):
        return None
    if pa.types.is_boolean(kind):
        return True
    if pa.types.is_fixed_size_binary(kind):
        return bytes(kind.byte_width)
    if pa.types.is_decimal(kind):
        return Decimal(1)
    if pa.types.is_struct(kind):
        return {field.name: None for field in kind}
    if pa.types.is_nested(kind):
        return []
    if pa.types.is_dictionary(kind):
        return sample(kind.value_type)
    # Texts, bytes and numbers come from a text, times from whole numbers.
    for value in (pa.scalar("1"), pa.scalar(0, pa.int64()), pa.scalar(0, pa.int32())):
        with suppress(pa.ArrowException):
            return value.cast(kind).as_py()
    return None


def _refusal(driver: Driver, connection: Any, value: Any) -> str | None:
    """What is said against a value as a parameter."""
    [mark] = driver.marks(["value"])
    [named] = driver.parameters(["value"], [(value,)])
    try:
        with driver.errors("cannot take it", SinkDataError):
            rows(connection, f"SELECT {mark}", named)
    except MinirtError as error:
        with suppress(Exception):
            connection.rollback()
        return str(error).partition(": cannot take it: ")[2] or str(error)
    return None
