"""What a checkpoint remembers of a database of any driver is compared with its ledger, here of SQLite."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import minirt as rt
from minirt.io import Sink, Staging
from minirt.storage.store import ObjectStore
from minirt.testing.contracts import SinkMemoryContract
from minirt_connectors.database import DatabaseSink

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


class TestDatabaseSink(SinkMemoryContract):
    @pytest.fixture(autouse=True)
    def _places(self, tmp_path: Path) -> None:
        self.path, self.kept = tmp_path / "t.db", tmp_path / "kept.db"
        self.store = ObjectStore(str(tmp_path / "staging"), None)
        with sqlite3.connect(self.path) as connection:
            connection.execute("CREATE TABLE results (id integer, name text)")
        connection.close()

    def new_sink(self, accept: Sequence[str]) -> Sink:
        where = {"database": str(self.path)}
        return DatabaseSink("sqlite3", where, "results", SCHEMA, accept=accept)  # type: ignore[arg-type]

    def staging(self) -> Staging:
        return self.store

    def keep(self) -> None:
        self._copied(self.path, self.kept)

    def go_back(self) -> None:
        self._copied(self.kept, self.path)

    def visible(self) -> list[Any]:
        connection = sqlite3.connect(self.path)
        found = [id for (id,) in connection.execute("SELECT id FROM results ORDER BY id")]
        connection.close()
        return found

    def _copied(self, source: Path, target: Path) -> None:
        """As sqlite3 does it: connections stay open."""
        if not target.exists():
            shutil.copy(source, target)
            return
        with sqlite3.connect(source) as one, sqlite3.connect(target) as other:
            one.backup(other)


class Slow(rt.Process):
    """Takes its time, so that checkpoints come in between."""

    def process(self, record: Any, ctx: Any) -> Any:
        time.sleep(0.003)
        yield {"id": record, "name": f"row {record}"}


def run(folder: Path, storage: str, restore: str | None, **options: Any) -> None:
    env = rt.Environment("numbers", parallelism=1)
    sink = DatabaseSink("sqlite3", {"database": str(folder / "t.db")}, "results", SCHEMA, **options)
    numbers = env.source(rt.CollectionSource(list(range(200))), uid="numbers")
    numbers.process(Slow(), uid="slow").sink(sink, uid="out")
    env.execute(
        checkpointing=rt.Checkpointing(str(folder / storage), interval="50ms"),
        restore=restore,
        restart=rt.Restart.none(),
        runner="inline",
    )


def committed(folder: Path) -> list[tuple[int, ...]]:
    connection = sqlite3.connect(folder / "t.db")
    found = connection.execute("SELECT checkpoint_id FROM minirt_commits").fetchall()
    connection.close()
    return found


def test_the_checkpoint_that_a_job_restores_knows_what_was_committed(tmp_path: Path) -> None:
    """Whichever program comes next: what it goes on from tells it."""
    with sqlite3.connect(tmp_path / "t.db") as connection:
        connection.execute("CREATE TABLE results (id integer, name text)")
    run(tmp_path, "checkpoints", None)
    [(newest,)] = committed(tmp_path)
    assert newest > 2, "there was no checkpoint in between"
    run(tmp_path, "checkpoints", "latest")
    with sqlite3.connect(tmp_path / "t.db") as connection:
        connection.execute("DELETE FROM results WHERE id > 3")
        connection.execute("UPDATE minirt_commits SET checkpoint_id = 1, written_by = 1")
    connection.close()
    with pytest.raises(
        rt.JobFailedError, match=r"the ledger knows checkpoint 1 .*accept=\"behind\""
    ):
        run(tmp_path, "checkpoints", "latest")
    run(tmp_path, "checkpoints", "latest", accept="behind")
    assert committed(tmp_path)[0][0] >= newest


def test_the_checkpoints_of_another_place_are_those_of_another_job(tmp_path: Path) -> None:
    """Storage that was moved: the ledger knows nothing of the job as it is called there."""
    with sqlite3.connect(tmp_path / "t.db") as connection:
        connection.execute("CREATE TABLE results (id integer, name text)")
    connection.close()
    run(tmp_path, "checkpoints", None)
    (tmp_path / "checkpoints").rename(tmp_path / "moved")
    run(tmp_path, "moved", "latest")
    assert len(committed(tmp_path)) == 2
