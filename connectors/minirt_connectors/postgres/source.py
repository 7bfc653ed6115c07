"""Reads a PostgreSQL table in splits by ranges of a key: each split in the order of the key."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

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
_MAY_BE_INFINITE = ("date", "timestamp", "timestamptz")

OnInfinity = Literal["error", "null"]


class PostgresSource(Source):
    """Reads the rows of `table` whose `key` is there when the job starts, as columns.

    `key` is a unique column of whole numbers; its range is cut into `splits` parts of the same width, by
    default four for each subtask. A reader goes on after the last key it has read. So a row that is
    changed, deleted or added below that while the job runs is read as it is then, or not at all: a restored
    job reads the same records only of a table that does not change meanwhile.

    A checkpoint remembers the table. A job that is restored with another one, or with one that was dropped
    and made anew, is refused with a SourceChangedError, unless `accept` has "other".

    Arrow has no infinite dates and timestamps: a row with one fails the job (`infinity="error"`), or the
    value becomes null ("null").
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
        infinity: OnInfinity = "error",
    ) -> None:
        self.accept = checked_accept(accept)
        if infinity not in get_args(OnInfinity):
            allowed = ", ".join(get_args(OnInfinity))
            raise ConfigurationError(f"infinity must be one of {allowed}, got {infinity!r}")
        self._infinity = infinity
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
        return _Reader(self._server, *self._planned, self._key, begin, end, self._infinity)

    @property
    def _planned(self) -> tuple[Table, pa.Schema]:
        if self._plan is None:
            self.validate()
        assert self._plan is not None
        return self._plan


class _Reader(SplitReader):
    """The offset is the key to go on with."""

    def __init__(
        self,
        server: Server,
        table: Table,
        schema: pa.Schema,
        key: str,
        begin: int,
        end: int,
        infinity: OnInfinity,
    ) -> None:
        self.offset = begin
        self._end = end
        self._server = server
        self._place = table.sql
        self._schema = schema
        own = quoted(key)
        infinite = [name for name in schema.names if table.column(name).kind in _MAY_BE_INFINITE]
        self._statement = (
            f"SELECT {_columns(schema.names, infinite, infinity)}, {own}::int8 AS minirt_key "
            f"FROM {table.sql} WHERE {own} >= $1 AND {own} < $2 ORDER BY {own} LIMIT {_ROWS}"
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
        self._check_finite(found)
        self.offset = int(found.column("minirt_key")[-1].as_py()) + 1
        schema = pa.schema([field.with_nullable(True) for field in self._schema])
        columns = [self._as(found, field) for field in schema]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _check_finite(self, found: pa.Table) -> None:
        """Raises SourceDataError for the first row with an infinite time; a driver reads it as another."""
        if _INFINITE not in found.column_names:
            return
        names = found.column(_INFINITE)
        at = pc.index(pc.is_valid(names), True).as_py()
        if at >= 0:
            raise SourceDataError(
                f"{self._place}: column {names[at].as_py()!r} is infinite in the row with the key "
                f'{found.column("minirt_key")[at].as_py()}, and Arrow has no such times; infinity="null" '
                "reads them as null"
            )

    def _as(self, found: pa.Table, field: pa.Field) -> pa.Array:
        """A column in one piece and of its type; the driver reads numbers with a scale as text."""
        array = pa.concat_arrays(found.column(field.name).chunks)
        if array.type == field.type:
            return array
        try:
            return array.cast(field.type)
        except pa.ArrowInvalid as error:  # Such as the NaN that a number with a scale can be.
            raise SourceDataError(
                f"{self._place}: column {field.name!r} holds what {field.type} cannot: {error}"
            ) from error

    def close(self) -> None:
        closed(self._connection)


_INFINITE = "minirt_infinite"
"""The column that names a column which is infinite, null where none is."""


def _columns(names: Sequence[str], infinite: Sequence[str], on: OnInfinity) -> str:
    """What is selected, with a look at the columns that may be infinite."""
    if on == "null":
        return ", ".join(
            f"CASE WHEN isfinite({quoted(name)}) THEN {quoted(name)} END AS {quoted(name)}"
            if name in infinite
            else quoted(name)
            for name in names
        )
    selected = ", ".join(map(quoted, names))
    if not infinite:
        return selected
    cases = " ".join(
        "WHEN NOT isfinite({}) THEN '{}'".format(quoted(name), name.replace("'", "''"))
        for name in infinite
    )
    return f"{selected}, CASE {cases} END AS {_INFINITE}"
