"""The begin of reading changes, stopped before each statement: others write there, or the start ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import pytest

from minirt.errors import StorageError
from minirt.io import Split
from minirt_connectors.postgres import PostgresChangesSource, existing_rows, slots
from minirt_connectors.postgres.server import Server
from tests.campaigns import soaked
from tests.postgres.replica import SLOT, Replica, drop_tables, make_tables
from tests.postgres.server import Postgres

pytestmark = pytest.mark.postgres


class Crash(Exception):
    """The end of a start, wherever it is."""


class Steps:
    """The statements of a start."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self._before: Callable[[int], None] | None = None
        for module, name in ((existing_rows, "rows"), (existing_rows, "run"), (slots, "rows")):
            monkeypatch.setattr(module, name, self._watched(getattr(module, name)))

    def begin(self, source: PostgresChangesSource, before: Callable[[int], None]) -> Split:
        """Start, and call `before` with the number of each statement."""
        self.asked, self._before = [], before
        try:
            [split] = source.plan_splits(1)
        finally:
            self._before = None
        return split

    def _watched(self, ask: Callable[..., Any]) -> Callable[..., Any]:
        def asked(connection: Any, statement: str, *parameters: Any) -> Any:
            if self._before is not None:
                self._before(len(self.asked))
                self.asked.append(statement)
            return ask(connection, statement, *parameters)

        return asked


@pytest.fixture
def server(server: Postgres) -> Iterator[Postgres]:
    yield server
    drop_tables(server)
    server.run("DROP TABLE IF EXISTS parts")


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


def begin_anew(server: Postgres) -> PostgresChangesSource:
    make_tables(server)
    return PostgresChangesSource(server.uri, "changes", slot=SLOT, poll="1ms")


def read_on(server: Postgres, source: PostgresChangesSource, split: Split) -> Replica:
    """What is made of everything up to now."""
    [(end,)] = server.rows("SELECT (pg_current_wal_flush_lsn() - '0/0')::int8")
    replica, reader = Replica(), source.open_split(split, None)
    try:
        while reader.offset[2] < end:
            replica.apply(reader.read() or [])
    finally:
        reader.close()
    return replica


def write(server: Postgres) -> None:
    """Transactions that need each other's rows, and a TRUNCATE between rows."""
    server.run("UPDATE notes SET body = body || 'x'", "INSERT INTO accounts VALUES (10, 'x', 0)")
    server.run("UPDATE accounts SET version = version + 1", "DELETE FROM accounts WHERE id = 3")
    server.run(
        "INSERT INTO notes VALUES (11, 'before')",
        "TRUNCATE notes",
        "INSERT INTO notes VALUES (12, 'behind')",
    )
    server.run("UPDATE notes SET body = body || 'y'")


def waits(server: Postgres) -> bool:
    """Whether somebody waits for a lock."""
    return bool(server.rows("SELECT 1 FROM pg_locks WHERE NOT granted"))


@contextmanager
def writer(server: Postgres) -> Iterator[threading.Thread]:
    """Who writes when started. A TRUNCATE waits for whoever has read the table."""
    thread = threading.Thread(target=write, args=(server,))
    yield thread
    if thread.ident is None:
        thread.start()
    thread.join(30)
    assert not thread.is_alive()


def start(server: Postgres, thread: threading.Thread) -> None:
    """Let somebody write until all is written, or has to wait."""
    thread.start()
    while thread.is_alive() and not waits(server):
        thread.join(0.005)


