"""A job with a file sink and a ledger sink, for standbys: `python -m tests.operations.standby_job FOLDER`.

With `--files-only` it has no ledger, which would fence by itself. It goes on from its newest checkpoint.
With `--freeze-in-commit` its program stops itself between its look at the claims and a commit, and says so
by a file `frozen`; when it goes on and has committed, by another one, `late`.
"""

from __future__ import annotations

import argparse
import json
import signal
import sqlite3
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa

import minirt as rt
from minirt.io import Handle
from minirt_connectors.database import DatabaseSink

SCHEMA = pa.schema([("id", pa.int64())])
LEASE_S, LEASE_TIMEOUT_S = 0.1, 4.0
"""A busy machine must not make a job look dead."""


class FreezingSink(rt.JsonlSink):
    """Its third commit is one that a frozen program makes when it comes back."""

    signals: Path | None = None
    _commits = 0

    def commit(self, handles: Sequence[Handle]) -> None:
        if self.signals is None:
            super().commit(handles)
            return
        FreezingSink._commits += 1
        freezes = FreezingSink._commits == 3
        if freezes:
            (self.signals / "frozen").touch()
            # To its own thread, which else may run on for a moment: into the commit, or a transaction.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        super().commit(handles)
        if freezes:
            (self.signals / "late").touch()


def slowly(number: int) -> Mapping[str, Any]:
    time.sleep(0.004)
    return {"id": number}


def create(folder: Path) -> None:
    """What must be there before the job runs for the first time."""
    with closing(sqlite3.connect(folder / "results.db")) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE results (id integer)")


def is_locked(folder: Path) -> bool:
    """Whether somebody writes into the database of the ledger."""
    with closing(sqlite3.connect(folder / "results.db", timeout=0)) as db:
        try:
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
    return False


def in_database(folder: Path) -> list[int]:
    """The committed records."""
    with closing(sqlite3.connect(folder / "results.db", timeout=20)) as db:
        return [id for (id,) in db.execute("SELECT id FROM results")]


def in_files(folder: Path) -> list[int]:
    """Likewise."""
    files = sorted((folder / "files").glob("*.jsonl"))
    return [json.loads(line)["id"] for file in files for line in file.read_text().splitlines()]


def judged(found: Sequence[int], count: int) -> tuple[int, int]:
    """How many records are lost, and how many are there more than once."""
    return len(set(range(count)) - set(found)), sum(n - 1 for n in Counter(found).values())


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--freeze-in-commit", action="store_true")
    parser.add_argument("--files-only", action="store_true")
    parser.add_argument("--listen")
    parser.add_argument("--control")
    given = parser.parse_args(arguments)
    folder = given.folder
    files = FreezingSink(folder / "files")
    files.signals = folder if given.freeze_in_commit else None
    env = rt.Environment("watched", parallelism=2)
    rows = env.source(rt.SequenceSource(given.count, splits=2), uid="numbers").map(slowly)
    rows.sink(files, uid="files")
    if not given.files_only:
        database = {"database": str(folder / "results.db")}
        rows.sink(DatabaseSink("sqlite3", database, "results", SCHEMA), uid="database")
    env.execute(
        checkpointing=rt.Checkpointing(str(folder / "checkpoints"), interval="150ms"),
        restart=rt.Restart.fixed_delay(attempts=None, delay="10ms"),
        restore="latest",
        options=rt.Options(
            placement="slots",
            control=given.control,
            heartbeat_timeout="20s" if given.listen is None else "8s",
            limits=rt.Limits(lease_s=LEASE_S, lease_timeout_s=LEASE_TIMEOUT_S),
        ),
        cluster=None
        if given.listen is None
        else rt.HostCluster(given.listen, credentials=folder / "credentials"),
    )


if __name__ == "__main__":
    main(sys.argv[1:])
