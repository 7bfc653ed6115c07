"""A custom source: replays a table of SQLite by row id.

Reading a split again from the same offset gives the same records in the same order. All that minirt
promises rests on that. tests/docs/test_custom_ends.py holds this source to the contract of sources.

Run it:  python examples/custom_source.py
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import minirt as rt


class TableSource(rt.Source):
    """Reads the table `log (id integer primary key, level, text)` in splits of `rows` ids."""

    def __init__(self, path: str, rows: int = 1000) -> None:
        self._path = path
        self._rows = rows

    def plan_splits(self, parallelism: int) -> Sequence[rt.Split]:
        with closing(sqlite3.connect(self._path)) as db:
            last = db.execute("select coalesce(max(id), 0) from log").fetchone()[0]
        starts = range(1, last + 1, self._rows)
        return [rt.Split(f"from-{n}", {"start": n, "end": n + self._rows}) for n in starts]

    def open_split(self, split: rt.Split, offset: Any) -> rt.SplitReader:
        return _TableReader(self._path, split, offset)


class _TableReader(rt.SplitReader):
    """Its offset is the next id."""

    def __init__(self, path: str, split: rt.Split, offset: Any) -> None:
        self.offset = split.info["start"] if offset is None else offset
        self._end = split.info["end"]
        self._db = sqlite3.connect(path)

    def read(self) -> list[Any] | None:
        rows = self._db.execute(
            "select id, level, text from log where id >= ? and id < ? order by id limit 500",
            (self.offset, self._end),
        ).fetchall()
        if not rows:
            return None
        self.offset = rows[-1][0] + 1
        return [{"id": id, "level": level, "text": text} for id, level, text in rows]

    def close(self) -> None:
        self._db.close()


def fill(path: str, rows: int) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("create table log (id integer primary key, level text, text text)")
        log = [("error" if n % 10 == 0 else "info", f"line {n}") for n in range(rows)]
        db.executemany("insert into log (level, text) values (?, ?)", log)


def main() -> None:
    path = str(Path(tempfile.mkdtemp(prefix="custom-source-")) / "log.db")
    fill(path, 2500)
    env = rt.Environment("log", parallelism=2)
    errors = rt.CollectSink()
    log = env.source(TableSource(path), uid="log")
    log.filter(lambda row: row["level"] == "error").sink(errors, uid="errors")
    env.execute()
    print(len(errors.rows), "errors, the first one:", min(row["text"] for row in errors.rows))


if __name__ == "__main__":
    main()
