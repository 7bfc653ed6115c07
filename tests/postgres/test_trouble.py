"""What becomes of output when the table or the server is not as the job has found it."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import minirt as rt
from minirt.storage.store import ObjectStore
from minirt_connectors.postgres import PostgresChangesSource, PostgresSink, PostgresSource
from minirt_connectors.postgres.server import CONNECT_TIMEOUT_S
from tests.coordinators import committer, prepared
from tests.disks import grow, small_disk
from tests.jobs import named_rows
from tests.postgres.server import Postgres
from tests.runtime.processes import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.processes]
READ = 50_000


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize(
    ("change", "message", "back"),
    [
        ("results ALTER id TYPE float8", "'id' is of type float8", "results ALTER id TYPE bigint"),
        ("results RENAME name TO title", "'name' is gone", "results RENAME title TO name"),
        ("results RENAME TO moved", "table .* is gone", "moved RENAME TO results"),
    ],
    ids=["type", "column", "table"],
)  # fmt: skip
def test_a_table_that_was_changed_takes_nothing_until_it_is_changed_back(
    server: Postgres, table: str, tmp_path: Path, change: str, message: str, back: str, mode: str
) -> None:
    """A double is as wide as a bigint: COPY would take the bits of the one for the other."""
    server.run("ALTER TABLE results ADD PRIMARY KEY (id)")
    staging = ObjectStore(str(tmp_path))
    upsert = {"mode": "upsert", "key": "id"} if mode == "upsert" else {}
    sink = PostgresSink(server.uri, table, **upsert)  # type: ignore[arg-type]
    commits = committer(sink, 1, staging)
    commits.commit(prepared(sink, 1, 1, staging, name="before"))
    waiting = prepared(sink, 2, 1, staging, name="behind")
    server.run(f"ALTER TABLE {change}")
    with pytest.raises(rt.SinkDataError, match=message):
        commits.commit(waiting)
    server.run(f"ALTER TABLE {back}")
    commits.commit(waiting)
    commits.close()
    rows = server.rows("SELECT id, name FROM results ORDER BY id")
    assert rows == [(1, "before"), (2, "behind")]


def test_columns_that_are_added_and_wider_texts_do_no_harm(
    server: Postgres, tmp_path: Path
) -> None:
    server.run("DROP TABLE IF EXISTS wide", "CREATE TABLE wide (id bigint, name varchar(9))")
    staging = ObjectStore(str(tmp_path))
    sink = PostgresSink(server.uri, "wide")
    commits = committer(sink, 1, staging)
    waiting = prepared(sink, 1, 1, staging, name="one")
    server.run("ALTER TABLE wide ALTER name TYPE text", "ALTER TABLE wide ADD more int")
    commits.commit(waiting)
    commits.close()
    assert server.rows("SELECT * FROM wide") == [(1, "one", None)]


def test_who_may_only_insert_can_write(server: Postgres, table: str, tmp_path: Path) -> None:
    sink = PostgresSink(server.uri, table)
    commits = committer(sink, 1, ObjectStore(str(tmp_path / "staged")))  # It makes the ledger.
    commits.close()
    server.run(
        "CREATE USER clerk",
        "GRANT INSERT ON results TO clerk",
        "GRANT SELECT, INSERT, UPDATE ON minirt_commits TO clerk",
    )
    try:
        own = PostgresSink(server.uri.replace("//minirt@", "//clerk@"), table)
        named_rows(own, 10, job="to-postgres").execute(
            checkpointing=rt.Checkpointing(tmp_path / "chk")
        )
        assert server.rows("SELECT count(*) FROM results") == [(10,)]
    finally:
        server.run("DROP OWNED BY clerk", "DROP USER clerk")


def ends(uri: str) -> list[rt.Source | rt.Sink]:
    return [
        PostgresSink(uri, "results"),
        PostgresSource(uri, "results", key="id"),
        PostgresChangesSource(uri, "changes", slot="nobody"),
    ]


def test_a_password_that_is_wrong_is_told_before_the_start_and_not_shown(
    server: Postgres, table: str
) -> None:
    server.ask_password("careful", "the-right-word")
    try:
        server.run(f"GRANT ALL ON {table} TO careful", "GRANT CREATE ON SCHEMA public TO careful")
        place = server.uri.rpartition("@")[2]
        PostgresSink(f"postgresql://careful:the-right-word@{place}", table).validate()
        for end in ends(f"postgresql://careful:some-other-word@{place}"):
            with pytest.raises(rt.ConfigurationError, match="password authentication") as caught:
                end.validate()
            assert "word@" not in str(caught.value)
            assert "some-other-word" not in str(caught.value)
    finally:
        server.run("DROP OWNED BY careful", "DROP USER careful")


def test_a_server_that_is_down_is_told_by_whoever_reads() -> None:
    for end in ends("postgresql://me:secret-word@127.0.0.1:1/db")[1:]:
        began = time.monotonic()
        with pytest.raises(rt.ConfigurationError, match=r"127\.0\.0\.1:1/db") as caught:
            end.validate()
        assert "secret-word" not in str(caught.value)
        assert time.monotonic() - began < 10


def test_a_source_without_its_table_is_refused(server: Postgres) -> None:
    with pytest.raises(rt.ConfigurationError, match="has no table"):
        PostgresSource(server.uri, "nowhere", key="id").validate()


def test_a_source_goes_on_when_its_server_comes_back(
    server: Postgres, table: str, tmp_path: Path
) -> None:
    server.run(
        f"ALTER TABLE {table} ADD PRIMARY KEY (id)",
        f"INSERT INTO {table} SELECT n, 'row ' || n FROM generate_series(1, {READ}) n",
    )
    env = rt.Environment("from-postgres", parallelism=2)
    rows = env.source(PostgresSource(server.uri, table, key="id"), uid="rows")
    rows.map(slowly, uid="slow").sink(rt.JsonlSink(tmp_path / "out"), uid="out")
    job = env.start(
        checkpointing=rt.Checkpointing(tmp_path / "chk", interval=0.1, tolerable_failures=1000),
        restart=rt.Restart.fixed_delay(None, 0.1),
    )
    wait_until(lambda: any((tmp_path / "out").rglob("*.jsonl")), "there is output", 60)
    server.restart(signal.SIGQUIT)
    result = job.wait(60)
    lines = [
        line
        for file in (tmp_path / "out").rglob("*.jsonl")
        for line in file.read_text().split("\n")[:-1]
    ]
    assert sorted(json.loads(line)["id"] for line in lines) == [*range(1, READ + 1)]
    assert result.restarts > 0


def slowly(row: dict[str, Any]) -> dict[str, Any]:
    time.sleep(0.0002)
    return row


def test_a_server_that_says_nothing_is_told_within_ten_seconds() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(rt.ConfigurationError, match=f"127.0.0.1:{port}.*timeout"):
            PostgresSink(f"postgresql://me@127.0.0.1:{port}/db?connect_timeout=2", "t").validate()
    assert CONNECT_TIMEOUT_S <= 9


@pytest.fixture
def disk() -> Iterator[Path]:
    with small_disk("256k") as place:
        shutil.chown(place, "nobody")
        yield place


def test_a_disk_that_is_full_is_waited_for(
    server: Postgres, tmp_path: Path, disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with psycopg.connect(server.uri, autocommit=True) as connection:
        connection.execute(f"CREATE TABLESPACE small LOCATION '{disk}'".encode())
    server.run("CREATE TABLE narrow (id bigint, name text) TABLESPACE small")
    try:
        job = named_rows(PostgresSink(server.uri, "narrow"), 20_000, job="to-postgres").start(
            checkpointing=rt.Checkpointing(tmp_path / "chk", interval=0.1, tolerable_failures=1000),
            restart=rt.Restart.fixed_delay(None, 0.1),
        )
        wait_until(
            lambda: "No space left" in caplog.text,
            "the job says that the disk is full",
            60,
        )
        grow(disk)
        job.wait(60)
        rows = server.rows("SELECT count(*), count(DISTINCT id) FROM narrow")
        assert rows == [(20_000, 20_000)]
    finally:
        server.run("DROP TABLE narrow")
        with psycopg.connect(server.uri, autocommit=True) as connection:
            connection.execute(b"DROP TABLESPACE small")
