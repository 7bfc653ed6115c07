"""A custom sink: exactly once into a table of SQLite.

A writer keeps its rows until the snapshot, and then hands them over in a *handle*. Once the checkpoint
is complete, `commit` inserts the rows of each handle together with the name of the handle, in one
transaction. So a second commit of the same handle, after a crash, changes nothing.
tests/docs/test_custom_ends.py holds this sink to the contract of sinks.

Run it:  python examples/custom_sink.py
"""

from __future__ import annotations

import sqlite3
import tempfile
import uuid
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import minirt as rt


class TableSink(rt.Sink):
    """Inserts records like `{"id": 1, "name": "one"}` into the table `results`."""

    def __init__(self, path: str) -> None:
        self._path = path

    def on_fresh_start(self) -> None:
        with closing(sqlite3.connect(self._path)) as db:
            if db.execute("select 1 from sqlite_master where name = 'results'").fetchone():
                raise rt.ConfigurationError(f"{self._path} holds results of an earlier run")

    def open_writer(self, context: rt.SinkContext) -> rt.SinkWriter:
        return _TableWriter()

    def commit(self, handles: Sequence[dict[str, Any]]) -> None:
        with closing(sqlite3.connect(self._path)) as db:
            db.execute("create table if not exists results (id integer, name text)")
            db.execute("create table if not exists committed (handle text primary key)")
            for handle in handles:
                with db:  # one transaction
                    insert = "insert or ignore into committed values (?)"
                    if db.execute(insert, (handle["name"],)).rowcount:
                        db.executemany("insert into results values (?, ?)", handle["rows"])


class _TableWriter(rt.SinkWriter):
    def __init__(self) -> None:
        self._rows: list[Any] = []

    def write(self, batch: Any) -> None:
        self._rows += [[record["id"], record["name"]] for record in batch.rows().records]

    def prepare(self, checkpoint_id: int) -> rt.Prepared:
        rows, self._rows = self._rows, []
        return rt.Prepared([{"name": uuid.uuid4().hex, "rows": rows}] if rows else [])


def main() -> None:
    path = str(Path(tempfile.mkdtemp(prefix="custom-sink-")) / "results.db")
    env = rt.Environment("to-sqlite", parallelism=2)
    numbers = env.source(rt.SequenceSource(1000), uid="numbers")
    rows = numbers.map(lambda number: {"id": number, "name": f"number {number}"})
    rows.sink(TableSink(path), uid="results")
    env.execute()
    with closing(sqlite3.connect(path)) as db:
        print(*db.execute("select count(*), count(distinct id), sum(id) from results").fetchone())


if __name__ == "__main__":
    main()
