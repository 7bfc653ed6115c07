"""What a checkpoint remembers of a PostgreSQL server is compared with the server, in both directions."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import minirt as rt
from minirt.io import Sink, Staging
from minirt.storage.store import ObjectStore
from minirt.testing.contracts import BEFORE, SinkMemoryContract, SourceMemoryContract
from minirt.testing.contracts.memory import drained
from minirt_connectors.postgres import PostgresChangesSource, PostgresSink, PostgresSource
from tests.postgres.server import Postgres, a_server

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def own_server() -> Iterator[Postgres]:
    """A server of these tests, which lose what it stores."""
    with a_server() as started:
        yield started


class Rows(SourceMemoryContract):
    """A table is read to its end, so only the next start looks."""

    while_running = False
    names: Sequence[str] = ("numbers", "oid")
    table = "numbers"

    @pytest.fixture(autouse=True)
    def _server(self, server: Postgres) -> None:
        self.server = server
        server.run("DROP TABLE IF EXISTS numbers, others")

    def make(self, table: str, first: int, count: int) -> None:
        self.server.run(
            f"CREATE TABLE {table} (id int PRIMARY KEY)",
            f"INSERT INTO {table} SELECT {first} + n FROM generate_series(1, {count}) n",
        )

    def first(self) -> rt.Source:
        self.make("numbers", 0, BEFORE)
        return PostgresSource(self.server.uri, "numbers", key="id", splits=1)

    def second(self, accept: Sequence[str]) -> rt.Source:
        return PostgresSource(self.server.uri, self.table, key="id", splits=1, accept=accept)  # type: ignore[arg-type]

    def records_of(self, count: int) -> int | None:
        return 0  # The range of keys is that of the first start.


class TestAnotherTable(Rows):
    names = ("numbers", "others", "oid")
    table = "others"

    def change(self, count: int) -> None:
        self.make("others", 100, count)


class TestATableMadeAnew(Rows):
    def change(self, count: int) -> None:
        self.server.run("DROP TABLE numbers")
        self.make("numbers", 100, count)


class ChangesMemory(SourceMemoryContract):
    """Each record is a transaction."""

    accept = "behind"
    names = ("of the log",)
    patience_s = 1.0

    @pytest.fixture(autouse=True)
    def _server(self, own_server: Postgres) -> None:
        self.server = own_server
        for slot in own_server.rows(
            "SELECT slot_name FROM pg_replication_slots WHERE NOT temporary"
        ):
            own_server.run(f"SELECT pg_drop_replication_slot('{slot[0]}')")
        own_server.run(
            "DROP TABLE IF EXISTS numbers",
            "DROP PUBLICATION IF EXISTS numbers",
            "CREATE TABLE numbers (id int PRIMARY KEY)",
            "CREATE PUBLICATION numbers FOR TABLE numbers",
        )

    def insert(self, first: int, count: int) -> None:
        for id in range(first, first + count):
            self.server.run(f"INSERT INTO numbers VALUES ({id})")

    def second(self, accept: Sequence[str]) -> rt.Source:
        return PostgresChangesSource(
            self.server.uri,
            "numbers",
            slot="numbers",
            existing=False,
            poll=0,
            accept=accept,  # type: ignore[arg-type]
        )

    def older(self, offset: Any) -> Any:
        return offset[:4]


class TestALogThatWentBack(ChangesMemory):
    """A standby that has only two of the transactions is promoted, and grows."""

    def first(self) -> rt.Source:
        source = self.second(())
        source.plan_splits(1)  # Makes the slot.
        self.insert(0, 2)
        self.server.stop()
        name = f"standby-{id(self)}"
        self.server.save(name)
        self.saved = name
        self.server.start()
        self.insert(2, BEFORE - 2)
        return source

    def change(self, count: int) -> None:
        self.server.stop(signal.SIGQUIT)
        self.server.go_back(self.saved)
        self.server.start()
        self.insert(100, count - 2)

    def records_of(self, count: int) -> int | None:
        return None  # As many as the place in the log leaves.


class TestAnotherServer(ChangesMemory):
    """It has a database and a slot of the same names, and a log of its own."""

    accept = "other"
    names = ("PostgreSQL database postgres", "system")
    while_running = False

    @pytest.fixture(autouse=True)
    def _other(self, server: Postgres) -> Iterator[None]:
        self.other = server
        yield
        server.run(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
            "WHERE slot_name = 'numbers'",
            "DROP PUBLICATION IF EXISTS numbers",
            "DROP TABLE IF EXISTS numbers",
        )

    def first(self) -> rt.Source:
        source = self.second(())
        source.plan_splits(1)
        self.insert(0, BEFORE)
        return source

    def change(self, count: int) -> None:
        self.server = self.other
        self.server.run(
            "DROP TABLE IF EXISTS numbers",
            "CREATE TABLE numbers (id int PRIMARY KEY)",
            "CREATE PUBLICATION numbers FOR TABLE numbers",
        )
        self.second(()).plan_splits(1)
        self.insert(100, count)

    @pytest.mark.parametrize("count", [2])
    def test_it_can_be_accepted_and_is_remembered_then(self, count: int) -> None:
        """What is refused then is that the log of this server is elsewhere, not that it is another one."""
        stored = self._checkpoint(self.first())
        self.change(count)
        with pytest.raises(rt.SourceDataError) as raised:
            self._go_on(self.second(("other",)), stored)
        assert "system" not in str(raised.value)


def test_the_key_of_a_table_that_joins_the_publication_later(own_server: Postgres) -> None:
    own_server.run(
        "DROP TABLE IF EXISTS early, late",
        "DROP PUBLICATION IF EXISTS growing",
        "CREATE TABLE early (id int PRIMARY KEY, n int)",
        "CREATE PUBLICATION growing FOR TABLE early",
    )
    source = PostgresChangesSource(own_server.uri, "growing", slot="growing", poll=0)
    [split] = source.plan_splits(1)
    own_server.run(
        "CREATE TABLE late (a int, n int, b text, PRIMARY KEY (b, a) INCLUDE (n))",
        "ALTER TABLE late REPLICA IDENTITY FULL",
        "ALTER PUBLICATION growing ADD TABLE late",
        "INSERT INTO late VALUES (1, 5, 'x')",
        "UPDATE late SET n = 6",
    )
    reader = source.open_split(split, None)
    try:
        found = drained(reader, 1.0)
    finally:
        reader.close()
    own_server.run("SELECT pg_drop_replication_slot('growing')")
    keys = [(one["operation"], one["key"]) for one in found]
    assert keys == [("insert", {"a": 1, "b": "x"}), ("update", {"a": 1, "b": "x"})]


class LedgerMemory(SinkMemoryContract):
    """Rows and ledger go back together, as all of a server does."""

    @pytest.fixture(autouse=True)
    def _places(self, server: Postgres, table: str, tmp_path: Path) -> Iterator[None]:
        self.server, self.table = server, table
        self.store = ObjectStore(str(tmp_path / "staging"), None)
        yield
        server.run("DROP TABLE IF EXISTS kept_rows, kept_ledger")

    def staging(self) -> Staging:
        return self.store

    def keep(self) -> None:
        self.server.run(f"CREATE TABLE kept_rows AS TABLE {self.table}")
        if self.server.rows("SELECT to_regclass('minirt_commits') IS NOT NULL") == [(True,)]:
            self.server.run("CREATE TABLE kept_ledger AS TABLE minirt_commits")

    def go_back(self) -> None:
        kept = self.server.rows("SELECT to_regclass('kept_ledger') IS NOT NULL") == [(True,)]
        self.server.run(
            f"TRUNCATE {self.table}, minirt_commits",
            f"INSERT INTO {self.table} TABLE kept_rows",
            *(["INSERT INTO minirt_commits TABLE kept_ledger"] if kept else []),
        )

    def visible(self) -> list[Any]:
        return [id for (id,) in self.server.rows(f"SELECT id FROM {self.table} ORDER BY id")]


class TestPostgresSink(LedgerMemory):
    def new_sink(self, accept: Sequence[str]) -> Sink:
        return PostgresSink(self.server.uri, self.table, accept=accept)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("index", "unique"),
    [
        ("(tenant, lower(email))", False),
        ("(lower(email), tenant)", False),
        ("(tenant) INCLUDE (email)", True),
        ("(tenant, email)", False),
        ("(tenant) WHERE email IS NOT NULL", False),
        ("(tenant)", True),
    ],
)
def test_a_key_is_unique_by_itself(server: Postgres, index: str, unique: bool) -> None:
    server.run(
        "DROP TABLE IF EXISTS users",
        "CREATE TABLE users (tenant int NOT NULL, email text)",
        f"CREATE UNIQUE INDEX ON users {index}",
    )
    source = PostgresSource(server.uri, "users", key="tenant")
    if unique:
        source.validate()
        return
    with pytest.raises(rt.ConfigurationError, match="no unique index"):
        source.validate()


def test_a_slot_that_went_back_stays_until_its_log_was_compared(own_server: Postgres) -> None:
    """Else it would pass over what a reader is to find there."""
    own_server.run(
        "DROP TABLE IF EXISTS early, late CASCADE",  # With copies that another test left.
        "DROP PUBLICATION IF EXISTS growing",
        "CREATE TABLE early (id int PRIMARY KEY, n int)",
        "CREATE PUBLICATION growing FOR TABLE early",
    )
    source = PostgresChangesSource(
        own_server.uri, "growing", slot="growing", existing=False, poll=0
    )
    [split] = source.plan_splits(1)

    def slot() -> int:
        [(at,)] = own_server.rows(
            "SELECT (confirmed_flush_lsn - '0/0')::int8 FROM pg_replication_slots "
            "WHERE slot_name = 'growing'"
        )
        return int(at)

    def end() -> int:
        own_server.run("INSERT INTO early SELECT coalesce(max(id), 0) + 1 FROM early")
        return int(own_server.rows("SELECT (pg_current_wal_flush_lsn() - '0/0')::int8")[0][0])

    began, first = slot(), end()
    source.committed({split.id: [-1, 0, first, 0, None]})
    assert slot() == first
    own_server.run(  # As the slot of a backup.
        "SELECT pg_drop_replication_slot('growing')",
        "SELECT pg_create_logical_replication_slot('growing', 'pgoutput')",
    )
    source._advanced_to = slot() + 1000
    there, second = slot(), end()
    for _ in range(3):
        source.committed({split.id: [-1, 0, second, 0, None]})
        assert slot() == there > began
    third = end()
    source.committed({split.id: [-1, 0, third, 0, None]})
    assert slot() == third
    own_server.run("SELECT pg_drop_replication_slot('growing')")
