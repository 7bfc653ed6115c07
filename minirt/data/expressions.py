"""Column expressions of pyarrow.compute, evaluated on record batches by Arrow's Acero."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from minirt.errors import MinirtError

Named = tuple[str, pc.Expression]
"""A computed column: its name, and the expression that computes it."""

_UNKNOWN = re.compile(r"No match for FieldRef\.Name\((.*?)\) in")


class ExpressionError(MinirtError):
    """An expression has no value on the columns that it was given."""


def condition(table: pa.RecordBatch, expression: pc.Expression) -> npt.NDArray[np.bool_]:
    """For each record, whether the expression is true; null is not. Raises ExpressionError."""
    [mask] = conditions(table, [expression])
    return mask


def conditions(
    table: pa.RecordBatch, expressions: Sequence[pc.Expression]
) -> list[npt.NDArray[np.bool_]]:
    """As `condition`, of several: it takes hardly longer than one. Raises ExpressionError."""
    masks = []
    named = [(str(place), expression) for place, expression in enumerate(expressions)]
    for expression, values in zip(expressions, _evaluated(table, named), strict=True):
        if not pa.types.is_boolean(values.type):
            raise ExpressionError(
                f"{expression} is of type {values.type}; a condition is of type bool"
            )
        masks.append(values.fill_null(False).to_numpy(zero_copy_only=False))
    return masks


def project(
    table: pa.RecordBatch, kept: Sequence[str] | None, computed: Sequence[Named]
) -> pa.RecordBatch:
    """The columns `kept`, all with None, and those `computed`, which replace columns of their names.

    Kept columns are not copied. Raises ExpressionError.
    """
    for name in kept or ():
        if name not in table.schema.names:
            raise ExpressionError(_no_column(name, table.schema))
    result = table if kept is None else table.select(kept)
    if computed:
        for (name, _), values in zip(computed, _evaluated(table, computed), strict=True):
            place = result.schema.get_field_index(name)
            if place < 0:
                result = result.append_column(name, values)
            else:
                result = result.set_column(place, name, values)
    return result


def _evaluated(table: pa.RecordBatch, computed: Sequence[Named]) -> list[pa.Array]:
    # It takes long to import, and few jobs need it.
    from pyarrow import acero

    names, expressions = [name for name, _ in computed], [value for _, value in computed]
    source = acero.TableSourceNodeOptions(pa.Table.from_batches([table]))
    plan = acero.Declaration.from_sequence(
        [
            acero.Declaration("table_source", source),
            acero.Declaration("project", acero.ProjectNodeOptions(expressions, names)),
        ]
    )
    try:
        result = plan.to_table(use_threads=False)
    except pa.ArrowException as error:
        raise ExpressionError(_explained(error, expressions, table.schema)) from error
    return [column.combine_chunks() for column in result.columns]


def _explained(
    error: pa.ArrowException, expressions: Sequence[pc.Expression], schema: pa.Schema
) -> str:
    unknown = _UNKNOWN.search(str(error))
    if unknown is not None:
        return _no_column(unknown[1], schema)
    return f"cannot compute {', '.join(map(str, expressions))}: {error}"


def _no_column(name: str, schema: pa.Schema) -> str:
    return f"there is no column {name!r}; there are {', '.join(schema.names)}"
