"""Checks that several operators make as soon as a user writes them down."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from minirt.errors import ConfigurationError
from minirt.functions import KeyedProcess
from minirt.operators.common.functions import check_function


def check_instance(value: Any, wanted: type, label: str) -> None:
    """Raise ConfigurationError unless `value` is an instance of the class that is wanted here."""
    if isinstance(value, wanted):
        return
    hint = ""
    if inspect.isclass(value) and issubclass(value, wanted):
        hint = f": give an instance, {value.__name__}(...), not the class"
    elif isinstance(value, KeyedProcess):
        hint = ": a KeyedProcess needs keys, call key_by first"
    raise ConfigurationError(f"{label}: expected {wanted.__name__}, got {value!r}{hint}")


def check_flag(value: Any, name: str, label: str) -> bool:
    """The value of an option that is True or False. Raises ConfigurationError for any other."""
    if not isinstance(value, bool):
        raise ConfigurationError(f"{label}: {name} is True or False, not {value!r}")
    return value


def check_methods(label: str, process: Any, *methods: str) -> None:
    """Raise ConfigurationError for a method that cannot be called, or that nobody would call."""
    for name in dir(type(process)):
        if (
            name.startswith("on_")
            and name not in methods
            and callable(getattr(type(process), name))
        ):
            raise ConfigurationError(
                f"{label}: nobody calls {type(process).__name__}.{name}{_hint(name, methods)}; methods of "
                "your own have names that do not begin with 'on_'"
            )
    for method in methods:
        first = "the timestamp" if method == "on_timer" else "the record"
        check_function(getattr(process, method), label, first, "the context", may_yield=True)


def _hint(name: str, methods: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, methods, n=1)
    return f", did you mean {near[0]}?" if near else ""


def check_column(column: str, schema: pa.Schema | None, label: str) -> None:
    """Raise ConfigurationError for a column that a known schema does not have."""
    if schema is None or column in schema.names:
        return
    near = difflib.get_close_matches(column, schema.names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(schema.names)}"
    raise ConfigurationError(f"{label}: there is no column {column!r}; {hint}")
