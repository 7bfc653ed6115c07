"""Column expressions of pyarrow.compute, evaluated on record batches by Arrow's Acero."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from minirt.data.simple_columns import without_runs
from minirt.errors import MinirtError

Named = tuple[str, pc.Expression]
"""A computed column: its name, and the expression that computes it."""

_BY_PLACE = "FieldPath("
_UNKNOWN = re.compile(r"No match for FieldRef\.Name\((.*?)\) in")


def without_records(schema: pa.Schema) -> pa.RecordBatch:
    """A batch of these columns without records: what an expression makes of it shows what it gives."""
    fields = [
        each if pa.types.is_run_end_encoded(each.type) else each.with_type(without_runs(each.type))
        for each in schema
    ]
    nothing = [pa.nulls(0, each.type) for each in fields]
    return pa.RecordBatch.from_arrays(nothing, schema=pa.schema(fields, schema.metadata))


class ExpressionError(MinirtError):
    """An expression has no value on the columns that it was given."""


class Evaluation:
    """Computes the same expressions on one batch after the other.

    A plan of Acero takes as long as some hundred records. So what only names a column, or a field in one,
    is picked without. Acero handles each column that it is given, also those that no expression reads,
    and each field of a struct. So it is given what the other expressions need. Both are found out once
    for each schema that comes.
    """

    def __init__(self, computed: Sequence[Named]) -> None:
        self._all = computed
        self._schema: pa.Schema | None = None
        self._picked: list[list[int] | None] = []
        """Where the field is that an expression only names: places from its column inwards."""
        self._rest: list[Named] = []
        self._needed: list[int] = []

    def values(self, table: pa.RecordBatch) -> list[pa.Array]:
        """The value of each expression, in order. Raises ExpressionError."""
        if not table.num_rows:  # Who builds a job asks for types alone.
            return _computed(self._all, table)
        if self._schema is None or not table.schema.equals(self._schema):
            self._learn(table.schema)
        rest = iter(_computed(self._rest, table.select(self._needed)) if self._rest else ())
        return [next(rest) if path is None else _field_at(table, path) for path in self._picked]

    def _learn(self, schema: pa.Schema) -> None:
        """Raises ExpressionError if an expression has no value on such columns."""
        empty = without_records(schema)
        _computed(self._all, empty)
        fields = [(pc.field(*names), path) for names, path in _fields(schema)]
        self._picked = [
            next((path for field, path in fields if field.equals(expression)), None)
            for _, expression in self._all
        ]
        self._rest = [
            one for one, path in zip(self._all, self._picked, strict=True) if path is None
        ]
        self._needed = _needed_by(self._rest, empty) if self._rest else []
        self._schema = schema


def _needed_by(computed: Sequence[Named], empty: pa.RecordBatch) -> list[int]:
    """The places of columns without which there is no value, at least one."""
    places = range(empty.num_columns)
    if any(_BY_PLACE in str(expression) for _, expression in computed):
        return list(places)  # Another column would stand at the place that it names.
    return [place for place in places if not _does_without(computed, empty, place)] or [0]


def _does_without(computed: Sequence[Named], empty: pa.RecordBatch, place: int) -> bool:
    if empty.num_columns == 1:
        return False
    try:
        _computed(computed, empty.remove_column(place))
    except ExpressionError:
        return False
    return True


def _fields(fields: Iterable[pa.Field]) -> Iterator[tuple[tuple[str, ...], list[int]]]:
    """The names and places that lead to each column and to each field in it; not those whose name is not
    the only one of its kind."""
    known = list(fields)
    names = Counter(field.name for field in known)
    for place, field in enumerate(known):
        if names[field.name] == 1:
            yield (field.name,), [place]
            if pa.types.is_struct(field.type):
                for inner, path in _fields(field.type):
                    yield (field.name, *inner), [place, *path]


def _field_at(table: pa.RecordBatch, path: list[int]) -> pa.Array:
    found = table.column(path[0])
    for place in path[1:]:
        # The kernel takes longer; it sees that in what is null all fields are.
        found = pc.struct_field(found, place) if found.null_count else found.field(place)
    return found


def _computed(computed: Sequence[Named], table: pa.RecordBatch) -> list[pa.Array]:
    # It takes long to import, and few jobs need it.
    from pyarrow import acero

    names, expressions = [name for name, _ in computed], [one for _, one in computed]
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

    def computed(self, table: pa.RecordBatch) -> pa.RecordBatch:
        """The computed columns alone. Raises ExpressionError."""
        if not self._names:
            return pa.RecordBatch.from_pylist([{}] * table.num_rows)
        return pa.RecordBatch.from_arrays(self._evaluation.values(table), self._names)

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
