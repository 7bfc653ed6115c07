"""Writes to a table of any database by a ledger: what a checkpoint commits is one transaction.

Output is staged as Arrow beside the checkpoints of the job. The coordinator inserts it with `executemany`,
and writes the checkpoint's id into the table `minirt_commits` in the same transaction.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, get_args

import pyarrow as pa
import pyarrow.compute as pc

from minirt.data.batch import Batch
from minirt.errors import ConfigurationError, MinirtError, SinkDataError, StorageError
from minirt.io.arrow_pieces import ArrowEncoder, read_piece
from minirt.io.encoder import Encoder
from minirt.io.json_text import OnNan
from minirt.io.ledger import LedgerConnection, LedgerEntry, LedgerSink, LedgerTransaction
from minirt.io.remembered import Accept, Identity, checked_accept
from minirt.io.schemas import ColumnEncoder
from minirt_connectors.database.driver import Driver, plain_name
from minirt_connectors.database.types import check_types
from minirt_connectors.dbapi import closed, committing, first, rows, run

LEDGER = "minirt_commits"
_ROWS = 10_000
"""How many rows are turned into Python values at a time."""

_CREATE_LEDGER = (
    f"CREATE TABLE {LEDGER} (sink VARCHAR(200) NOT NULL PRIMARY KEY, checkpoint_id BIGINT NOT NULL, "
    "generation BIGINT NOT NULL, written_by BIGINT NOT NULL)"
)
_COLUMNS = ("checkpoint_id", "generation", "written_by", "sink")


class DatabaseSink(LedgerSink):
    """Inserts records into `table` by a DB-API 2 driver, each exactly once.

    `driver` names the module, such as "sqlite3", and `connect` are the arguments of its `connect`. `schema`
    names the columns and their types. `statement` replaces the `INSERT`, for example by one that updates
    what is there; it marks a value for each column as the driver does, in the order of the schema. The
    job needs checkpointing, and shows its records when a checkpoint completes. The database must have
    transactions. One whose ledger knows less than the job has committed, or another table, is refused with
    a SinkDataError, unless `accept` names that: "behind" or "other".

    Where the database has no NaN, as SQLite, which stores null for it, a record with one fails the job
    (`nan="error"`), or the number becomes null ("null").
    """

    def __init__(
        self,
        driver: str,
        connect: Mapping[str, Any],
        table: str,
        schema: pa.Schema,
        *,
        statement: str | None = None,
        accept: Accept | Sequence[Accept] = (),
        nan: OnNan = "error",
    ) -> None:
        self.accept = checked_accept(accept)
        if nan not in get_args(OnNan):
            raise ConfigurationError(
                f"nan must be one of {', '.join(get_args(OnNan))}, got {nan!r}"
            )
        self._nan = nan
        self._keeps_nan: bool | None = None
        self._driver = Driver(driver, connect)
        self._table = plain_name("table", table)
        if not isinstance(schema, pa.Schema) or not len(schema):
            raise ConfigurationError("schema must be a pyarrow.Schema with at least one column")
        self._schema = schema
        self._statement = statement
        if statement is None:
            for name in schema.names:
                plain_name("column", name)

    def __repr__(self) -> str:
        return f"DatabaseSink({self._driver.name!r}, table={self._table!r})"

    def validate(self) -> None:
        """Look at the table, so that what does not fit is refused before anything starts."""
        try:
            connection = self._driver.connect()
            try:
                names = "*" if self._statement else ", ".join(self._schema.names)
                with self._driver.errors(f"cannot use the table {self._table}"):
                    rows(connection, f"SELECT {names} FROM {self._table} WHERE 1 = 0")
                self._keeps_nan = _keeps_nan(self._driver, connection)
                check_types(self._driver, connection, self._schema)
            finally:
                closed(connection)
        except StorageError as error:
            raise ConfigurationError(str(error)) from error

    def encoding(self, operator: str) -> Callable[[BinaryIO], Encoder]:
        if self._keeps_nan is None:
            self.validate()
        keeps = bool(self._keeps_nan)
        columns = TableColumns(operator, self._schema, None if keeps else self._nan)
        return lambda stream: ArrowEncoder(stream, columns)

    def holding(self) -> str | None:
        if self._statement is not None:  # It may replace what is there.
            return None
        connection = self._driver.connect()
        try:
            with self._driver.errors(f"cannot read the table {self._table}"):
                holds = first(connection, f"SELECT 1 FROM {self._table}") is not None
        finally:
            closed(connection)
        return f"the table {self._table}" if holds else None

    def target(self) -> Identity:
        return Identity("table", self._table)

    def connect(self) -> LedgerConnection:
        names = self._schema.names
        statement = self._statement or (
            f"INSERT INTO {self._table} ({', '.join(names)}) "
            f"VALUES ({', '.join(self._driver.marks(names))})"
        )
        return DatabaseConnection(self._driver, statement)


class TableColumns(ColumnEncoder):
    """Refuses NaN, or makes it null, where a database has none; `nan` is None for one that has it."""

    def __init__(self, operator: str, schema: pa.Schema, nan: OnNan | None) -> None:
        super().__init__(operator, schema)
        self._nan = nan

    def encode(self, batch: Batch) -> pa.RecordBatch:
        encoded = super().encode(batch)
        if self._nan is None:
            return encoded
        for place, field in enumerate(encoded.schema):
            if not pa.types.is_floating(field.type):
                continue
            is_nan = pc.fill_null(pc.is_nan(encoded.column(place)), False)
            at = pc.index(is_nan, True).as_py()
            if at < 0:
                continue
            if self._nan == "error" or not field.nullable:
                raise SinkDataError(
                    f"{self._operator}: column {field.name!r} of type {field.type}: the database has no "
                    f'NaN; give the sink nan="null", or replace it before; in record '
                    f"{encoded.slice(at, 1).to_pylist()[0]!r:.500}"
                )
            nulls = pc.if_else(is_nan, pa.scalar(None, field.type), encoded.column(place))
            encoded = encoded.set_column(place, field, nulls)
        return encoded


def _keeps_nan(driver: Driver, connection: Any) -> bool:
    """Whether the database gives NaN back as it got it."""
    [mark] = driver.marks(["nan"])
    [values] = driver.parameters(["nan"], [(math.nan,)])
    try:
        [(found,)] = rows(connection, f"SELECT {mark}", values)
    except Exception:  # Each driver and database says by errors of its own that it has none.
        return False
    return isinstance(found, float) and math.isnan(found)


class DatabaseConnection(LedgerConnection):
    """One connection; the ledger is created if it is not there."""

    def __init__(self, driver: Driver, statement: str) -> None:
        self._driver = driver
        self._statement = statement
        self._connection = driver.connect()
        try:
            self._create_ledger()
            self._check_transactions()
        except MinirtError:
            self.close()
            raise

    @contextmanager
    def transaction(self) -> Iterator[LedgerTransaction]:
        with committing(self._connection, self._driver.errors):
            yield _Transaction(self._driver, self._connection, self._statement)

    def close(self) -> None:
        closed(self._connection)

    def _create_ledger(self) -> None:
        asked = f"SELECT checkpoint_id FROM {LEDGER} WHERE 1 = 0"
        try:
            with self._driver.errors(f"cannot read {LEDGER}"):
                rows(self._connection, asked)
                _rolled_back(self._connection)
                return
        except StorageError:
            _rolled_back(self._connection)
        try:
            with self._driver.errors(f"cannot create the table {LEDGER}"):
                run(self._connection, _CREATE_LEDGER)
                self._connection.commit()
        except StorageError:  # Another job may have been faster.
            _rolled_back(self._connection)
            with self._driver.errors(f"cannot create the table {LEDGER}"):
                rows(self._connection, asked)
                _rolled_back(self._connection)

    def _check_transactions(self) -> None:
        """Raises ConfigurationError if what is rolled back stays: then nothing is exactly once."""
        name = f"minirt-probe-{uuid.uuid4().hex}"
        with self._driver.errors("cannot write to the ledger"):
            _insert(self._driver, self._connection, name)
            # Some drivers raise here if each statement was committed by itself.
            problem = _rolled_back(self._connection)
            [mark] = self._driver.marks(["sink"])
            named = self._driver.parameters(["sink"], [(name,)])[0]
            asked = f"SELECT sink FROM {LEDGER} WHERE sink = {mark}"
            stays = rows(self._connection, asked, named)
            if stays:
                run(self._connection, f"DELETE FROM {LEDGER} WHERE sink = {mark}", named)
                with suppress(Exception):
                    self._connection.commit()
            elif problem is not None:
                raise problem
            _rolled_back(self._connection)
        if stays:
            raise ConfigurationError(
                f"{self._driver.name}: the connection commits each statement by itself, or the database "
                "has no transactions: turn autocommit off in connect=..., or choose another kind of table"
            )


class _Transaction(LedgerTransaction):
    def __init__(self, driver: Driver, connection: Any, statement: str) -> None:
        self._driver = driver
        self._connection = connection
        self._statement = statement

    def entry(self, owner: str) -> LedgerEntry | None:
        [mark] = self._driver.marks(["sink"])
        [named] = self._driver.parameters(["sink"], [(owner,)])
        asked = f"SELECT checkpoint_id, generation, written_by FROM {LEDGER} WHERE sink = {mark}"
        with self._driver.errors("cannot read the ledger"):
            # To change it, if only to what it was, is the lock that all databases know.
            locked = f"UPDATE {LEDGER} SET generation = generation WHERE sink = {mark}"
            run(self._connection, locked, named)
            found = rows(self._connection, asked, named)
            if not found:
                # Whoever comes second waits here for the first one, or fails and comes again.
                _insert(self._driver, self._connection, owner)
                found = rows(self._connection, asked, named)
        known = LedgerEntry(*map(int, found[0]))
        return None if known == LedgerEntry() else known

    def write(self, piece: bytes) -> None:
        data = read_piece(piece)
        names = data.schema.names
        cursor = self._connection.cursor()
        with self._driver.errors("cannot write records", SinkDataError):
            for batch in data.to_batches(_ROWS):
                values = list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
                parameters = self._driver.parameters(names, values, self._statement)
                cursor.executemany(self._statement, parameters)
            cursor.close()

    def record(self, owner: str, entry: LedgerEntry) -> None:
        marks = self._driver.marks(_COLUMNS)
        changes = ", ".join(f"{name} = {mark}" for name, mark in zip(_COLUMNS, marks, strict=True))
        changed = changes.rpartition(", sink")[0]
        values = (entry.checkpoint_id, entry.generation, entry.written_by, owner)
        with self._driver.errors("cannot write to the ledger"):
            run(
                self._connection,
                f"UPDATE {LEDGER} SET {changed} WHERE sink = {marks[-1]}",
                self._driver.parameters(_COLUMNS, [values])[0],
            )


def _rolled_back(connection: Any) -> Exception | None:
    """Roll back. Returns what the driver says if it cannot: that there is no transaction, for example."""
    try:
        connection.rollback()
    except Exception as error:
        return error
    return None


def _insert(driver: Driver, connection: Any, owner: str) -> None:
    """An entry of nothing."""
    marks = driver.marks(_COLUMNS)
    [values] = driver.parameters(_COLUMNS, [(0, 0, 0, owner)])
    run(
        connection,
        f"INSERT INTO {LEDGER} ({', '.join(_COLUMNS)}) VALUES ({', '.join(marks)})",
        values,
    )
