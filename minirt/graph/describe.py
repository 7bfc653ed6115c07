"""Operators, keys and partitionings in words, as names, plans and messages show them."""

from __future__ import annotations

import functools
from typing import Any

from minirt.graph.job_graph import (
    AggregateSpec,
    Broadcast,
    CoMapSpec,
    Custom,
    FilterColumnsSpec,
    FilterSpec,
    FlatMapSpec,
    Forward,
    Hash,
    KeyedCoProcessSpec,
    KeyedProcessSpec,
    KeySelector,
    MapBatchesSpec,
    MapSpec,
    OperatorSpec,
    Partitioning,
    ProcessSpec,
    ProjectSpec,
    Rebalance,
    ReduceSpec,
    Rescale,
    SinkSpec,
    SourceSpec,
    WindowSpec,
)
from minirt.io.base import Sink, Source


def kind_of(spec: OperatorSpec) -> str:
    """What an operator does, in a word."""
    match spec:
        case SourceSpec():
            return "source"
        case MapSpec():
            return "map"
        case FlatMapSpec():
            return "flat_map"
        case FilterSpec() | FilterColumnsSpec():
            return "filter"
        case ProjectSpec(kept=None):
            return "with_column"
        case ProjectSpec():
            return "select"
        case MapBatchesSpec():
            return "map_batches"
        case CoMapSpec():
            return "co_flat_map" if spec.flat else "co_map"
        case ReduceSpec():
            return "reduce"
        case AggregateSpec():
            return "aggregate"
        case WindowSpec():
            return "window"
        case ProcessSpec():
            return "process"
        case KeyedProcessSpec():
            return "keyed_process"
        case KeyedCoProcessSpec():
            return "keyed_co_process"
        case SinkSpec():
            return "sink"


def default_name(spec: OperatorSpec) -> str:
    """What an operator is called unless the user says so: `map: parse`, `ParquetSource`, `filter`."""
    match spec:
        case SourceSpec(source=Source() as end) | SinkSpec(sink=Sink() as end):
            return type(end).__name__
        case ProcessSpec(process=process):
            return _named("process", _class_name(process))
        case KeyedProcessSpec(process=process) | KeyedCoProcessSpec(process=process):
            return _named("process", _class_name(process))
        case FilterSpec(predicate=function):
            return _named("filter", function_name(function))
        case ProjectSpec(kept, computed):
            return _named(
                kind_of(spec), ", ".join([*(kept or ()), *(name for name, _ in computed)])
            )
        case MapSpec(function=function) | FlatMapSpec(function=function):
            return _named(kind_of(spec), function_name(function))
        case MapBatchesSpec(function=function) | ReduceSpec(function=function):
            return _named(kind_of(spec), function_name(function))
    return kind_of(spec)


def _class_name(value: object) -> str:
    return value.__name__ if isinstance(value, type) else type(value).__name__


def _named(kind: str, subject: str | None) -> str:
    return f"{kind}: {subject}" if subject else kind


def function_name(function: Any) -> str | None:
    """The name of a function or of the class of a callable object; None if there is none."""
    if isinstance(function, functools.partial):
        return function_name(function.func)
    if not callable(function):
        return None
    name: str = getattr(function, "__name__", "") or type(function).__name__
    return None if name == "<lambda>" else name


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
