"""What operators share that compute aggregates from keyed columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from copy import copy

import pyarrow as pa
import pyarrow.compute as pc

from minirt.aggregates import Aggregate, Fold
from minirt.data.expressions import Conditions, ExpressionError, without_records
from minirt.data.simple_columns import simple_type
from minirt.errors import ConfigurationError
from minirt.graph.keys import KeySelector
from minirt.graph.operator_spec import Site
from minirt.operators.common.base import OperatorContext
from minirt.operators.common.checks import check_column, check_instance
from minirt.operators.common.columns import Reading
from minirt.protocol.key_groups import group_range

CHUNK_KEYS = 16384
"""How many results are given out in one step."""


def repeatable(aggregates: Sequence[Aggregate], ctx: OperatorContext) -> tuple[Aggregate, ...]:
    """The same aggregates, which give the same results again where the subtask may have to repeat them."""
    if not ctx.repeats:
        return tuple(aggregates)
    again = tuple(copy(aggregate) for aggregate in aggregates)
    for aggregate in again:
        if isinstance(aggregate, Fold):
            object.__setattr__(aggregate, "in_one_order", True)
    return again


def inputs_of(key: KeySelector, aggregates: Sequence[Aggregate]) -> Set[str] | None:
    """The columns of the key and of what is aggregated; None for all, where a condition may need any."""
    if not key.columns or any(aggregate.where is not None for aggregate in aggregates):
        return None
    return {*key.columns, *(column for aggregate in aggregates for column in aggregate.inputs)}


def reading_of(key: KeySelector | None, aggregates: Sequence[Aggregate]) -> Reading:
    """The columns that aggregates read."""
    inputs = (column for aggregate in aggregates for column in aggregate.inputs)
    conditions = any(aggregate.where is not None for aggregate in aggregates)
    return Reading(() if key is None else key.columns, tuple(inputs), conditions)


def check_aggregates(
    aggregates: Sequence[Aggregate], site: Site, *taken: str, keyed: bool = True
) -> None:
    """Raise ConfigurationError for what is no aggregate, or whose name another column has.

    `taken` are the names of other columns of the results.
    """
    [key] = site.keys
    if keyed and (key is None or not key.columns):
        raise ConfigurationError(
            f"{site.label}: aggregates go by key columns; name them, key_by('column'), after a map that "
            "computes the column if need be"
        )
    if not aggregates:
        raise ConfigurationError(f"{site.label}: name at least one aggregate, such as Count()")
    names = [*taken]
    for column in key.columns if keyed and key else ():
        if column in names:
            raise ConfigurationError(
                f"{site.label}: two columns would be called {column!r}, as the key is; rename that column"
            )
        names.append(column)
    for aggregate in aggregates:
        check_instance(aggregate, Aggregate, site.label)
        if not hasattr(aggregate, "column"):
            raise ConfigurationError(
                f"{site.label}: the __init__ of {type(aggregate).__name__} must call "
                "super().__init__(column, name, type)"
            )
        _check_names(aggregate, site.label)
        if aggregate.where is not None and not isinstance(aggregate.where, pc.Expression):
            raise ConfigurationError(
                f"{site.label}: where of {aggregate.output!r} is an expression of columns, such as "
                f"pc.field('x') > 5, not {aggregate.where!r}"
            )
        if "" in aggregate.inputs:
            raise ConfigurationError(
                f"{site.label}: {type(aggregate).__name__} of column {aggregate.column!r}: name the "
                "column that decides, by='...'"
            )
        if aggregate.output in names:
            raise ConfigurationError(
                f"{site.label}: two columns would be called {aggregate.output!r}; give the "
                f"{type(aggregate).__name__} a name of its own"
            )
        names.append(aggregate.output)


def _check_names(aggregate: Aggregate, label: str) -> None:
    """Raise ConfigurationError unless columns and the name of the result are texts."""
    kind = type(aggregate).__name__
    missing = (None,) if aggregate.column is None and aggregate.needs_column else ()
    for column in (*missing, *aggregate.inputs):
        if not isinstance(column, str):
            raise ConfigurationError(f"{label}: {kind} reads a column, a str, not {column!r}")
    if not isinstance(aggregate.output, str) or not aggregate.output:
        raise ConfigurationError(
            f"{label}: {kind} of column {aggregate.column!r}: the name of its results is a non-empty str, "
            f"not {aggregate.output!r}; options are given by name, n=..., q=..."
        )


def aggregated_schema(
    aggregates: Sequence[Aggregate], site: Site, *, keyed: bool = True
) -> pa.Schema | None:
    """The columns of the results, None if those of the input are unknown.

    Raises ConfigurationError for columns that are not there, or that an aggregate does not take.
    """
    [key], schema = site.keys, site.schema
    if schema is None or (keyed and key is None):
        return None
    fields = [schema.field(column) for column in (key.columns if keyed and key else ())]
    fields = [field.with_type(simple_type(field.type)) for field in fields]
    for aggregate in aggregates:
        for column in aggregate.inputs:
            check_column(column, schema, site.label)
        types = [simple_type(schema.field(column).type) for column in aggregate.inputs]
        type = types[0] if types else pa.null()
        if len(types) > 1:
            type = pa.struct(list(zip(("value", "by"), types, strict=True)))
        try:
            fields.append(pa.field(aggregate.output, aggregate.result_type(type)))
            if aggregate.where is not None:
                Conditions([aggregate.where]).masks(without_records(schema))
        except (ConfigurationError, ExpressionError) as error:
            raise ConfigurationError(f"{site.label}: {error}") from error
    return pa.schema(fields)


def outputs(aggregates: Iterable[Aggregate]) -> list[str]:
    """The names of the results, for messages."""
    return [aggregate.output for aggregate in aggregates]


def own_groups(ctx: OperatorContext, *, exact: bool) -> range | None:
    """The key groups to be picked from a snapshot, None for all."""
    return None if exact else group_range(ctx.subtask, ctx.parallelism, ctx.max_parallelism)
