"""The PostgreSQL sink against a real server, read back with psycopg."""

from __future__ import annotations

import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import minirt as rt
from minirt.data.batch import Rows
from minirt.errors import SinkDataError
from minirt.storage.store import ObjectStore
from minirt.testing.sinks import check_sink
from minirt_connectors.postgres import PostgresSink
from minirt_connectors.postgres.sink import TableColumns
from tests.campaigns import soaked
from tests.coordinators import check_two_coordinators
from tests.jobs import named_rows
from tests.postgres.results import ResultsContract, ResultsTrial, restarting
from tests.postgres.server import Postgres

pytestmark = [pytest.mark.postgres, pytest.mark.processes]


def sink_to(server: Postgres) -> PostgresSink:
    return PostgresSink(server.uri, "results")


class TestContract(ResultsContract):
    def sink_to(self, server: Postgres) -> PostgresSink:
        return sink_to(server)


def test_the_kit_finds_nothing(server: Postgres, table: str) -> None:
    check_sink(ResultsTrial(server, sink_to), runs=8)


@pytest.mark.parametrize("options", [{}, {"mode": "upsert", "key": "id"}], ids=["append", "upsert"])
def test_of_two_coordinators_one_ends_with_an_error(
    server: Postgres, table: str, tmp_path: Path, options: dict[str, Any]
) -> None:
    server.run("ALTER TABLE results ADD PRIMARY KEY (id)")
    trial = ResultsTrial(server, lambda server: PostgresSink(server.uri, table, **options))
    check_two_coordinators(trial, ObjectStore(str(tmp_path)))


def test_a_job_writes_each_record_once(server: Postgres, table: str, tmp_path: Path) -> None:
    checkpointing = rt.Checkpointing(tmp_path / "chk", interval=0.2)
    named_rows(PostgresSink(server.uri, table), 5000, job="to-postgres").execute(
        checkpointing=checkpointing
    )
    assert server.rows("SELECT count(*), count(DISTINCT id) FROM results") == [(5000, 5000)]
    assert not list(ObjectStore(str(tmp_path / "chk" / "staged")).list())


def test_a_text_that_no_table_can_hold_is_refused_when_it_is_written() -> None:
    """Its commit would fail whatever is done about the table."""
    columns = TableColumns("out", pa.schema([("id", pa.int64()), ("name", pa.string())]))
    columns.encode(Rows([{"id": 1, "name": "a"}, {"id": 2, "name": None}]))
    with pytest.raises(SinkDataError, match=r"out: column 'name': .*U\+0000; in record .*'id': 3"):
        columns.encode(Rows([{"id": 1, "name": "a"}, {"id": 3, "name": "b\0"}]))


@pytest.mark.parametrize(
    "how", [signal.SIGQUIT, *soaked(signal.SIGINT)], ids=["crashed", "stopped"]
)
def test_a_server_that_restarts_under_load_loses_and_repeats_nothing(
    server: Postgres, table: str, tmp_path: Path, how: signal.Signals
) -> None:
    checkpointing = rt.Checkpointing(tmp_path / "chk", interval=0.1, tolerable_failures=1000)
    with restarting(server, how, 1.0, tmp_path / "chk"):
        named_rows(PostgresSink(server.uri, table), 4000, 0.001, job="to-postgres").execute(
            checkpointing=checkpointing, restart=rt.Restart.fixed_delay(None, 0.1)
        )
    assert server.rows("SELECT count(*), count(DISTINCT id) FROM results") == [(4000, 4000)]


def test_upserts_keep_the_last_record_of_each_key(server: Postgres, tmp_path: Path) -> None:
    server.run(
        "DROP TABLE IF EXISTS totals", "CREATE TABLE totals (word text PRIMARY KEY, total bigint)"
    )
    words = [f"w{n % 7}" for n in range(700)]
    env = rt.Environment("totals", parallelism=2)
    counted = env.source(rt.CollectionSource(words, splits=4), uid="words").key_by(lambda w: w)
    sink = PostgresSink(server.uri, "totals", mode="upsert", key="word")
    counted.process(Counting(), uid="count").sink(sink, uid="out")
    env.execute(checkpointing=rt.Checkpointing(tmp_path / "chk", interval=0.1))
    assert dict(server.rows("SELECT word, total FROM totals")) == dict(Counter(words))


