"""Change data capture against a real server: what is read is applied to dicts, and they are the tables."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import psycopg
import pytest

import minirt as rt
from minirt.errors import SourceDataError, StorageError
from minirt.io import Split, SplitReader
from minirt.testing.contracts.source import positions, read_all
from minirt_connectors.postgres import PostgresChangesSource, slot_reader
from minirt_connectors.postgres.slots import lsn_text
from tests.postgres.replica import SLOT, Replica, forget, writing
from tests.postgres.server import Postgres

pytestmark = pytest.mark.postgres


@pytest.fixture
def server(server: Postgres) -> Iterator[Postgres]:
    """With the tables `accounts` and `notes`, published as `changes`."""
    server.run(
        "CREATE TABLE accounts (id bigint PRIMARY KEY, owner text, version bigint NOT NULL)",
        "CREATE TABLE notes (id bigint PRIMARY KEY, body text)",
        "ALTER TABLE notes REPLICA IDENTITY FULL",
        "ALTER TABLE notes ALTER body SET STORAGE EXTERNAL",
        "CREATE TABLE other (id bigint)",
        "CREATE PUBLICATION changes FOR TABLE accounts, notes",
        "INSERT INTO accounts SELECT n, 'owner ' || n, 0 FROM generate_series(1, 3000) n",
    )
    yield server
    forget(server)
    server.run("DROP PUBLICATION IF EXISTS changes", "DROP TABLE accounts, notes, other")


def changes(server: Postgres, **options: Any) -> PostgresChangesSource:
    source = PostgresChangesSource(server.uri, "changes", slot=SLOT, **options)
    source.validate()
    return source


def read_until(reader: SplitReader, done: Callable[[list[Any]], bool]) -> list[Any]:
    """What an unbounded reader gives until `done` says of it that it is enough."""
    found: list[Any] = []
    end = time.monotonic() + 30
    while not done(found):
        assert time.monotonic() < end, found[-3:]
        batch = reader.read()
        assert isinstance(batch, list)
        found += batch
    return found


def read_once(source: rt.Source, split: Split, offset: Any = None) -> None:
    reader = source.open_split(split, offset)
    try:
        reader.read()
    finally:
        reader.close()


def slot_of(server: Postgres) -> str:
    [(confirmed,)] = server.rows("SELECT confirmed_flush_lsn::text FROM pg_replication_slots")
    return str(confirmed)


def copies(server: Postgres) -> list[Any]:
    return server.rows("SELECT relname FROM pg_class WHERE relkind = 'm' ORDER BY relname")


def test_rows_that_are_there_come_first_and_then_what_is_done(server: Postgres) -> None:
    source = changes(server)
    [split] = source.plan_splits(2)
    reader = source.open_split(split, None)
    server.run(
        "INSERT INTO accounts VALUES (9001, 'new', 0)",
        "UPDATE accounts SET owner = 'other', version = 1 WHERE id = 9001",
        "UPDATE accounts SET id = 9002, version = 2 WHERE id = 9001",
        "DELETE FROM accounts WHERE id = 9002",
        "INSERT INTO notes VALUES (1, 'first')",
        "UPDATE notes SET body = 'second'",
        "TRUNCATE notes, accounts",
        "INSERT INTO other VALUES (1)",
    )
    found = read_until(reader, lambda found: len(found) == 3008)
    reader.close()
    existing, done = found[:3000], found[3000:]
    assert {record["operation"] for record in existing} == {"existing"}
    assert [record["new"]["id"] for record in existing] == list(range(1, 3001))
    assert existing[0]["key"] == {"id": 1}
    assert [(one["operation"], one["key"], one["old"], one["new"]) for one in done] == [
        ("insert", {"id": 9001}, None, {"id": 9001, "owner": "new", "version": 0}),
        ("update", {"id": 9001}, None, {"id": 9001, "owner": "other", "version": 1}),
        ("update", {"id": 9002}, {"id": 9001}, {"id": 9002, "owner": "other", "version": 2}),
        ("delete", {"id": 9002}, {"id": 9002}, None),
        ("insert", {"id": 1}, None, {"id": 1, "body": "first"}),
        ("update", {"id": 1}, {"id": 1, "body": "first"}, {"id": 1, "body": "second"}),
        ("truncate", None, None, None),
        ("truncate", None, None, None),
    ]
    assert {one["table"] for one in done[-2:]} == {"public.accounts", "public.notes"}
    assert len({one["transaction"] for one in done}) == 1
    assert abs(done[0]["committed_at"] - time.time() * 1000) < 60_000


def test_what_is_written_while_the_job_begins_is_neither_lost_nor_repeated(
    server: Postgres,
) -> None:
    source = changes(server)
    with writing(server, random.Random(3), pause_s=0.001) as written:
        written.wait(20)
        [split] = source.plan_splits(1)
        reader = source.open_split(split, None)
        replica = Replica()
        replica.apply(read_until(reader, lambda found: len(found) >= 3200))
    final = server.rows("SELECT pg_current_wal_flush_lsn() - '0/0'")[0][0]
    while reader.offset[2] < final:
        replica.apply(reader.read() or [])
    reader.close()
    assert replica.tables == replica.of(server)
    assert replica.updates > 20


def test_reading_on_from_any_offset_gives_the_same_tail(server: Postgres) -> None:
    source = changes(server)
    source.plan_splits(1)
    with writing(server, random.Random(5)) as written:
        written.wait(40)
    server.run("INSERT INTO accounts SELECT n, 'bulk', 0 FROM generate_series(10000, 13000) n")
    source = changes(server, until="now")
    [split] = source.plan_splits(1)
    whole = read_all(source, split)
    passed = positions(source, split)
    assert len({offset[3] for offset, _ in passed[1:]}) > 2, "no offset within a transaction"
    for offset, seen in passed[:: max(1, len(passed) // 8)] + passed[-3:]:
        assert read_all(source, split, offset) == whole[seen:]


def test_changed_columns_and_large_values_that_stay(server: Postgres) -> None:
    source = changes(server, existing=False)
    [split] = source.plan_splits(1)
    large = "'" + "x" * 9000 + "'"
    server.run(
        "ALTER TABLE accounts ALTER owner SET STORAGE EXTERNAL",
        f"INSERT INTO accounts VALUES (1000000, {large}, 0)",
        f"INSERT INTO notes VALUES (7, {large})",
    )
    server.run("UPDATE accounts SET version = 1 WHERE id = 1000000", "UPDATE notes SET id = 8")
    server.run(
        "ALTER TABLE accounts ADD COLUMN more int DEFAULT 5", "ALTER TABLE accounts DROP owner"
    )
    server.run("UPDATE accounts SET version = 2 WHERE id = 1000000")
    reader = source.open_split(split, None)
    found = read_until(reader, lambda found: len(found) == 5)
    reader.close()
    changed, noted, last = found[2:]
    assert (changed["new"], changed["unchanged"]) == ({"id": 1000000, "version": 1}, ["owner"])
    assert (noted["new"], noted["unchanged"]) == ({"id": 8, "body": large[1:-1]}, [])
    assert last["new"] == {"id": 1000000, "version": 2, "more": 5}


def test_a_bounded_source_ends_where_it_is_told(server: Postgres) -> None:
    source = changes(server, existing=False)
    source.plan_splits(1)
    server.run("INSERT INTO notes VALUES (1, 'in')")
    [(until,)] = server.rows("SELECT pg_current_wal_flush_lsn()::text")
    server.run("INSERT INTO notes VALUES (2, 'out')")
    bounded = changes(server, existing=False, until=until)
    [split] = bounded.plan_splits(1)
    assert [record["key"] for record in read_all(bounded, split)] == [{"id": 1}]
    bounded = changes(server, existing=False, until="now")
    [split] = bounded.plan_splits(1)
    assert [record["key"]["id"] for record in read_all(bounded, split)] == [1, 2]


def test_the_slot_follows_what_is_stored_even_if_nothing_is_published(server: Postgres) -> None:
    source = changes(server)
    [split] = source.plan_splits(1)
    assert copies(server) == [(f"minirt_copy_{SLOT}_0",), (f"minirt_copy_{SLOT}_1",)]
    begun = slot_of(server)
    reader = source.open_split(split, None)
    source.committed({split.id: reader.offset})
    read_until(reader, lambda found: len(found) == 3000)
    assert (len(copies(server)), slot_of(server)) == (2, begun)
    server.run("INSERT INTO other SELECT generate_series(1, 1000)")
    [(written,)] = server.rows("SELECT pg_current_wal_flush_lsn() - '0/0'")
    while reader.offset[2] < written:
        assert reader.read() == []
    reader.close()
    source.committed({split.id: reader.offset})
    assert copies(server) == []
    assert slot_of(server) == lsn_text(reader.offset[2])
    source.committed({split.id: [-1, 0, reader.offset[2] - 1000, 0]})
    assert slot_of(server) == lsn_text(reader.offset[2])


def test_a_start_that_came_no_further_is_taken_up_and_another_is_refused(server: Postgres) -> None:
    source = changes(server)
    [first] = source.plan_splits(1)
    server.run("DELETE FROM accounts WHERE id > 10")
    [again] = changes(server).plan_splits(1)
    assert again == first
    reader = source.open_split(again, None)
    read_until(reader, lambda found: len(found) == 3000 + 2990)
    reader.close()
    source.committed({first.id: reader.offset})
    with pytest.raises(rt.ConfigurationError, match="a job has read by it before"):
        changes(server).plan_splits(1)
    with pytest.raises(SourceDataError, match=r"minirt_copy_\w+ of public.accounts is gone"):
        read_once(source, first)
    with pytest.raises(SourceDataError, match=r"was advanced to .* are gone"):
        read_once(source, first, [-1, 0, first.info["lsn"], 0])


def test_copies_of_another_slot_of_that_name_are_refused(server: Postgres) -> None:
    changes(server).plan_splits(1)
    server.run(f"SELECT pg_drop_replication_slot('{SLOT}')", "INSERT INTO other VALUES (1)")
    changes(server, existing=False).plan_splits(1)
    with pytest.raises(rt.ConfigurationError, match="not as this job would begin with it"):
        changes(server).plan_splits(1)


# What keeps a job from reading.


def test_a_position_is_never_within_a_record_of_the_log(
    server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log on disk may end within one. After a crash, other records would be there."""
    [split] = changes(server, existing=False).plan_splits(1)
    server.run("INSERT INTO other VALUES (1)")
    [(end,)] = server.rows("SELECT (pg_current_wal_flush_lsn() - '0/0')::int8")
    monkeypatch.setattr(slot_reader, "log_end", lambda connection: end - 8)
    reader = changes(server).open_split(split, None)
    try:
        while reader.offset[2] < end - 8:
            assert reader.read() == []
        assert reader.offset[2] == end
    finally:
        reader.close()


