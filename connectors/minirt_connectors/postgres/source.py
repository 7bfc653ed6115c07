"""Reads a PostgreSQL table in splits by ranges of a key: each split in the order of the key."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from minirt.errors import ConfigurationError, SourceDataError
from minirt.io.base import Offset, Source, Split, SplitReader
from minirt.io.remembered import Accept, Identity, checked_accept
from minirt.units import positive
from minirt_connectors.dbapi import closed, rows
from minirt_connectors.postgres.server import Server, quoted
from minirt_connectors.postgres.tables import Table, identity_of, read_table

_ROWS = 20_000
"""How many rows a reader asks for at a time."""

_WHOLE = ("int2", "int4", "int8")


class PostgresSource(Source):
    """Reads the rows of `table` whose `key` is there when the job starts, as columns.

    `key` is a unique column of whole numbers; its range is cut into `splits` parts of the same width, by
    default four for each subtask. A reader goes on after the last key it has read. So a row that is
    changed, deleted or added below that while the job runs is read as it is then, or not at all: a restored
    job reads the same records only of a table that does not change meanwhile.

    A checkpoint remembers the table. A job that is restored with another one, or with one that was dropped
    and made anew, is refused with a SourceChangedError, unless `accept` has "other".
    """

    def __init__(
        self,
        uri: str,
        table: str,
        *,
        key: str,
        columns: Sequence[str] | None = None,
        splits: int | None = None,
        accept: Accept | Sequence[Accept] = (),
    ) -> None:
        self.accept = checked_accept(accept)
        self._server = Server(uri)
        self._table_name = table
        self._key = key
        self._columns = None if columns is None else tuple(columns)
        self._splits = None if splits is None else positive("splits", splits)
        self._plan: tuple[Table, pa.Schema] | None = None

    def validate(self) -> None:
        table = read_table(self._server, self._table_name)
        if table.column(self._key).kind not in _WHOLE or not table.column(self._key).not_null:
            raise ConfigurationError(
                f"key {self._key!r} of {table.sql} must be a column of whole numbers that is not null"
            )
        if frozenset([self._key]) not in table.unique:
            raise ConfigurationError(f"key {self._key!r} of {table.sql} has no unique index")
        names = self._columns or tuple(column.name for column in table.columns)
        self._plan = (table, table.arrow_schema(names))

    def schema(self) -> pa.Schema | None:
        return pa.schema([field.with_nullable(True) for field in self._planned[1]])

    def identity(self) -> Identity:
        return identity_of(self._server, self._planned[0])

    def plan_splits(self, parallelism: int) -> Sequence[Split]:
        table, _ = self._planned
        connection = self._server.connect()
        try:
            with self._server.errors(f"cannot read {table.sql}"):
                key = quoted(self._key)
                asked = f"SELECT min({key})::int8, max({key})::int8 FROM {table.sql}"
                [(least, most)] = rows(connection, asked)
        finally:
            closed(connection)
        if least is None:
            return []
        count = min(self._splits or 4 * parallelism, most - least + 1)
        bounds = [least + (most - least + 1) * n // count for n in range(count + 1)]
        return [
            Split(f"{first}-{end}", {"first": first, "end": end}) for first, end in pairwise(bounds)
        ]

    def open_split(self, split: Split, offset: Offset) -> SplitReader:
        first, end = split.info["first"], split.info["end"]
        begin = first if offset is None else offset
        return _Reader(self._server, *self._planned, self._key, begin, end)

    @property
    def _planned(self) -> tuple[Table, pa.Schema]:
        if self._plan is None:
            self.validate()
        assert self._plan is not None
        return self._plan


class _Reader(SplitReader):
    """The offset is the key to go on with."""

    def __init__(
        self, server: Server, table: Table, schema: pa.Schema, key: str, begin: int, end: int
    ) -> None:
        self.offset = begin
        self._end = end
        self._server = server
        self._key = key
        self._schema = schema
        names = ", ".join(quoted(name) for name in schema.names)
        own, place = quoted(key), table.sql
        self._statement = (
            f"SELECT {names}, {own}::int8 AS minirt_key FROM {place} "
            f"WHERE {own} >= $1 AND {own} < $2 ORDER BY {own} LIMIT {_ROWS}"
        )
        self._connection: Any = server.connect()

    def read(self) -> pa.RecordBatch | None:
        with self._server.errors("cannot read", SourceDataError):
            with self._connection.cursor() as cursor:
                cursor.execute(self._statement, (self.offset, self._end))
                found = cursor.fetch_arrow_table()
            self._connection.rollback()
        if not len(found):
            return None
        self.offset = int(found.column("minirt_key")[-1].as_py()) + 1
        schema = pa.schema([field.with_nullable(True) for field in self._schema])
        columns = [_as(found.column(field.name), field.type) for field in schema]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def close(self) -> None:
        closed(self._connection)


def _as(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """A column in one piece and of the type asked for; the driver reads numbers with a scale as text."""
    whole = column.combine_chunks()
    array = whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
    return array if array.type == kind else array.cast(kind)
