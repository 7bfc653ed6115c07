"""What an operator is refused for as soon as it is written down."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from minirt.aggregates import Aggregate
from minirt.api.functions import check_function
from minirt.api.keys import check_column
from minirt.errors import ConfigurationError
from minirt.functions import KeyedCoProcess, KeyedProcess, Process, Watermarks
from minirt.graph.job_graph import (
    ERRORS_TAG,
    LATE_TAG,
    WINDOW_END,
    WINDOW_START,
    AggregateSpec,
    CoMapSpec,
    FilterSpec,
    FlatMapSpec,
    KeyedCoProcessSpec,
    KeyedProcessSpec,
    KeySelector,
    MapBatchesSpec,
    MapSpec,
    OperatorNode,
    ProcessSpec,
    ReduceSpec,
    SinkSpec,
    SourceSpec,
    WindowSpec,
)
from minirt.io.base import Sink, Source


def check_operator(node: OperatorNode) -> None:
    """Raise ConfigurationError if what the operator is to do cannot work."""
    label = node.label
    match node.spec:
        case SourceSpec():
            _check_source(node.spec, node.schema, label)
        case SinkSpec(sink):
            check_instance(sink, Sink, label)
        case MapSpec(function) | FilterSpec(function):
            check_function(function, label, "the record")
        case FlatMapSpec(function):
            check_function(function, label, "the record", may_yield=True)
        case MapBatchesSpec(function, form):
            if form not in ("rows", "columns"):
                raise ConfigurationError(
                    f'{label}: format must be "rows" or "columns", got {form!r}'
                )
            check_function(function, label, "the batch")
        case CoMapSpec(left, right, flat):
            check_function(left, label, "the left record", may_yield=flat)
            check_function(right, label, "the right record", may_yield=flat)
        case AggregateSpec(key, aggregates):
            _check_aggregates(key, aggregates, label)
        case WindowSpec(key, aggregates):
            _check_aggregates(key, aggregates, label, WINDOW_START, WINDOW_END)
        case ReduceSpec(_, function):
            check_function(function, label, "the value so far", "the record")
        case ProcessSpec(process):
            check_instance(process, Process, label)
            _check_methods(label, process, "process")
        case KeyedProcessSpec(_, process):
            check_instance(process, KeyedProcess, label)
            _check_methods(label, process, "process", "on_timer")
        case KeyedCoProcessSpec(_, _, process):
            check_instance(process, KeyedCoProcess, label)
            _check_methods(label, process, "process_left", "process_right", "on_timer")


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


def check_side_output(node: OperatorNode, tag: Any) -> None:
    """Raise ConfigurationError if the operator never emits to the side output `tag`."""
    if not isinstance(tag, str) or not tag:
        raise ConfigurationError(f"{node.label}: a side output is named by a string, not {tag!r}")
    match node.spec:
        case SourceSpec(source):
            _check_errors_output(source, tag, node.label)
        case ProcessSpec() | KeyedProcessSpec() | KeyedCoProcessSpec():
            return
        case WindowSpec():
            if tag != LATE_TAG:
                raise ConfigurationError(
                    f"{node.label}: windows have one side output, {LATE_TAG!r}, and no {tag!r}"
                )
        case _:
            raise ConfigurationError(
                f"{node.label} has no side outputs; only process functions, windows and sources do"
            )


def _check_errors_output(source: Source, tag: str, label: str) -> None:
    if tag != ERRORS_TAG:
        raise ConfigurationError(
            f"{label}: a source has one side output, {ERRORS_TAG!r}, and no {tag!r}"
        )
    if not source.side_errors:
        raise ConfigurationError(
            f"{label}: this source sends nothing to the side output {ERRORS_TAG!r}; "
            "have it send there what does not parse"
        )


def _check_aggregates(
    key: KeySelector, aggregates: Sequence[Aggregate], label: str, *taken: str
) -> None:
    """`taken` are the names of other columns of the results."""
    if not key.columns:
        raise ConfigurationError(
            f"{label}: aggregates go by key columns; name them, key_by('column'), after a map that "
            "computes the column if need be"
        )
    if not aggregates:
        raise ConfigurationError(f"{label}: name at least one aggregate, such as Count()")
    names = [*key.columns, *taken]
    for aggregate in aggregates:
        check_instance(aggregate, Aggregate, label)
        if aggregate.output in names:
            raise ConfigurationError(
                f"{label}: two columns would be called {aggregate.output!r}; give the "
                f"{type(aggregate).__name__} a name of its own"
            )
        names.append(aggregate.output)


def _check_source(spec: SourceSpec, schema: pa.Schema | None, label: str) -> None:
    check_instance(spec.source, Source, label)
    if spec.watermarks is not None:
        _check_watermarks(spec.watermarks, schema, label)
    if spec.speed is None:
        return
    if isinstance(spec.speed, bool) or not isinstance(spec.speed, int | float):
        raise ConfigurationError(f"{label}: speed is a number, not {spec.speed!r}")
    if not 0 < spec.speed < float("inf"):
        raise ConfigurationError(f"{label}: speed must be above 0 and finite, got {spec.speed!r}")
    if spec.watermarks is None:
        raise ConfigurationError(
            f"{label}: speed paces records by their event time, so it needs watermarks as well"
        )


def _check_watermarks(watermarks: Any, schema: pa.Schema | None, label: str) -> None:
    check_instance(watermarks, Watermarks, label)
    timestamp = watermarks.timestamp
    if not isinstance(timestamp, str):
        check_function(timestamp, label, "the record")
        return
    check_column(timestamp, schema, label)
    kind = None if schema is None else schema.field(timestamp).type
    if kind is not None and not _is_time(kind):
        raise ConfigurationError(
            f"{label}: column {timestamp!r} is of type {kind}; event time is a timestamp, a date or "
            "whole milliseconds"
        )


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_integer(kind))


def _check_methods(label: str, process: Any, *methods: str) -> None:
    for method in methods:
        first = "the timestamp" if method == "on_timer" else "the record"
        check_function(getattr(process, method), label, first, "the context", may_yield=True)
