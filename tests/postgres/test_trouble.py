"""What becomes of output when the table or the server is not as the job has found it."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import minirt as rt
from minirt.storage.store import ObjectStore
from minirt_connectors.postgres import PostgresSink
from minirt_connectors.postgres.server import CONNECT_TIMEOUT_S
from tests.coordinators import committer, prepared
from tests.disks import grow, small_disk
from tests.jobs import named_rows
from tests.postgres.server import Postgres
from tests.runtime.processes import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.processes]


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
