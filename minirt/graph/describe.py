"""Keys and partitionings in words, as plans and messages show them."""

from __future__ import annotations

from typing import Any

from minirt.graph.job_graph import (
    Broadcast,
    Custom,
    Forward,
    Hash,
    Partitioning,
    Rebalance,
    Rescale,
)
from minirt.graph.keys import KeySelector
from minirt.graph.operator_spec import function_name


def describe_key(key: KeySelector) -> str:
    """`origin, carrier`, `function parse` or `a lambda`."""
    if key.columns:
        return ", ".join(key.columns)
    return _describe_function(key.function)


def describe_partitioning(partitioning: Partitioning) -> str:
    """How records are dealt out, with their keys."""
    match partitioning:
        case Forward():
            return "forward"
        case Rebalance():
            return "rebalance"
        case Rescale():
            return "rescale"
        case Broadcast():
            return "broadcast"
        case Hash(key):
            return f"hash by {describe_key(key)}"
        case Custom(function, key):
            return f"custom by {describe_key(key)} with {_describe_function(function)}"


def _describe_function(function: Any) -> str:
    name = function_name(function)
    return f"function {name}" if name else "a lambda"
