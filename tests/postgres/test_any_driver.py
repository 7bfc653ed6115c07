"""The sink of any database, by the driver psycopg, against a real server that also crashes under load.

SQLite has neither a server nor other sessions: here connections are lost in the middle of a commit.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import minirt as rt
from minirt.storage.store import ObjectStore
from minirt.testing.sinks import check_sink
from minirt_connectors.database import DatabaseSink
from minirt_connectors.postgres import PostgresSink
from tests.coordinators import check_two_coordinators
from tests.jobs import named_rows, updated_rows
from tests.postgres.results import ResultsContract, ResultsTrial, restarting
from tests.postgres.server import Postgres

pytestmark = [pytest.mark.postgres, pytest.mark.processes]

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
UPSERT = "INSERT INTO results VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET name = excluded.name"


def sink_to(server: Postgres, **options: Any) -> DatabaseSink:
    return DatabaseSink("psycopg", {"conninfo": server.uri}, "results", SCHEMA, **options)


class TestContract(ResultsContract):
    def sink_to(self, server: Postgres) -> DatabaseSink:
        return sink_to(server)


def test_the_kit_finds_nothing(server: Postgres, table: str) -> None:
    check_sink(ResultsTrial(server, sink_to), runs=4)


def test_of_two_coordinators_one_ends_with_an_error(
    server: Postgres, table: str, tmp_path: Path
) -> None:
    check_two_coordinators(ResultsTrial(server, sink_to), ObjectStore(str(tmp_path)))


@pytest.mark.parametrize("first", ["database", "postgres"])
def test_both_sinks_may_write_into_one_database(
    first: str, server: Postgres, table: str, tmp_path: Path
) -> None:
    """They share its ledger, whichever of them has made it."""
    sinks: dict[str, rt.Sink] = {
        "database": sink_to(server),
        "postgres": PostgresSink(server.uri, table),
    }
    for name in sorted(sinks, key=lambda name: name != first):
        checkpointing = rt.Checkpointing(tmp_path / name, interval=0.2)
        named_rows(sinks[name], 50, job=f"to-{name}").execute(checkpointing=checkpointing)
    assert server.rows("SELECT count(*), count(DISTINCT id) FROM results") == [(100, 50)]
    assert server.rows("SELECT count(*) FROM minirt_commits WHERE checkpoint_id > 0") == [(2,)]


def run_while_the_server_crashes(server: Postgres, job: rt.Environment, folder: Path) -> None:
    with restarting(server, signal.SIGQUIT, 0.7, folder):
        job.execute(
            checkpointing=rt.Checkpointing(folder, interval="50ms", tolerable_failures=1000),
            restart=rt.Restart.fixed_delay(None, "100ms"),
        )


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
