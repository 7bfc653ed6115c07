"""The sink of any database, by the driver psycopg, against a real server that also crashes under load.

SQLite has neither a server nor other sessions: here connections are lost in the middle of a commit.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import minirt as rt
from minirt.io.base import Sink, Staging
from minirt.storage.store import ObjectStore
from minirt.testing.contracts import SinkContract
from minirt.testing.sinks import SinkTrial, check_sink
from minirt_connectors.database import DatabaseSink
from tests.jobs import named_rows, updated_rows
from tests.postgres.server import Postgres

pytestmark = [pytest.mark.postgres, pytest.mark.processes]

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
UPSERT = "INSERT INTO results VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET name = excluded.name"


def sink_to(server: Postgres, **options: Any) -> DatabaseSink:
    return DatabaseSink("psycopg", {"conninfo": server.uri}, "results", SCHEMA, **options)


class TestContract(SinkContract):
    @pytest.fixture(autouse=True)
    def _place(self, server: Postgres, table: str, tmp_path: Path) -> None:
        self.server = server
        self.store = ObjectStore(str(tmp_path / "staged"))

    def new_sink(self) -> Sink:
        sink = sink_to(self.server)
        sink.validate()
        return sink

    def visible(self, sink: Sink) -> list[Any]:
        rows = self.server.rows("SELECT id, name FROM results ORDER BY ctid")
        return [{"id": id, "name": name} for id, name in rows]

    def pending(self) -> list[str]:
        return list(self.store.list())

    def staging(self) -> Staging:
        return self.store


class Trial(SinkTrial):
    def __init__(self, server: Postgres) -> None:
        self.server = server

    def begin(self) -> None:
        self.server.run("TRUNCATE results", "DROP TABLE IF EXISTS minirt_commits")

    def sink(self) -> Sink:
        return sink_to(self.server)

    def visible(self) -> Sequence[int]:
        return [id for (id,) in self.server.rows("SELECT id FROM results")]


def test_the_kit_finds_nothing(server: Postgres, table: str) -> None:
    check_sink(Trial(server), runs=4)


def run_while_the_server_crashes(server: Postgres, job: rt.Environment, folder: Path) -> None:
    def crash_twice() -> None:
        for _ in range(2):
            time.sleep(0.7)
            server.restart(signal.SIGQUIT)

    crashing = threading.Thread(target=crash_twice)
    crashing.start()
    try:
        job.execute(
            checkpointing=rt.Checkpointing(folder, interval="50ms", tolerable_failures=1000),
            restart=rt.Restart.fixed_delay(None, "100ms"),
        )
    finally:
        crashing.join()


def test_a_server_that_crashes_under_load_loses_and_repeats_nothing(
    server: Postgres, table: str, tmp_path: Path
) -> None:
    job = named_rows(sink_to(server), 2000, 0.001, job="to-database")
    run_while_the_server_crashes(server, job, tmp_path)
    assert server.rows("SELECT count(*), count(DISTINCT id) FROM results") == [(2000, 2000)]


def test_a_statement_of_ones_own_leaves_the_last_update_of_each_key(
    server: Postgres, table: str, tmp_path: Path
) -> None:
    server.run("ALTER TABLE results ADD PRIMARY KEY (id)")
    job = updated_rows(sink_to(server, statement=UPSERT), 600, 3, keys=8, job="to-database")
    run_while_the_server_crashes(server, job, tmp_path)
    last = {number % 8: f"row {number:06}" for number in range(600)}
    assert dict(server.rows("SELECT id, name FROM results")) == last
