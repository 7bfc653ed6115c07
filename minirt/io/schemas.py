"""Making records fit a fixed set of typed columns, or saying which one does not and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from minirt.data.batch import Batch, Columns
from minirt.data.simple_columns import no_column, steady
from minirt.errors import ConfigurationError, SinkDataError


class SchemaMismatch(Exception):
    """A column that cannot be had as asked; `column` is its name."""

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(f"column {column!r}: {reason}")
        self.column = column


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
    """The columns of `schema` in its order and types, found by name; casts where nothing is lost.

    Raises SchemaMismatch for a missing column and for values that do not fit.
    """
    if batch.schema.equals(schema):
        return batch
    places = {name: place for place, name in enumerate(batch.schema.names)}
    columns = []
    for field in schema:
        if field.name not in places:
            raise SchemaMismatch(field.name, "missing")
        column = batch.column(places[field.name])
        try:
            columns.append(column if column.type == field.type else _cast(column, field.type))
        except pa.ArrowException as error:
            raise SchemaMismatch(field.name, str(error)) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Arrow's safe cast, which nevertheless drops the time of day when it makes dates."""
    result = column.cast(kind)
    if pa.types.is_date(kind) and not result.cast(column.type).equals(column):
        raise pa.ArrowInvalid(f"casting to {kind} would drop the time of day")
    return result


class ColumnEncoder:
    """Turns a writer's batches into record batches of one schema, that of its first batch by default.

    All methods raise SinkDataError, naming operator, column and record, for what does not fit.
    """

    def __init__(self, operator: str, schema: pa.Schema | None) -> None:
        self._operator = operator
        self.schema = schema

    def encode(self, batch: Batch) -> pa.RecordBatch:
        """The batch with exactly the columns of the schema. It must not be empty."""
        try:
            return self._encode(batch)
        except SchemaMismatch as mismatch:
            raise self._explained(batch, mismatch) from mismatch

    def _encode(self, batch: Batch) -> pa.RecordBatch:
        if isinstance(batch, Columns):
            return self._from_table(batch.table)
        return self._from_records(batch.records)

    def _from_table(self, table: pa.RecordBatch) -> pa.RecordBatch:
        if self.schema is None:
            self.schema = _writable(table.schema)
        for name in table.schema.names:
            if self.schema.get_field_index(name) < 0:
                raise SchemaMismatch(name, "not in the schema")
        encoded = conform(table, self.schema)
        for field, column in zip(self.schema, encoded.columns, strict=True):
            _check_nulls(field, column)
        return encoded

    def _from_records(self, records: Sequence[Any]) -> pa.RecordBatch:
        if not all(isinstance(record, Mapping) for record in records):
            raise SchemaMismatch("*", "records must be dicts from column name to value")
        if self.schema is None:
            self.schema = _writable(_inferred(records))
        names = self.schema.names
        if set(map(len, records)) != {len(names)}:
            raise self._wrong_names(records)
        columns = [_column(records, field) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _wrong_names(self, records: Sequence[Any]) -> SchemaMismatch:
        assert self.schema is not None
        names = set(self.schema.names)
        for record in records:
            for name in record.keys() - names:
                return SchemaMismatch(str(name), "not in the schema")
            for name in names - record.keys():
                return SchemaMismatch(name, "missing")
        raise AssertionError("a batch failed whose records have the right columns")

    def _explained(self, batch: Batch, mismatch: SchemaMismatch) -> SinkDataError:
        record = batch.rows().records[0]
        for at in range(len(batch)):
            try:
                self._encode(batch.slice(at, at + 1))
            except SchemaMismatch as single:
                mismatch, record = single, batch.slice(at, at + 1).rows().records[0]
                break
        return SinkDataError(
            f"{self._operator}: {mismatch}; in record {record!r:.500}; "
            f"the schema is {_described(self.schema)}"
        )


def _inferred(records: Sequence[Any]) -> pa.Schema:
    columns = {}
    for name in records[0]:
        if not isinstance(name, str):
            raise SchemaMismatch(repr(name), "names of columns must be strings")
        try:
            columns[name] = pa.array([record.get(name) for record in records])
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise SchemaMismatch(name, no_column(error)) from error
    return steady(pa.RecordBatch.from_pydict(columns)).schema


def _writable(schema: pa.Schema) -> pa.Schema:
    """An inferred schema as it goes to files: all nullable, and dictionaries as what they hold."""
    fields = []
    for field in schema:
        kind = field.type
        if pa.types.is_null(kind):
            raise SchemaMismatch(
                field.name,
                "the first batch holds only None, which tells no type; give the sink a schema",
            )
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        fields.append(pa.field(field.name, kind))
    return pa.schema(fields)


def _column(records: Sequence[Any], field: pa.Field) -> pa.Array:
    name = field.name
    try:
        column = _array([record[name] for record in records], field.type)
    except KeyError as error:
        raise SchemaMismatch(name, "missing") from error
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SchemaMismatch(name, no_column(error)) from error
    _check_nulls(field, column)
    return column


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """The values as an array of a type. Raises for what does not fit, without ever cutting a value."""
    try:
        inferred = pa.array(values)
    except pa.ArrowException:
        return pa.array(values, type=kind)
    if inferred.type == kind:
        return inferred
    if _may_cut(inferred.type, kind):
        try:
            return _cast(inferred, kind)
        except pa.ArrowNotImplementedError:
            pass
    return pa.array(values, type=kind)


def _may_cut(given: pa.DataType, kind: pa.DataType) -> bool:
    """Whether `pa.array` would silently drop digits: casting checks, converting does not."""
    if pa.types.is_integer(kind):
        return bool(pa.types.is_floating(given) or pa.types.is_decimal(given))
    if pa.types.is_temporal(kind):
        return bool(pa.types.is_temporal(given))
    return bool(pa.types.is_nested(kind))


def _check_nulls(field: pa.Field, column: pa.Array) -> None:
    if column.null_count and not field.nullable:
        raise SchemaMismatch(field.name, "None, where the schema allows no None")


def _described(schema: pa.Schema | None) -> str:
    if schema is None:
        return "not known yet"
    return ", ".join(f"{field.name} {field.type}" for field in schema)
