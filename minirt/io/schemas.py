"""Making records fit a fixed set of typed columns, or saying which one does not and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

import pyarrow as pa

from minirt.data.batch import Batch, Columns
from minirt.data.errors import UnlikeTypesError
from minirt.data.fitting import fitted
from minirt.data.from_python import REFUSALS, column_as, column_of
from minirt.data.simple_columns import is_list, no_column, simple, steady
from minirt.data.unify import unified_schema, widened_table
from minirt.errors import ConfigurationError, SinkDataError


class SchemaMismatch(Exception):
    """A column that cannot be had as asked; `column` is its name."""

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(f"column {column!r}: {reason}")
        self.column = column
        self.reason = reason


def given_schema(schema: object) -> pa.Schema:
    """A schema that a user gave. Raises ConfigurationError for what is none, or names a column twice."""
    if not isinstance(schema, pa.Schema) or not len(schema):
        raise ConfigurationError(
            f"schema must be a pyarrow.Schema with at least one column, got {schema!r}"
        )
    if len(set(schema.names)) < len(schema):
        raise ConfigurationError(f"schema names a column twice: {', '.join(schema.names)}")
    return schema


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of `schema` in its order and types, found by name; cast as `fitted` does.

    Raises SchemaMismatch for a missing column, and for a value that does not fit, with its record.
    """
    try:
        return _conformed(batch, schema)
    except SchemaMismatch as mismatch:
        at = _first_misfit(batch.num_rows, lambda end: _conformed(batch.slice(0, end), schema))
        if at is None or mismatch.column not in batch.schema.names:
            raise
        raise SchemaMismatch(
            mismatch.column, f"{mismatch.reason}; in record {_shown(batch, at)}"
        ) from mismatch


def _conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if batch.schema.equals(schema):
        for field, column in zip(schema, batch.columns, strict=True):
            _check_nulls(field, column)
        return batch
    places = {name: place for place, name in enumerate(batch.schema.names)}
    columns = []
    for field in schema:
        if field.name not in places:
            raise SchemaMismatch(field.name, "missing")
        column = batch.column(places[field.name])
        try:
            columns.append(fitted(column, field.type, field.name))
        except UnlikeTypesError as error:
            raise _mismatch(field.name, error) from error
        _check_nulls(field, columns[-1])
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _first_misfit(count: int, check: Callable[[int], object]) -> int | None:
    """The first record for which `check(n)`, of the first n records, fails; None if it never does."""
    begin, end = 0, count
    while begin < end:
        middle = (begin + end) // 2
        try:
            check(middle + 1)
            begin = middle + 1
        except (UnlikeTypesError, SchemaMismatch):
            end = middle
    return begin if begin < count else None


def _shown(batch: pa.RecordBatch, at: int) -> str:
    try:
        return f"{batch.slice(at, 1).to_pylist()[0]!r:.500}"
    except (ValueError, OverflowError):  # A time that Python does not have.
        return f"{batch.slice(at, 1)!s:.500}"


def _reason(error: UnlikeTypesError) -> str:
    """What is wrong, without the column: that comes first where it is told."""
    if error.other is None:
        return f"of type {error.one}, which the schema does not have"
    if error.value:
        return (
            f"{error.value[0]!r:.100} of type {error.one} cannot be {error.other} without a change"
        )
    return f"values of type {error.one} cannot be {error.other}"


class ColumnEncoder:
    """Turns a writer's batches into record batches of one schema, by default as wide as they need it.

    Without a schema, that of the first batch is taken, and grows with the others: numbers get a wider type,
    a column that was None so far gets its type, and new columns are None in the records before. All methods
    raise SinkDataError, naming operator, column, both types and the record, for what does not fit.
    """

    def __init__(self, operator: str, schema: pa.Schema | None) -> None:
        self._operator = operator
        self._grows = schema is None
        self.schema = schema
        self.changes = 0
        """How often the type of a column has changed that was known before."""

    def encode(self, batch: Batch) -> pa.RecordBatch:
        """The batch with exactly the columns of the schema, which may grow by it. It must not be empty."""
        try:
            encoded = self._encode(batch)
        except SchemaMismatch as mismatch:
            raise self._explained(batch, mismatch) from mismatch
        if self.schema is not None and encoded.schema is not self.schema:
            self.changes += _has_changed(self.schema, encoded.schema)
        self.schema = encoded.schema
        return encoded

    def refuse(self, column: str, reason: str) -> SinkDataError:
        """An error that names the operator and the column."""
        return SinkDataError(f"{self._operator}: {SchemaMismatch(column, reason)}")

    def _encode(self, batch: Batch) -> pa.RecordBatch:
        if self._grows:
            return self._grown(batch)
        assert self.schema is not None
        if isinstance(batch, Columns):
            for name in batch.table.schema.names:
                if self.schema.get_field_index(name) < 0:
                    raise SchemaMismatch(name, "not in the schema")
            return _conformed(batch.table, self.schema)
        return _from_records(batch.records, self.schema)

    def _grown(self, batch: Batch) -> pa.RecordBatch:
        if isinstance(batch, Columns):
            table = _writable(batch.table)
        else:
            table = _writable(_inferred(batch.records))
        if self.schema is None or table.schema.equals(self.schema):
            return table
        try:
            return widened_table(table, unified_schema(self.schema, table.schema))
        except UnlikeTypesError as error:
            raise _mismatch(error.column.split(".")[0].split("[")[0], error) from error

    def _explained(self, batch: Batch, mismatch: SchemaMismatch) -> SinkDataError:
        """The error for the first record that does not fit, be it only behind the others."""
        at = _first_misfit(len(batch), lambda end: self._encode(batch.slice(0, end)))
        try:
            self._encode(batch.slice(0, (at or 0) + 1))
        except SchemaMismatch as first:
            mismatch = first
        record = batch.slice(at or 0, (at or 0) + 1).rows().records[0]
        return SinkDataError(
            f"{self._operator}: {mismatch}; in record {record!r:.500}; "
            f"the schema is {_described(self.schema)}"
        )


