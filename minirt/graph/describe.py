"""Keys and functions in words, as plans and messages show them."""

from __future__ import annotations

from typing import Any

from minirt.graph.keys import KeySelector
from minirt.graph.operator_spec import function_name


def describe_key(key: KeySelector) -> str:
    """`origin, carrier`, `function parse` or `a lambda`."""
    if key.columns:
        return ", ".join(key.columns)
    return describe_function(key.function)


def describe_function(function: Any) -> str:
    """`function parse` or `a lambda`."""
    name = function_name(function)
    return f"function {name}" if name else "a lambda"
