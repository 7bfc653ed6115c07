"""What is known of an aggregation before it runs."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from minirt.aggregates import Aggregate
from minirt.api.keys import check_column
from minirt.data.simple_columns import simple_type
from minirt.errors import ConfigurationError
from minirt.graph.job_graph import WINDOW_END, WINDOW_START, WINDOW_TIME, AggregateSpec, WindowSpec
from minirt.units import Duration, seconds


def emission(emit: Literal["updates", "end"] | Duration) -> Literal["updates", "end"] | float:
    """When results are given out. Raises ConfigurationError."""
    if emit == "updates":
        return "updates"
    if emit == "end":
        return "end"
    interval = seconds(emit, 'emit, which is "updates", "end" or a duration,')
    if interval < 0.001:
        raise ConfigurationError(f"emit: an interval must be at least 1ms, got {emit!r}")
    return interval


def aggregated_schema(
    spec: AggregateSpec | WindowSpec, schema: pa.Schema | None, label: str
) -> pa.Schema | None:
    """The columns of the results, None if those of the input are unknown.

    Raises ConfigurationError for columns that are not there, or that an aggregate does not take.
    """
    if schema is None or not all(isinstance(part, Aggregate) for part in spec.aggregates):
        return None
    keys = [schema.field(column) for column in spec.key.columns]
    fields = [field.with_type(simple_type(field.type)) for field in keys]
    for aggregate in spec.aggregates:
        type = pa.null()
        if aggregate.column is not None:
            check_column(aggregate.column, schema, label)
            type = simple_type(schema.field(aggregate.column).type)
        try:
            fields.append(pa.field(aggregate.output, aggregate.result_type(type)))
        except ConfigurationError as error:
            raise ConfigurationError(f"{label}: {error}") from error
    return pa.schema(fields)


def windowed_schema(spec: WindowSpec, schema: pa.Schema | None, label: str) -> pa.Schema | None:
    """As `aggregated_schema`, with the bounds of the window behind the key."""
    results = aggregated_schema(spec, schema, label)
    if results is None:
        return None
    place = len(spec.key.columns)
    for offset, name in enumerate((WINDOW_START, WINDOW_END)):
        results = results.insert(place + offset, pa.field(name, WINDOW_TIME))
    return results
