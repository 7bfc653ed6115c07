"""The sink of any database, with SQLite, whose driver is part of Python."""

from __future__ import annotations

import io
import itertools
import math
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import minirt as rt
from minirt.data.batch import Rows
from minirt.io import Sink, SinkContext, SinkIdentity, Staging
from minirt.io.arrow_pieces import read_piece
from minirt.io.base import Committable, CommitterContext
from minirt.io.ledger import LedgerConnection
from minirt.storage.store import ObjectStore
from minirt.testing.contracts import SinkContract
from minirt.testing.sinks import SinkTrial, check_sink
from minirt.testing.sinks.lives import draw_life
from minirt.testing.sinks.world import play
from minirt_connectors.database import DatabaseSink
from minirt_connectors.database import sink as sink_module
from minirt_connectors.database.driver import Driver
from tests.coordinators import check_two_coordinators
from tests.jobs import named_rows
from tests.ledgers import Bent

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def create(path: Path, ddl: str = "id integer, name text") -> str:
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"CREATE TABLE results ({ddl})")
    return str(path)


def seen(path: str, query: str = "SELECT id, name FROM results ORDER BY rowid") -> list[Any]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(query).fetchall()


def sink_to(path: str, **options: Any) -> DatabaseSink:
    return DatabaseSink("sqlite3", {"database": path}, "results", SCHEMA, **options)


class TestContract(SinkContract):
    def never_taken(self) -> list[Any]:
        return [{"id": "seven", "name": "x"}, {"id": 2**63, "name": "x"}, {"id": 1, "name": 1.5}]

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.path = create(tmp_path / "results.db")
        self.store = ObjectStore(str(tmp_path / "staged"))

    def new_sink(self) -> Sink:
        sink = sink_to(self.path)
        sink.validate()
        return sink

    def visible(self, sink: Sink) -> list[Any]:
        return [{"id": id, "name": name} for id, name in seen(self.path)]

    def pending(self) -> list[str]:
        return list(self.store.list())

    def staging(self) -> Staging:
        return self.store


class SqliteTrial(SinkTrial):
    """Each life has a file of its own."""

    def __init__(self, folder: Path, kind: type[DatabaseSink] = DatabaseSink) -> None:
        self.folder, self.kind = folder, kind
        self.numbers = itertools.count()

    def begin(self) -> None:
        self.path = create(self.folder / f"{next(self.numbers)}.db")

    def sink(self) -> Sink:
        # A coordinator that was stopped in the middle keeps others from writing: do not wait for it.
        connect = {"database": self.path, "timeout": 0.0}
        return self.kind("sqlite3", connect, "results", SCHEMA)

    def visible(self) -> Sequence[int]:
        return [id for (id,) in seen(self.path, "SELECT id FROM results")]


def test_the_kit_finds_nothing(tmp_path: Path) -> None:
    check_sink(SqliteTrial(tmp_path), runs=30)


def test_of_two_coordinators_one_ends_with_an_error(tmp_path: Path) -> None:
    check_two_coordinators(SqliteTrial(tmp_path), ObjectStore(str(tmp_path / "staged")))


class Forgetful(DatabaseSink):
    """Does not find what the ledger says of checkpoints."""

    def connect(self) -> LedgerConnection:
        return Bent(super().connect(), lambda entry: replace(entry, checkpoint_id=0))


class Eager(DatabaseSink):
    """Finds that more is committed than was."""

    def connect(self) -> LedgerConnection:
        return Bent(
            super().connect(), lambda entry: replace(entry, checkpoint_id=entry.checkpoint_id + 1)
        )


@pytest.mark.parametrize("wrong", [Forgetful, Eager])
def test_the_kit_finds_mistakes(tmp_path: Path, wrong: type[DatabaseSink]) -> None:
    trial = SqliteTrial(tmp_path, wrong)
    assert any(play(draw_life(seed), trial).wrong for seed in range(30))


# Whole jobs.


@pytest.mark.processes
def test_a_job_writes_each_record_once(tmp_path: Path) -> None:
    path = create(tmp_path / "results.db")
    checkpointing = rt.Checkpointing(tmp_path / "chk", interval=0.1)
    named_rows(sink_to(path), 3000, job="to-database").execute(checkpointing=checkpointing)
    assert seen(path, "SELECT count(*), count(DISTINCT id) FROM results") == [(3000, 3000)]
    assert not list(ObjectStore(str(tmp_path / "chk" / "staged")).list())


def committed(sink: Sink, folder: Path, *records: Any) -> None:
    """One checkpoint of one writer."""
    staging = ObjectStore(str(folder / "staged"))
    identity = SinkIdentity("job", "out")
    writer = sink.open_writer(SinkContext(identity, "out", 0, 1, 1, staging))
    writer.write(Rows(list(records)))
    ready = writer.prepare(1)
    assert ready.finish is not None
    ready.finish()
    committer = sink.open_committer(CommitterContext(identity, "out", 1, staging))
    try:
        committer.commit([Committable(1, handle) for handle in ready.handles])
    finally:
        committer.close()


def test_a_statement_of_ones_own_updates_what_is_there(tmp_path: Path) -> None:
    path = create(tmp_path / "results.db", "id integer PRIMARY KEY, name text")
    statement = (
        "INSERT INTO results VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET name = excluded.name"
    )
    rows = [{"id": id, "name": name} for id, name in [(1, "a"), (2, "b"), (1, "c")]]
    committed(sink_to(path, statement=statement), tmp_path, *rows)
    assert sorted(seen(path)) == [(1, "c"), (2, "b")]


