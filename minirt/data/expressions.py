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

_BY_PLACE = "FieldPath("
_UNKNOWN = re.compile(r"No match for FieldRef\.Name\((.*?)\) in")


class ExpressionError(MinirtError):
    """An expression has no value on the columns that it was given."""


class Evaluation:
    """Computes the same expressions on one batch after the other.

    Acero handles each column that it is given, also those that no expression reads, and each field of a
    struct. So it is given what the expressions need, which is found out once for each schema that comes.
    """

    def __init__(self, computed: Sequence[Named]) -> None:
        self._names = [name for name, _ in computed]
        self._expressions = [expression for _, expression in computed]
        self._schema: pa.Schema | None = None
        self._needed: list[int] = []

    def values(self, table: pa.RecordBatch) -> list[pa.Array]:
        """The value of each expression, in order. Raises ExpressionError."""
        if not table.num_rows:  # Who builds a job asks for types alone.
            return self._computed(table)
        if self._schema is None or not table.schema.equals(self._schema):
            self._needed, self._schema = self._needed_of(table.schema), table.schema
        return self._computed(table.select(self._needed))

    def _needed_of(self, schema: pa.Schema) -> list[int]:
        """The places of columns without which there is no value, at least one. Raises ExpressionError."""
        empty = pa.RecordBatch.from_pylist([], schema)
        self._computed(empty)
        places = range(len(schema))
        if any(_BY_PLACE in str(expression) for expression in self._expressions):
            return list(places)  # Another column would stand at the place that it names.
        return [place for place in places if not self._does_without(empty, place)] or [0]

    def _does_without(self, table: pa.RecordBatch, place: int) -> bool:
        if table.num_columns == 1:
            return False
        try:
            self._computed(table.remove_column(place))
        except ExpressionError:
            return False
        return True

    def _computed(self, table: pa.RecordBatch) -> list[pa.Array]:
        # It takes long to import, and few jobs need it.
        from pyarrow import acero

        source = acero.TableSourceNodeOptions(pa.Table.from_batches([table]))
        plan = acero.Declaration.from_sequence(
            [
                acero.Declaration("table_source", source),
                acero.Declaration(
                    "project", acero.ProjectNodeOptions(self._expressions, self._names)
                ),
            ]
        )
        try:
            result = plan.to_table(use_threads=False)
        except pa.ArrowException as error:
            raise ExpressionError(_explained(error, self._expressions, table.schema)) from error
        return [column.combine_chunks() for column in result.columns]


class Conditions:
    """Conditions on the records of batches. Several take hardly longer than one."""

    def __init__(self, expressions: Sequence[pc.Expression]) -> None:
        self._expressions = expressions
        self._evaluation = Evaluation([(str(place), one) for place, one in enumerate(expressions)])

    def masks(self, table: pa.RecordBatch) -> list[npt.NDArray[np.bool_]]:
        """For each condition and each record, whether it is true; null is not. Raises ExpressionError."""
        masks = []
        values = self._evaluation.values(table)
        for expression, value in zip(self._expressions, values, strict=True):
            if not pa.types.is_boolean(value.type):
                raise ExpressionError(
                    f"{expression} is of type {value.type}; a condition is of type bool"
                )
            masks.append(value.fill_null(False).to_numpy(zero_copy_only=False))
        return masks


class Projection:
    """The columns `kept`, all with None, and those `computed`, which replace columns of their names."""

    def __init__(self, kept: Sequence[str] | None, computed: Sequence[Named]) -> None:
        self._kept = kept
        self._names = [name for name, _ in computed]
        self._evaluation = Evaluation(computed)

    def of(self, table: pa.RecordBatch) -> pa.RecordBatch:
        """Kept columns are not copied. Raises ExpressionError."""
        for name in self._kept or ():
            if name not in table.schema.names:
                raise ExpressionError(_no_column(name, table.schema))
        result = table if self._kept is None else table.select(self._kept)
        if not self._names:
            return result
        for name, values in zip(self._names, self._evaluation.values(table), strict=True):
            place = result.schema.get_field_index(name)
            if place < 0:
                result = result.append_column(name, values)
            else:
                result = result.set_column(place, name, values)
        return result


def _explained(
    error: pa.ArrowException, expressions: Sequence[pc.Expression], schema: pa.Schema
) -> str:
    unknown = _UNKNOWN.search(str(error))
    if unknown is not None:
        return _no_column(unknown[1], schema)
    return f"cannot compute {', '.join(map(str, expressions))}: {error}"


def _no_column(name: str, schema: pa.Schema) -> str:
    return f"there is no column {name!r}; there are {', '.join(schema.names)}"