class Counting(rt.KeyedProcess):
    total = rt.ValueState(0)

    def process(self, record: str, ctx: Any) -> Any:
        self.total.value += 1
        yield {"word": record, "total": self.total.value}


# Bad input.


def test_a_server_that_is_down_is_told_at_once(tmp_path: Path) -> None:
    began = time.monotonic()
    sink = PostgresSink("postgresql://me:secret-word@127.0.0.1:1/db", "results")
    with pytest.raises(rt.ConfigurationError, match=r"127\.0\.0\.1:1/db") as caught:
        named_rows(sink, 10, job="to-postgres").execute(
            checkpointing=rt.Checkpointing(tmp_path / "chk")
        )
    assert "secret-word" not in str(caught.value)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("ddl", "options", "message"),
    [
        ("id bigint", {"columns": ["id", "name"]}, "no column 'name'"),
        ("id bigint, name jsonb", {}, "jsonb"),
        ("id bigint, name text, more int NOT NULL", {"columns": ["id", "name"]}, "must not be null"),
        ("id bigint, name text", {"mode": "upsert", "key": "id"}, "no unique index"),
    ],
)  # fmt: skip
def test_a_table_that_does_not_fit_is_refused_before_the_start(
    server: Postgres, ddl: str, options: dict[str, Any], message: str
) -> None:
    server.run("DROP TABLE IF EXISTS other", f"CREATE TABLE other ({ddl})")
    with pytest.raises(rt.ConfigurationError, match=message):
        PostgresSink(server.uri, "other", **options).validate()


def test_a_table_that_is_missing_is_refused(server: Postgres) -> None:
    with pytest.raises(rt.ConfigurationError, match="has no table"):
        PostgresSink(server.uri, "nowhere").validate()


def test_a_job_without_checkpoints_is_told_what_it_needs(server: Postgres, table: str) -> None:
    with pytest.raises(rt.ConfigurationError, match="Checkpointing"):
        named_rows(PostgresSink(server.uri, table), 10, job="to-postgres").execute()


def test_a_unique_violation_ends_the_job_and_output_waits_for_its_mending(
    server: Postgres, table: str, tmp_path: Path
) -> None:
    server.run("ALTER TABLE results ADD PRIMARY KEY (id)", "INSERT INTO results VALUES (7, 'mine')")
    checkpointing = rt.Checkpointing(tmp_path / "chk", interval=0.1)
    with pytest.raises(rt.JobFailedError, match="results_pkey"):
        named_rows(PostgresSink(server.uri, table), 100, job="to-postgres").execute(
            checkpointing=checkpointing, restart=rt.Restart.fixed_delay(None, 0.1)
        )
    assert server.rows("SELECT name FROM results WHERE id = 7") == [("mine",)]
    server.run("DELETE FROM results WHERE name = 'mine'")
    named_rows(PostgresSink(server.uri, table), 100, job="to-postgres").execute(
        checkpointing=checkpointing, restore="latest"
    )
    assert server.rows("SELECT count(*), count(DISTINCT id) FROM results") == [(100, 100)]


def test_a_record_of_a_wrong_type_is_named(server: Postgres, table: str, tmp_path: Path) -> None:
    env = rt.Environment("wrong")
    records = [{"id": "seven", "name": "x"}]
    env.source(rt.CollectionSource(records), uid="s").sink(
        PostgresSink(server.uri, table), uid="out"
    )
    with pytest.raises(rt.MinirtError, match="column 'id'"):
        env.execute(
            runner="inline",
            checkpointing=rt.Checkpointing(tmp_path / "chk"),
            restart=rt.Restart.none(),
        )
