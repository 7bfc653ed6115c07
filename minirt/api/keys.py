"""Makes a selector from a user's key, and checks it against the columns as far as they are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from minirt.data.keys import check_key_type
from minirt.errors import ConfigurationError
from minirt.graph.keys import KeySelector
from minirt.operators.common.checks import check_column
from minirt.operators.common.functions import check_function, check_key_function

KeySpec = str | Sequence[str] | Callable[[Any], Any]
"""A column, several columns, or a function of the record."""


def hash_key(parts: Sequence[Any], schema: pa.Schema | None, label: str) -> KeySelector:
    """The selector of a key that decides on state. Raises ConfigurationError for unstable keys."""
    selector = _selector(parts, schema, label)
    if selector.function is not None:
        check_key_function(selector.function, label)
    if schema is None:
        return selector
    for column in selector.columns:
        problem = check_key_type(schema.field(column).type)
        if problem is not None:
            raise ConfigurationError(f"{label}: column {column!r} cannot be a key: {problem}")
    return selector


def routing_key(parts: Sequence[Any], schema: pa.Schema | None, label: str) -> KeySelector:
    """The selector of a key that only the user's partitioner sees: of any type."""
    selector = _selector(parts, schema, label)
    if selector.function is not None:
        check_function(selector.function, label, "the record", returns="the key")
    return selector


def key_parts(key: Any) -> Sequence[Any]:
    """One key argument as the list of parts that `key_by` would have been given."""
    return key if isinstance(key, list | tuple) else (key,)


def _selector(parts: Sequence[Any], schema: pa.Schema | None, label: str) -> KeySelector:
    if len(parts) == 1 and not isinstance(parts[0], str):
        if not callable(parts[0]):
            raise ConfigurationError(
                f"{label}: a key is one or more columns or a function, not {parts[0]!r}"
            )
        return KeySelector(function=parts[0])
    if not parts:
        raise ConfigurationError(f"{label}: name at least one column, or give a function")
    for column in parts:
        if not isinstance(column, str):
            raise ConfigurationError(
                f"{label}: a key is either columns or one function, but {column!r} is among several"
            )
        check_column(column, schema, label)
    return KeySelector(columns=tuple(parts))