@pytest.mark.parametrize("style", ["qmark", "numeric", "named"])
def test_every_way_to_mark_values_that_sqlite_knows(
    tmp_path: Path, style: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "paramstyle", style)
    path = create(tmp_path / "results.db")
    committed(sink_to(path), tmp_path, {"id": 1, "name": "a"}, {"id": 2, "name": None})
    assert seen(path) == [(1, "a"), (2, None)]


def test_marks_of_drivers_that_take_percents(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver("sqlite3", {})
    monkeypatch.setattr(sqlite3, "paramstyle", "format")
    assert driver.marks(["id", "name"]) == ["%s", "%s"]
    monkeypatch.setattr(sqlite3, "paramstyle", "pyformat")
    assert driver.marks(["id", "name"]) == ["%(id)s", "%(name)s"]
    assert driver.parameters(["id", "name"], [(1, "a")]) == [{"id": 1, "name": "a"}]
    for own, taken in (
        ("INSERT INTO t VALUES (%s, %s)", (1, "a")),
        ("INSERT INTO t VALUES (%(id)s, %(name)s)", {"id": 1, "name": "a"}),
    ):
        assert driver.parameters(["id", "name"], [(1, "a")], own) == [taken]


# Bad input.


@pytest.mark.parametrize(
    ("driver", "connect", "table", "message"),
    [
        ("sqlite3", {"database": "{path}"}, "nowhere", "no such table"),
        ("sqlite3", {"database": "{path}"}, "results; DROP TABLE results", "quote"),
        ("sqlite3", {"database": "{path}", "datbase": 1}, "results", "datbase"),
        ("sqlite3", {"database": "/nowhere/at/all.db"}, "results", "unable to open"),
        ("json", {}, "results", "no driver of DB-API 2"),
        ("no_such_driver", {}, "results", "cannot be imported"),
    ],
)
def test_what_does_not_fit_is_refused_before_the_start(
    tmp_path: Path, driver: str, connect: dict[str, Any], table: str, message: str
) -> None:
    path = create(tmp_path / "results.db")
    connect = {name: path if value == "{path}" else value for name, value in connect.items()}
    with pytest.raises(rt.ConfigurationError, match=message):
        DatabaseSink(driver, connect, table, SCHEMA).validate()


def test_a_table_without_the_column_is_refused(tmp_path: Path) -> None:
    path = create(tmp_path / "results.db", "id integer")
    with pytest.raises(rt.ConfigurationError, match="name"):
        sink_to(path).validate()


def test_a_connection_that_commits_by_itself_is_refused(tmp_path: Path) -> None:
    connect = {"database": create(tmp_path / "results.db"), "isolation_level": None}
    sink = DatabaseSink("sqlite3", connect, "results", SCHEMA)
    with pytest.raises(rt.ConfigurationError, match="commits each statement by itself"):
        committed(sink, tmp_path, {"id": 1, "name": "a"})


def test_a_violated_constraint_is_an_error_of_the_data_and_changes_nothing(tmp_path: Path) -> None:
    path = create(tmp_path / "results.db", "id integer PRIMARY KEY, name text")
    rows = [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}]
    with pytest.raises(rt.SinkDataError, match="UNIQUE"):
        committed(sink_to(path), tmp_path, *rows)
    assert seen(path) == []


def test_secrets_are_not_in_messages() -> None:
    driver = Driver("sqlite3", {"password": "secret-word", "database": "/nowhere/x.db"})
    with pytest.raises(rt.MinirtError) as caught, driver.errors("cannot connect"):
        raise sqlite3.OperationalError("cannot log in with secret-word")
    assert "secret-word" not in str(caught.value) + repr(driver)


@pytest.mark.parametrize("type", [pa.float64(), pa.float32()], ids=str)
def test_nan_which_the_database_lacks_is_refused_or_null(tmp_path: Path, type: pa.DataType) -> None:
    path = create(tmp_path / "numbers.db", "id integer, x real")
    schema = pa.schema([("id", pa.int64()), ("x", type)])
    records = [{"id": n, "x": x} for n, x in enumerate([0.5, math.nan, None, math.inf, -0.0])]

    def staged(**options: Any) -> list[Any]:
        stream = io.BytesIO()
        sink = DatabaseSink("sqlite3", {"database": path}, "results", schema, **options)
        encoder = sink.encoding("out")(stream)
        encoder.write(Rows(records))
        encoder.finish()
        return [row["x"] for row in read_piece(stream.getvalue()).to_pylist()]

    with pytest.raises(rt.SinkDataError, match=r"out: column 'x' .*no NaN.*in record \{'id': 1, "):
        staged()
    assert staged(nan="null") == [0.5, None, None, math.inf, -0.0]
    with pytest.raises(rt.ConfigurationError, match="nan must be one of"):
        staged(nan="keep")


def test_nan_is_written_where_the_database_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_module, "rows", lambda *_: [(math.nan,)])
    schema = pa.schema([("x", pa.float64())])
    path = create(tmp_path / "numbers.db", "x real")
    stream = io.BytesIO()
    sink = DatabaseSink("sqlite3", {"database": path}, "results", schema)
    encoder = sink.encoding("out")(stream)
    encoder.write(Rows([{"x": math.nan}]))
    encoder.finish()
    assert math.isnan(read_piece(stream.getvalue()).to_pylist()[0]["x"])
