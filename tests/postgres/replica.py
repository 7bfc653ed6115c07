"""Tables made from changes, each checked against what is there before; and who writes to the tables."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from tests.postgres.server import Postgres

SLOT = "changes_of_tests"
_COLUMNS = {"public.accounts": ("id", "owner", "version"), "public.notes": ("id", "body")}


class Replica:
    """Refuses a change that is repeated, or that comes too early: each must fit the rows that are there.

    No id is inserted twice, and whoever truncates a table inserts a row before: so a TRUNCATE that finds
    none, and any id that was there before, are changes that have come again.
    """

    def __init__(self) -> None:
        self.tables: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in _COLUMNS}
        self.updates = 0
        self._met: dict[str, set[int]] = {name: set() for name in _COLUMNS}
        self._truncated: dict[str, int] = {}
        self._lsn = 0

    def apply(self, records: Iterable[dict[str, Any]]) -> None:
        for record in records:
            assert record["lsn"] >= self._lsn, f"it comes again, after {self._lsn}: {record}"
            self._lsn = record["lsn"]
            self._apply(record)

    def _apply(self, record: dict[str, Any]) -> None:
        new = record["new"]
        match record["operation"]:
            case "existing" | "insert":
                self._add(record, new)
            case "update":
                before = self._take(record, (record["old"] or new)["id"])
                if "version" in new:
                    assert new["version"] == before["version"] + 1, (before, record)
                if new["id"] == before["id"]:
                    self.tables[record["table"]][new["id"]] = {**before, **new}
                else:
                    self._add(record, {**before, **new})
                self.updates += 1
            case "delete":
                self._take(record, record["old"]["id"])
            case "truncate":
                rows = self.tables[record["table"]]
                assert rows, f"a TRUNCATE comes again: {record}"
                rows.clear()
                self._truncated[record["table"]] = record["lsn"]

    def _add(self, record: dict[str, Any], row: dict[str, Any]) -> None:
        met = self._met[record["table"]]
        assert row["id"] not in met, f"a row comes again: {record}"
        met.add(row["id"])
        self.tables[record["table"]][row["id"]] = dict(row)

    def _take(self, record: dict[str, Any], id: int) -> dict[str, Any]:
        row = self.tables[record["table"]].pop(id, None)
        if row is None:
            known = "was there before" if id in self._met[record["table"]] else "never came"
            since = self._truncated.get(record["table"])
            raise AssertionError(f"row {id} {known}, the last TRUNCATE was at {since}: {record}")
        return row

    @staticmethod
    def of(server: Postgres) -> dict[str, dict[int, dict[str, Any]]]:
        """The tables as a reader sees them."""
        return {
            name: {
                row[0]: dict(zip(columns, row, strict=True))
                for row in server.rows(f"SELECT {', '.join(columns)} FROM {name}")
            }
            for name, columns in _COLUMNS.items()
        }


class Writer(threading.Thread):
    """Inserts, updates, moves and deletes rows in transactions, some of which it rolls back."""

    def __init__(self, server: Postgres, chance: random.Random, pause_s: float) -> None:
        super().__init__(name="writer", daemon=True)
        self._server = server
        self._chance = chance
        self.pause_s = pause_s
        self._new = 100_000
        self.committed = 0
        self.stop = threading.Event()

    def wait(self, transactions: int) -> None:
        """Until so many more have committed."""
        wanted, end = self.committed + transactions, time.monotonic() + 60
        while self.committed < wanted:
            assert self.is_alive(), "the writer has failed"
            assert time.monotonic() < end
            time.sleep(0.005)

    def run(self) -> None:
        while not self.stop.is_set():
            try:
                with psycopg.connect(self._server.uri) as connection:
                    while not self.stop.is_set():
                        self._transaction(connection)
                        time.sleep(self.pause_s)
            except psycopg.OperationalError:  # The server is being restarted.
                time.sleep(0.05)

    def _transaction(self, connection: psycopg.Connection[Any]) -> None:
        for _ in range(self._chance.randint(1, 6)):
            for statement, values in self._statements():
                connection.execute(statement, values)
        if self._chance.random() < 0.15:
            connection.rollback()
        else:
            connection.commit()
            self.committed += 1

    def _statements(self) -> list[tuple[bytes, tuple[Any, ...]]]:
        self._new += 1
        some = self._chance.randint(1, 50)
        note = "n" * self._chance.randint(0, 9000)
        noted = (b"INSERT INTO notes VALUES (%s, %s)", (self._new, note))
        match self._chance.choice(
            ["insert", "update", "update", "move", "note", "delete", "empty"]
        ):
            case "insert":
                return [(b"INSERT INTO accounts VALUES (%s, 'x', 0)", (self._new,))]
            case "update":
                more = b"UPDATE accounts SET version = version + 1 WHERE id %% 50 = %s"
                return [(more, (some,))]
            case "move":
                moved = b"UPDATE accounts SET id = %s, version = version + 1 WHERE id = %s"
                return [(moved, (self._new, some))]
            case "note":
                return [noted]
            case "delete":
                return [(b"DELETE FROM accounts WHERE id %% 500 = %s", (some,))]
            case _:
                if self._chance.random() < 0.2:
                    return [noted, (b"TRUNCATE notes", ())]
                return [(b"UPDATE notes SET body = body || 'x' WHERE id %% 5 = %s", (some % 5,))]


@contextmanager
def writing(server: Postgres, chance: random.Random, pause_s: float = 0.0) -> Iterator[Writer]:
    """Somebody writes to `accounts` and `notes` during the block."""
    writer = Writer(server, chance, pause_s)
    writer.start()
    try:
        yield writer
    finally:
        writer.stop.set()
        writer.join(30)
    assert not writer.is_alive()


def forget(server: Postgres) -> None:
    """Drop the slot and the copies of the tests, once those who used them are gone."""
    for (name,) in server.rows("SELECT relname FROM pg_class WHERE relkind = 'm'"):
        server.run(f"DROP MATERIALIZED VIEW {name}")
    drop = (
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT temporary"
    )
    server.run(drop)


def make_tables(server: Postgres) -> None:
    """`accounts` and `notes` with five rows each, published as `changes`; nothing is left of a job."""
    drop_tables(server)
    server.run(
        "CREATE TABLE accounts (id bigint PRIMARY KEY, owner text, version bigint NOT NULL)",
        "CREATE TABLE notes (id bigint PRIMARY KEY, body text)",
        "CREATE PUBLICATION changes FOR TABLE accounts, notes",
        "INSERT INTO accounts SELECT n, 'owner', 0 FROM generate_series(1, 5) n",
        "INSERT INTO notes SELECT n, 'note' FROM generate_series(1, 5) n",
    )


def drop_tables(server: Postgres) -> None:
    forget(server)
    server.run("DROP PUBLICATION IF EXISTS changes", "DROP TABLE IF EXISTS accounts, notes")