@contextmanager
def committing_when_awaited(server: Postgres) -> Iterator[psycopg.Connection[Any]]:
    """A connection whose transaction commits when somebody waits for it, at the latest at the end."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.01):
            if waits(server):
                connection.commit()

    with psycopg.connect(server.uri) as connection:
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield connection
        finally:
            done.set()
            watcher.join(30)


def each_statement(steps: Steps, server: Postgres) -> Iterator[tuple[int, PostgresChangesSource]]:
    """Where a start shall be disturbed: before each of its statements, and behind the last one."""
    steps.begin(begin_anew(server), lambda at: None)
    assert len(steps.asked) > 10
    for number in range(len(steps.asked) + 1):
        yield number, begin_anew(server)


def test_what_is_written_between_two_statements_is_neither_lost_nor_repeated(
    server: Postgres, steps: Steps
) -> None:
    for number, source in each_statement(steps, server):
        with writer(server) as thread:
            split = steps.begin(
                source,
                lambda at, number=number, thread=thread: at == number and start(server, thread),
            )
        assert read_on(server, source, split).tables == Replica.of(server), steps.asked[:number]


def test_a_transaction_that_is_open_between_statements_is_neither_lost_nor_repeated(
    server: Postgres, steps: Steps
) -> None:
    for number, source in each_statement(steps, server):
        with committing_when_awaited(server) as straddling:

            def before(at: int, number: int = number, straddling: Any = straddling) -> None:
                if at == number:
                    straddling.execute("INSERT INTO notes VALUES (20, 'open')")
                    straddling.execute("UPDATE accounts SET version = version + 1 WHERE id < 4")
                elif at == number + 2:
                    straddling.commit()

            split = steps.begin(source, before)
        assert read_on(server, source, split).tables == Replica.of(server), steps.asked[:number]


@pytest.mark.parametrize("answered", [False, *soaked(True)])
def test_a_start_that_ends_anywhere_is_taken_up_or_made_anew(
    server: Postgres, steps: Steps, answered: bool
) -> None:
    """The start ends before a statement, or behind it, when the server has done what it asks."""
    for number, source in each_statement(steps, server):

        def before(at: int, number: int = number + answered) -> None:
            if at == number:
                raise Crash

        with suppress(Crash):
            steps.begin(source, before)
        asked = steps.asked
        write(server)
        split = steps.begin(source, lambda at: None)
        assert read_on(server, source, split).tables == Replica.of(server), asked


def test_tables_that_are_truncated_again_and_again_are_told(server: Postgres, steps: Steps) -> None:
    def before(at: int) -> None:
        if steps.asked[-1:] and steps.asked[-1].startswith("CREATE_REPLICATION_SLOT"):
            server.run("TRUNCATE notes")

    with pytest.raises(StorageError, match=r"each of 10 times a table .* was truncated"):
        steps.begin(begin_anew(server), before)
    assert server.rows("SELECT 1 FROM pg_replication_slots WHERE NOT temporary") == []


@pytest.mark.parametrize(
    "change",
    [
        "TRUNCATE parts",
        "TRUNCATE part_low",
        "ALTER TABLE parts ALTER size TYPE bigint",
        "ALTER PUBLICATION changes ADD TABLE accounts",
        "DROP TABLE part_low; CREATE TABLE part_low PARTITION OF parts FOR VALUES FROM (0) TO (10)",
    ],
)
def test_a_table_that_has_changed_as_a_whole_since_the_slot_was_made_has_it_made_anew(
    server: Postgres, steps: Steps, change: str
) -> None:
    server.run(
        "CREATE TABLE accounts (id bigint PRIMARY KEY)",
        "CREATE TABLE parts (id bigint, size int) PARTITION BY RANGE (id)",
        "CREATE TABLE part_low PARTITION OF parts FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE part_high PARTITION OF parts DEFAULT",
        "INSERT INTO parts VALUES (1, 5), (11, 6)",
        "CREATE PUBLICATION changes FOR TABLE parts WITH (publish_via_partition_root)",
    )
    made = 0

    def before(at: int) -> None:
        nonlocal made
        if steps.asked[-1:] and steps.asked[-1].startswith("CREATE_REPLICATION_SLOT"):
            made += 1
            if made == 1:
                server.run(change)

    source = PostgresChangesSource(server.uri, "changes", slot=SLOT)
    split = steps.begin(source, before)
    assert made == 2
    reader = source.open_split(split, None)
    found: list[Any] = []
    while reader.offset[0] >= 0:
        found += reader.read() or []
    reader.close()
    assert [record["new"] for record in found] == [
        row for (row,) in server.rows("SELECT row_to_json(parts) FROM parts ORDER BY id")
    ]


def test_a_slot_is_made_by_one_start_at_a_time(
    server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server goes on with what a start that was killed has asked for."""
    monkeypatch.setattr(slots, "_TAKEN_WAIT_S", 0.2)
    source = begin_anew(server)
    with psycopg.connect(server.uri) as other:
        slots.Slot(Server(server.uri), SLOT, "changes").lock(other)
        for existing in (True, False):
            starting = PostgresChangesSource(server.uri, "changes", slot=SLOT, existing=existing)
            with pytest.raises(StorageError, match="taken by another job"):
                starting.plan_splits(1)
    source.plan_splits(1)


def test_a_commit_that_is_in_the_log_but_not_through_is_waited_for(
    server: Postgres, steps: Steps
) -> None:
    """The slot begins behind the commit, so its rows must be among those that are copied."""
    source = begin_anew(server)
    found: list[Split] = []
    starting = threading.Thread(
        target=lambda: found.append(steps.begin(source, lambda at: None)), daemon=True
    )
    sessions = [psycopg.connect(server.uri) for _ in range(3)]
    first, second, late = sessions
    committing = threading.Thread(target=late.commit, daemon=True)
    try:
        # A slot begins once two sets of transactions have ended one after the other. Who has begun
        # behind the second one may still be committing.
        first.execute("SELECT pg_current_xact_id()")
        starting.start()
        wait_until(lambda: waits_for(server, first))
        second.execute("SELECT pg_current_xact_id()")
        first.commit()
        wait_until(lambda: waits_for(server, second))
        late.execute("INSERT INTO notes VALUES (20, 'committing')")
        set_standby(server, "nobody")
        committing.start()
        hangs = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        wait_until(lambda: bool(server.rows(hangs)))
        second.commit()
        wait_until(lambda: steps.asked[-1].startswith("\nSELECT 1 FROM pg_current_snapshot()"))
        time.sleep(0.3)
        assert starting.is_alive()
        assert not any(asked.startswith("LOCK TABLE") for asked in steps.asked)
    finally:
        set_standby(server, "")
        for thread in (starting, committing):
            if thread.ident is not None:
                thread.join(30)
        for session in sessions:
            session.close()
    assert read_on(server, source, found[0]).tables == Replica.of(server)


def waits_for(server: Postgres, session: psycopg.Connection[Any]) -> bool:
    """Whether somebody waits for the end of a session's transaction."""
    pid = session.info.backend_pid
    return bool(
        server.rows(
            f"SELECT 1 FROM pg_locks WHERE NOT granted AND {pid} = ANY(pg_blocking_pids(pid))"
        )
    )


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def set_standby(server: Postgres, name: str) -> None:
    """Whom commits wait for."""
    with psycopg.connect(server.uri, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = local")
        connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'".encode())
        connection.execute("SELECT pg_reload_conf()")
    time.sleep(0.2)