def test_a_slot_has_one_reader(server: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minirt_connectors.postgres.slots._TAKEN_WAIT_S", 0.2)
    source = changes(server, existing=False)
    [split] = source.plan_splits(1)
    reader = source.open_split(split, None)
    assert reader.read() == []
    with pytest.raises(rt.ConfigurationError, match="taken by another job"):
        changes(server)
    with pytest.raises(StorageError, match="taken by another job"):
        read_once(source, split)
    reader.close()
    changes(server)


def test_a_slot_that_is_gone_or_of_another_kind_is_refused(server: Postgres) -> None:
    source = changes(server, existing=False)
    [split] = source.plan_splits(1)
    forget(server)
    with pytest.raises(SourceDataError, match="there is no such slot"):
        read_once(source, split)
    server.run(f"SELECT pg_create_logical_replication_slot('{SLOT}', 'test_decoding')")
    with pytest.raises(rt.ConfigurationError, match="a slot of test_decoding"):
        changes(server)


def test_a_slot_whose_log_was_removed_is_refused(server: Postgres) -> None:
    source = changes(server, existing=False)
    [split] = source.plan_splits(1)
    set_live(server, "max_slot_wal_keep_size", "'1MB'")
    try:
        for _ in range(3):
            server.run("INSERT INTO other VALUES (1)")
            server.run("SELECT pg_switch_wal()")
        server.run("CHECKPOINT")
        with pytest.raises(rt.ConfigurationError, match=r"max_slot_wal_keep_size.*are lost"):
            changes(server)
        with pytest.raises(SourceDataError, match="max_slot_wal_keep_size"):
            read_once(source, split)
    finally:
        set_live(server, "max_slot_wal_keep_size", "-1")


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("DROP PUBLICATION changes", "no publication 'changes': CREATE PUBLICATION"),
        ("ALTER PUBLICATION changes DROP TABLE accounts, notes", "has no table"),
    ],
)
def test_a_publication_that_is_missing_or_empty_is_refused(
    server: Postgres, ddl: str, message: str
) -> None:
    server.run(ddl)
    with pytest.raises(rt.ConfigurationError, match=message):
        changes(server)


