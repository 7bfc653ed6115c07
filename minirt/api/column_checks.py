"""What can be told about column expressions before any data is there."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from minirt.data.expressions import ExpressionError, condition, project
from minirt.errors import ConfigurationError
from minirt.graph.describe import kind_of
from minirt.graph.job_graph import FilterColumnsSpec, ProjectSpec


def check_projection(spec: ProjectSpec, before: str) -> None:
    """Raise ConfigurationError for what names no column or is no expression.

    `before` is the stream that it is applied to: the operator itself may not even have a name.
    """
    label = f"{kind_of(spec)} on {before}"
    names: list[Any] = [*(spec.kept or ()), *(name for name, _ in spec.computed)]
    if not names:
        raise ConfigurationError(f"{label}: name at least one column")
    for name in names:
        if not isinstance(name, str):
            raise ConfigurationError(f"{label}: columns are named by strings, not {name!r}")
    for name, value in spec.computed:
        if not isinstance(value, pc.Expression):
            raise ConfigurationError(
                f"{label}: column {name!r} is computed by an expression of pyarrow.compute, such as "
                f'pc.field("x") * 2 or pc.scalar(0), not by {value!r}'
            )
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ConfigurationError(f"{label}: column {repeated[0]!r} is named twice")


def emitted_schema(
    spec: FilterColumnsSpec | ProjectSpec, schema: pa.Schema | None, label: str
) -> pa.Schema | None:
    """The columns that the operator makes of those of its input; None if these are not known.

    Raises ConfigurationError, on known columns, for unknown ones and for types that do not fit.
    """
    if schema is None:
        return None
    empty = pa.RecordBatch.from_pylist([], schema=schema)
    try:
        if isinstance(spec, ProjectSpec):
            return project(empty, spec.kept, spec.computed).schema
        condition(empty, spec.condition)
        return schema
    except ExpressionError as error:
        raise ConfigurationError(f"{label}: {error}") from error