def _inferred(records: Sequence[Any]) -> pa.RecordBatch:
    _check_mappings(records)
    layouts = dict.fromkeys(map(tuple, records))  # In most batches there is but one.
    names = list(dict.fromkeys(name for layout in layouts for name in layout))
    alike = len(layouts) == 1 and _are_dicts(records)
    columns = {}
    for name in names:
        if not isinstance(name, str):
            raise SchemaMismatch(repr(name), "names of columns must be strings")
        values = (
            [*map(itemgetter(name), records)] if alike else [record.get(name) for record in records]
        )
        try:
            columns[name] = column_of(values, name)
        except REFUSALS as error:
            raise _mismatch(name, error) from error
    if not columns:
        raise SchemaMismatch("*", "a record must have a field")
    return steady(pa.RecordBatch.from_pydict(columns))


def _writable(table: pa.RecordBatch) -> pa.RecordBatch:
    """Columns as they go to files: all nullable, and dictionaries as what they hold."""
    columns = [
        simple(column) if pa.types.is_dictionary(column.type) else column
        for column in table.columns
    ]
    fields = [
        pa.field(name, column.type)
        for name, column in zip(table.schema.names, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _from_records(records: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    _check_mappings(records)
    if set(map(len, records)) != {len(schema)}:
        raise _wrong_names(records, schema)
    columns = []
    for field in schema:
        name = field.name
        try:
            columns.append(column_as([record[name] for record in records], field.type, name))
        except KeyError:
            raise _wrong_names(records, schema) from None
        except REFUSALS as error:
            raise _mismatch(name, error) from error
        _check_nulls(field, columns[-1])
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _are_dicts(records: Sequence[Any]) -> bool:
    return set(map(type, records)) == {dict}


def _check_mappings(records: Sequence[Any]) -> None:
    # To ask each record whether it is a Mapping takes longer than to make a column of them.
    if not _are_dicts(records) and not all(isinstance(record, Mapping) for record in records):
        raise SchemaMismatch("*", "records must be dicts from column name to value")


def _wrong_names(records: Sequence[Any], schema: pa.Schema) -> SchemaMismatch:
    names = set(schema.names)
    for record in records:
        for name in record.keys() - names:
            return SchemaMismatch(str(name), "not in the schema")
        for name in names - record.keys():
            return SchemaMismatch(name, "missing")
    raise AssertionError("a batch failed whose records have the right columns")


def _mismatch(name: str, error: Exception) -> SchemaMismatch:
    if not isinstance(error, UnlikeTypesError):
        return SchemaMismatch(name, no_column(error))
    inside = "" if error.column == name else f"inside, in {error.column}: "
    if error.other is None:
        return SchemaMismatch(name, f"{inside}of type {error.one}, which the schema does not have")
    if not error.value:
        return SchemaMismatch(
            name,
            f"{inside}{error.one} in some records, {error.other} in others; no type holds both",
        )
    said = f"{inside}{error.value[0]!r:.100} of type {error.one}"
    return SchemaMismatch(name, f"{said} cannot become {error.other} without a change")


def _check_nulls(field: pa.Field, column: pa.Array) -> None:
    if (column.null_count and not field.nullable) or _has_forbidden_null(column, field.type):
        raise SchemaMismatch(field.name, "None, where the schema allows no None")


def _has_forbidden_null(column: pa.Array, type: pa.DataType) -> bool:
    """Whether a field inside, which allows no None, is None where what it is in is not."""
    if not _forbids_null(type):
        return False
    if pa.types.is_struct(type):
        inside = column.drop_null().flatten()
        pairs = zip(inside, type, strict=True)
    elif pa.types.is_map(type):
        pairs = zip((column.keys, column.items), (type.key_field, type.item_field), strict=True)
    else:
        pairs = zip([column.flatten()], [type.value_field], strict=True)
    return any(
        (bool(part.null_count) and not field.nullable) or _has_forbidden_null(part, field.type)
        for part, field in pairs
    )


@lru_cache
def _forbids_null(type: pa.DataType) -> bool:
    if not (pa.types.is_struct(type) or pa.types.is_map(type) or is_list(type)):
        return False
    fields = (type.field(place) for place in range(type.num_fields))
    return any(not field.nullable or _forbids_null(field.type) for field in fields)


def _has_changed(one: pa.Schema, other: pa.Schema) -> bool:
    """Whether a column that both have has another type, beside one that was None so far."""
    return any(
        not pa.types.is_null(field.type) and other.field(field.name).type != field.type
        for field in one
    )


def _described(schema: pa.Schema | None) -> str:
    if schema is None:
        return "not known yet"
    return ", ".join(f"{field.name} {field.type}" for field in schema)
