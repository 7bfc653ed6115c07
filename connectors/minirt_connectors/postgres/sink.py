"""Writes to a PostgreSQL table by a ledger: what a checkpoint commits is one transaction.

Output is staged as Arrow beside the checkpoints of the job. The coordinator copies it into the table with
binary COPY, and writes the checkpoint's id into the table `minirt_commits` in the same transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

from minirt.data.batch import Batch
from minirt.errors import ConfigurationError, MinirtError, SinkDataError
from minirt.io.arrow_pieces import ArrowEncoder, read_piece
from minirt.io.encoder import Encoder
from minirt.io.ledger import LedgerConnection, LedgerEntry, LedgerSink, LedgerTransaction
from minirt.io.remembered import Accept, Identity, checked_accept
from minirt.io.schemas import ColumnEncoder
from minirt_connectors.dbapi import closed, committing, rows, run
from minirt_connectors.postgres.server import Server, quoted
from minirt_connectors.postgres.tables import (
    TABLES,
    Table,
    check_columns,
    check_rights,
    read_table,
)

LEDGER = "minirt_commits"

_WRITTEN_AT = "at timestamptz NOT NULL DEFAULT now()"
_CREATE_LEDGER = f"""
CREATE TABLE IF NOT EXISTS {LEDGER} (
    sink text PRIMARY KEY,
    checkpoint_id bigint NOT NULL,
    generation bigint NOT NULL,
    written_by bigint NOT NULL,
    {_WRITTEN_AT}
)"""
_COMPLETE_LEDGER = f"ALTER TABLE {LEDGER} ADD COLUMN IF NOT EXISTS {_WRITTEN_AT}"
"""A `DatabaseSink` in the same database makes a ledger without the time."""
_LEDGER_STATE = f"""
SELECT to_regclass('{LEDGER}') IS NULL, EXISTS (
    SELECT FROM pg_attribute
    WHERE attrelid = to_regclass('{LEDGER}') AND attname = 'at' AND NOT attisdropped
)"""
_CREATION_LOCK = 0x6D696E697274
"""Two jobs that create the ledger at once would meet in the catalogue of the server."""

_ORDER = "minirt_order"

_DAYS = (-2_440_588, 2_145_042_905)
_MICROSECONDS = (-210_866_803_200_000_000, 2**63 - 1 - 946_684_800_000_000)
"""The first and the last date and time that PostgreSQL has, since 1970; the driver adds up the seconds
since 2000 in 64 bits."""

Mode = Literal["append", "upsert"]


class PostgresSink(LedgerSink):
    """Adds records to the table `table` of the database `uri`, each exactly once.

    `mode="append"` inserts. `mode="upsert"` replaces the row of the same `key`, which must be unique in the
    table; of several records of a key in one commit the last one counts. `columns` names those that records
    have; without it, all that the table does not fill in by itself. The job needs checkpointing, and
    shows its records when a checkpoint completes. A database whose ledger knows less than the job has
    committed, or another table, is refused with a SinkDataError, unless `accept` names that: "behind" or
    "other".
    """

    def __init__(
        self,
        uri: str,
        table: str,
        *,
        mode: Mode = "append",
        key: str | Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        accept: Accept | Sequence[Accept] = (),
    ) -> None:
        self.accept = checked_accept(accept)
        self._server = Server(uri)
        self._table_name = table
        if mode not in get_args(Mode):
            raise ConfigurationError(
                f"mode must be one of {', '.join(get_args(Mode))}, got {mode!r}"
            )
        if (mode == "upsert") != (key is not None):
            raise ConfigurationError(
                'mode="upsert" needs key=..., the unique columns; others take none'
            )
        self._mode = mode
        self._key = (key,) if isinstance(key, str) else tuple(key or ())
        self._columns = None if columns is None else tuple(columns)
        self._plan: tuple[Table, pa.Schema] | None = None

    def validate(self) -> None:
        """Look at the table, so that what does not fit is refused before anything starts."""
        table = read_table(self._server, self._table_name)
        names = self._columns or tuple(one.name for one in table.columns if not one.given)
        for name in names:
            if table.column(name).generated:
                raise ConfigurationError(f"column {name!r} of {table.sql} is always generated")
        missing = [
            c.name for c in table.columns if c.not_null and not c.given and c.name not in names
        ]
        if missing:
            raise ConfigurationError(
                f"columns of {table.sql} that must not be null are left out: {', '.join(missing)}"
            )
        if table.kind not in TABLES:
            raise ConfigurationError(f"{table.sql} is no table that rows can be written to")
        self._check_key(table, names)
        self._check_rights(table, names)
        self._plan = (table, table.arrow_schema(names))

    def encoding(self, operator: str) -> Callable[[BinaryIO], Encoder]:
        table, schema = self._planned
        limits = {name: length for name in schema.names if (length := table.column(name).length)}
        columns = TableColumns(operator, schema, limits)
        return lambda stream: ArrowEncoder(stream, columns)

    def target(self) -> Identity:
        return Identity("table", self._planned[0].sql)

    def connect(self) -> LedgerConnection:
        return PostgresConnection(self._server, *self._planned, self._key)

    def holding(self) -> str | None:
        table = self._planned[0]
        if self._mode == "upsert":
            return None
        connection = self._server.connect()
        try:
            with self._server.errors(f"cannot read the table {table.sql}"):
                # Who may only insert is told nothing, and needs no more.
                may_read = "SELECT has_table_privilege(to_regclass($1), 'SELECT')"
                holds = rows(connection, may_read, (table.sql,)) == [(True,)]
                if holds:
                    [(holds,)] = rows(connection, f"SELECT EXISTS (SELECT 1 FROM {table.sql})")
        finally:
            closed(connection)
        return f"the table {table.sql}" if holds else None

    @property
    def _planned(self) -> tuple[Table, pa.Schema]:
        if self._plan is None:
            self.validate()
        assert self._plan is not None
        return self._plan

    def _check_key(self, table: Table, names: Sequence[str]) -> None:
        for name in self._key:
            table.column(name)
            if name not in names:
                raise ConfigurationError(
                    f"key column {name!r} is none of the columns that are written"
                )
        key = frozenset(self._key)
        if self._key and key not in table.unique:
            raise ConfigurationError(
                f"table {table.sql} has no unique index on {', '.join(self._key)}, which upserts need: one "
                "over these columns alone, for all rows"
            )
        if self._key and key not in table.upsertable:
            raise ConfigurationError(
                f"table {table.sql} has a unique index on {', '.join(self._key)} that upserts cannot go "
                "by: it is deferrable, or has another collation than the column"
            )

    def _check_rights(self, table: Table, names: Sequence[str]) -> None:
        wanted: dict[str, Sequence[str]] = {"INSERT": names}
        if self._key:
            wanted["SELECT"] = names  # An upsert reads what it replaces.
            others = [name for name in names if name not in self._key]
            if others:
                wanted["UPDATE"] = others
        check_rights(self._server, table, wanted)


class PostgresConnection(LedgerConnection):
    """One session; the ledger is created if it is not there."""

    def __init__(
        self, server: Server, table: Table, schema: pa.Schema, key: tuple[str, ...]
    ) -> None:
        self._server = server
        self._table = table
        self._schema = schema
        self._key = key
        self._connection = server.connect()
        try:
            with server.errors(f"cannot create the table {LEDGER}"):
                # Who may only write to the ledger may not even ask to create it.
                [(missing, whole)] = rows(self._connection, _LEDGER_STATE)
                if not whole:
                    rows(self._connection, f"SELECT pg_advisory_xact_lock({_CREATION_LOCK})::text")
                    run(self._connection, _CREATE_LEDGER if missing else _COMPLETE_LEDGER)
                self._connection.commit()
        except MinirtError:
            self.close()
            raise

    @contextmanager
    def transaction(self) -> Iterator[LedgerTransaction]:
        transaction = _Transaction(
            self._server, self._connection, self._table, self._schema, self._key
        )
        with committing(self._connection, self._server.errors):
            yield transaction
            transaction.finish()

    def close(self) -> None:
        closed(self._connection)


class _Transaction(LedgerTransaction):
    def __init__(
        self,
        server: Server,
        connection: Any,
        table: Table,
        schema: pa.Schema,
        key: tuple[str, ...],
    ) -> None:
        self._server = server
        self._connection = connection
        self._table = table
        self._schema = schema
        self._key = key
        self._written: list[pa.Schema] = []
        self._merged = 0
        """How many rows wait in the temporary table for the end of the transaction."""

    def entry(self, owner: str) -> LedgerEntry | None:
        with self._server.errors("cannot read the ledger"):
            asked = f"SELECT checkpoint_id, generation, written_by FROM {LEDGER} WHERE sink = $1 FOR UPDATE"
            found = rows(self._connection, asked, (owner,))
            if not found:
                # Whoever comes second waits here for the first one, as they would for its lock.
                added = f"INSERT INTO {LEDGER} VALUES ($1, 0, 0, 0) ON CONFLICT DO NOTHING"
                run(self._connection, added, (owner,))
                found = rows(self._connection, asked, (owner,))
        known = LedgerEntry(*found[0])
        return None if known == LedgerEntry() else known

    def write(self, piece: bytes) -> None:
        data = read_piece(piece)
        if data.schema not in self._written:
            self._written.append(data.schema)
            self._check_table()
        place = {"db_schema_name": self._table.schema}
        doing = self._server.errors(f"cannot write to {self._table.sql}", SinkDataError)
        with doing, self._connection.cursor() as cursor:
            if self._key:
                self._gather(cursor, data)
            else:
                cursor.adbc_ingest(self._table.name, data, mode="append", **place)

    def record(self, owner: str, entry: LedgerEntry) -> None:
        with self._server.errors("cannot write to the ledger"):
            run(
                self._connection,
                f"UPDATE {LEDGER} SET checkpoint_id = $2, generation = $3, written_by = $4, at = now() "
                "WHERE sink = $1",
                (owner, entry.checkpoint_id, entry.generation, entry.written_by),
            )

    def finish(self) -> None:
        """Merge what was gathered: of each key, the last row.

        Before the table was written to, it could be changed behind the first look at it.
        """
        if self._merged:
            self._merge()
        self._check_table()

    def _merge(self) -> None:
        names = ", ".join(quoted(name) for name in self._schema.names)
        key = ", ".join(quoted(name) for name in self._key)
        others = [quoted(name) for name in self._schema.names if name not in self._key]
        change = ", ".join(f"{name} = EXCLUDED.{name}" for name in others)
        with self._server.errors(f"cannot write to {self._table.sql}", SinkDataError):
            run(
                self._connection,
                f"INSERT INTO {self._table.sql} ({names}) SELECT DISTINCT ON ({key}) {names} "
                f"FROM pg_temp.{_ORDER} ORDER BY {key}, {_ORDER} DESC "
                f"ON CONFLICT ({key}) DO " + (f"UPDATE SET {change}" if change else "NOTHING"),
            )
            run(self._connection, f"DROP TABLE pg_temp.{_ORDER}")

    def _check_table(self) -> None:
        with self._server.errors(f"cannot look at the table {self._table.sql}"):
            for schema in self._written:
                check_columns(self._connection, self._table, schema)

    def _gather(self, cursor: Any, data: pa.Table) -> None:
        """Put rows into a temporary table, with their order.

        Its columns are those of the table, so that two keys are the same one here if they are there.
        """
        first = self._merged
        self._merged += len(data)
        if not first:
            declared = ", ".join(
                f"{quoted(name)} {self._table.column(name).declared}" for name in data.schema.names
            )
            cursor.execute(f"CREATE TEMPORARY TABLE {_ORDER} ({declared}, {_ORDER} bigint)")
        order = pa.array(range(first, self._merged), pa.int64())
        cursor.adbc_ingest(_ORDER, data.append_column(_ORDER, order), mode="append", temporary=True)


class TableColumns(ColumnEncoder):
    """Refuses what the table could never hold: its commit would fail for ever.

    `limits` says how many characters the texts of a column may have.
    """

    def __init__(
        self, operator: str, schema: pa.Schema, limits: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(operator, schema)
        self._limits = dict(limits or {})

    def encode(self, batch: Batch) -> pa.RecordBatch:
        encoded = super().encode(batch)
        for name, column in zip(encoded.schema.names, encoded.columns, strict=True):
            for found, why in self._refused(name, column):
                if pc.any(found).as_py():
                    record = _shown(encoded, pc.index(found, True).as_py())
                    raise SinkDataError(
                        f"{self._operator}: column {name!r}: {why}; in record {record!r:.500}"
                    )
        return encoded

    def _refused(self, name: str, column: pa.Array) -> Iterator[tuple[pa.Array, str]]:
        """For each value whether it is refused, and why."""
        kind = column.type
        if pa.types.is_string(kind):
            yield (
                pc.match_substring(column, "\0"),
                "PostgreSQL has no texts with the character U+0000",
            )
        if (most := self._limits.get(name)) is not None:
            # Blanks that are too much at the end are cut off by the server.
            length = pc.utf8_length(pc.utf8_rtrim(column, " "))
            yield pc.greater(length, most), f"the table takes at most {most} characters"
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            times = column.cast(pa.int32() if pa.types.is_date(kind) else pa.int64())
            first, last = _DAYS if pa.types.is_date(kind) else _MICROSECONDS
            outside = pc.or_(pc.less(times, first), pc.greater(times, last))
            yield outside, "PostgreSQL has no such time: they begin in 4713 BC"


def _shown(batch: pa.RecordBatch, place: int) -> dict[str, Any]:
    """A record for a message; times that Python does not have are numbers in it."""
    record = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            record[name] = column[place].as_py()
        except (OverflowError, ValueError):
            whole = pa.int32() if pa.types.is_date32(column.type) else pa.int64()
            record[name] = column.slice(place, 1).cast(whole)[0].as_py()
    return record
