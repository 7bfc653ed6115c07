"""What a server says of a table: its columns, and what they take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from minirt.errors import ConfigurationError, SinkDataError, StorageError
from minirt.io.remembered import Identity
from minirt_connectors.dbapi import closed, rows
from minirt_connectors.postgres.server import TYPES, Server, quoted

_COLUMNS = """
SELECT a.attname::text, t.typname::text, a.attnotnull, a.atthasdef OR a.attidentity <> '',
       a.attgenerated <> '' OR a.attidentity = 'a', a.atttypmod::int8
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""

_UNIQUE = """
SELECT i.indexrelid::int8, a.attname::text
FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid
  AND a.attnum = ANY((i.indkey::int2[])[0:i.indnkeyatts - 1])
WHERE i.indrelid = to_regclass($1) AND i.indisunique AND i.indisvalid
  AND i.indpred IS NULL AND i.indexprs IS NULL
"""
"""The unique indexes over plain columns alone, without those that they only hold beside (INCLUDE)."""

_IDENTITY = """
SELECT system_identifier::text, current_database()::text, to_regclass($1)::oid::int8::text,
  (SELECT n.nspname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
   WHERE c.oid = to_regclass($1))
FROM pg_control_system()
"""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `given`: the table fills it in by itself, if nothing is written to it."""

    name: str
    kind: str
    not_null: bool
    given: bool
    generated: bool
    modifier: int

    @property
    def arrow(self) -> pa.DataType | None:
        """How it is written and read as it is; None for a type that ADBC has no exact match for."""
        if self.kind == "numeric" and self.modifier >= 4:
            precision, scale = (self.modifier - 4) >> 16, (self.modifier - 4) & 0x7FF
            return pa.decimal128(precision, scale) if precision <= 38 and scale <= 38 else None
        return TYPES.get(self.kind)


@dataclass(frozen=True, slots=True)
class Table:
    """A table as it is now. `sql` names it in statements, `schema` and `name` to the driver."""

    sql: str
    schema: str | None
    name: str
    columns: tuple[Column, ...]
    unique: frozenset[frozenset[str]]
    """The sets of columns that are unique together."""

    def column(self, name: str) -> Column:
        """Raises ConfigurationError if there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        known = ", ".join(column.name for column in self.columns)
        raise ConfigurationError(f"table {self.sql} has no column {name!r}; it has {known}")

    def arrow_schema(self, names: Sequence[str]) -> pa.Schema:
        """The columns as Arrow has them. Raises ConfigurationError for a type that it has no match for."""
        fields = []
        for column in map(self.column, names):
            kind = column.arrow
            if kind is None:
                raise ConfigurationError(
                    f"column {column.name!r} of {self.sql} is of type {column.kind}, which cannot be "
                    f"carried; those that can: {', '.join(TYPES)}, numeric(p, s)"
                )
            fields.append(pa.field(column.name, kind, nullable=not column.not_null))
        return pa.schema(fields)


def read_table(server: Server, name: str) -> Table:
    """What the server says of a table, `name` or `schema.name`.

    Raises ConfigurationError if the table is missing or nobody can connect to the server.
    """
    schema, _, short = name.rpartition(".")
    sql = f"{quoted(schema)}.{quoted(short)}" if schema else quoted(short)
    try:
        connection = server.connect()
    except StorageError as error:
        raise ConfigurationError(str(error)) from error
    try:
        with server.errors(f"cannot look at table {name}"):
            columns = _columns(connection, sql)
            indexes = rows(connection, _UNIQUE, (sql,))
    finally:
        closed(connection)
    if not columns:
        raise ConfigurationError(f"{server.name} has no table {sql}; create it first")
    unique: dict[int, set[str]] = {}
    for index, column in indexes:
        unique.setdefault(index, set()).add(column)
    return Table(sql, schema or None, short, columns, frozenset(map(frozenset, unique.values())))


def identity_of(server: Server, table: Table) -> Identity:
    """Tell a table from others: it has another number, or is in another database or system.

    A host may have several names, and another after a failover, so it is none of the marks.
    """
    connection = server.connect()
    try:
        with server.errors(f"cannot look at table {table.sql}"):
            [(system, database, oid, schema)] = rows(connection, _IDENTITY, (table.sql,))
    finally:
        closed(connection)
    ids = {"system": system, **({} if oid is None else {"oid": oid})}
    place = schema or table.schema or "?"
    return Identity("PostgreSQL table", f"{database}.{place}.{table.name}", ids)


def check_columns(connection: Any, table: Table, schema: pa.Schema) -> None:
    """The table takes these columns as they are, still. Raises SinkDataError if it has changed.

    Binary COPY says nothing of types: a number that meets a time of the same width would become one.
    """
    known = {column.name: column for column in _columns(connection, table.sql)}
    if not known:
        raise SinkDataError(f"table {table.sql} is gone, and output waits for it")
    for field in schema:
        column = known.get(field.name)
        if column is None or column.arrow != field.type:
            now = "gone" if column is None else f"of type {column.kind}"
            raise SinkDataError(
                f"table {table.sql} was changed since this output was written: column {field.name!r} is "
                f"{now}, and the output has {field.type}. Change it back, let the job commit, and stop it "
                "before you change the table"
            )


def _columns(connection: Any, sql: str) -> tuple[Column, ...]:
    """Empty if there is no such table."""
    return tuple(Column(*each) for each in rows(connection, _COLUMNS, (sql,)))