def test_a_user_who_may_not_replicate_is_refused(server: Postgres) -> None:
    server.run("DROP ROLE IF EXISTS reader", "CREATE ROLE reader LOGIN")
    uri = server.uri.replace("minirt@", "reader@")
    with pytest.raises(rt.ConfigurationError, match="ALTER ROLE reader REPLICATION"):
        PostgresChangesSource(uri, "changes", slot=SLOT).validate()


def test_a_server_without_logical_log_is_refused(server: Postgres) -> None:
    server.restart(signal.SIGINT, wal_level="replica")
    try:
        with pytest.raises(rt.ConfigurationError, match="wal_level = replica; set it to logical"):
            changes(server)
    finally:
        server.restart(signal.SIGINT)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"slot": "With Space"}, "lower-case letters"),
        ({"slot": "a" * 41}, "up to 40"),
        ({"publication": ""}, "publication must be"),
        ({"until": "yesterday"}, "16/B374D848"),
        ({"until": 5}, "until is"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], message: str) -> None:
    known = {"publication": "changes", "slot": "s", **options}
    with pytest.raises(rt.ConfigurationError, match=message):
        PostgresChangesSource("postgresql://me@127.0.0.1/db", **known)


def test_a_server_that_is_down_is_told_at_once() -> None:
    source = PostgresChangesSource("postgresql://me:secret-word@127.0.0.1:1/db", "p", slot="s")
    began = time.monotonic()
    with pytest.raises(rt.ConfigurationError, match=r"127\.0\.0\.1:1/db") as caught:
        source.validate()
    assert "secret-word" not in str(caught.value)
    assert time.monotonic() - began < 10


def test_transactions_come_in_the_order_of_their_commits(server: Postgres) -> None:
    source = changes(server, existing=False)
    [split] = source.plan_splits(1)
    with psycopg.connect(server.uri) as early, psycopg.connect(server.uri) as late:
        early.execute("INSERT INTO notes VALUES (1, 'begun first')")
        late.execute("INSERT INTO notes VALUES (2, 'committed first')")
        late.commit()
        early.execute("INSERT INTO notes VALUES (3, 'begun first')")
        early.commit()
    reader = source.open_split(split, None)
    found = read_until(reader, lambda found: len(found) == 3)
    reader.close()
    assert [record["key"]["id"] for record in found] == [2, 1, 3]
    assert all(one["lsn"] <= next["lsn"] for one, next in pairwise(found))


def test_a_long_backlog_comes_whole(server: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks end after so many messages, or so much log: the next one goes on there."""
    monkeypatch.setattr("minirt_connectors.postgres.slot_reader._CHANGES", 50)
    monkeypatch.setattr("minirt_connectors.postgres.slot_reader._LOG_BYTES", 10_000)
    source = changes(server, existing=False)
    [split] = source.plan_splits(1)
    with psycopg.connect(server.uri, autocommit=True) as connection:
        for number in range(1000, 1200):
            connection.execute("INSERT INTO notes VALUES (%s, 'one')", (number,))
    server.run("INSERT INTO notes SELECT n, 'all' FROM generate_series(1200, 2200) n")
    reader = source.open_split(split, None)
    found = read_until(reader, lambda found: len(found) >= 1201)
    reader.close()
    assert [record["key"]["id"] for record in found] == list(range(1000, 2201))


def set_live(server: Postgres, name: str, value: str) -> None:
    with psycopg.connect(server.uri, autocommit=True) as connection:
        connection.execute(f"ALTER SYSTEM SET {name} = {value}".encode())
        connection.execute("SELECT pg_reload_conf()")
    time.sleep(0.2)
