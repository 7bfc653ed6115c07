"""SIGKILL of workers and coordinator while tables are written.

For more of it, `-m tests.kills delta delta-merge iceberg sqlite`.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.kills import Attempt, Outcome
from tests.program_kills import Striker, run_to_its_end
from tests.tables.duck import delta_rows

pytestmark = pytest.mark.processes

RECORDS = 800
KEYS = 8
"""Of rows that are updated."""
_PAUSE_MS = 8
"""Of each record: a run lasts so long that the job completes many checkpoints between two kills."""

_JOB = """
import sys
import pyarrow as pa
import minirt as rt
from tests.jobs import named_rows, updated_rows
{imports}

table, storage, records = sys.argv[1], sys.argv[2], int(sys.argv[3])
schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
{rows}.execute(
    checkpointing=rt.Checkpointing(storage, interval="50ms"),
    restart=rt.Restart.fixed_delay(None, "10ms"),
    restore="latest",
)
"""


@dataclass(frozen=True)
class Kind:
    """A sink under test: its program, what must be there before, and who reads its table."""

    imports: str
    sink: str
    prepare: Callable[[Path], None]
    count: Callable[[Path, int], tuple[int, int]]
    """How many of so many records the table lacks, and how many it has twice."""
    rows: str = f'named_rows({{sink}}, records, {_PAUSE_MS / 1000}, job="killed")'


def _nothing(table: Path) -> None:
    """The sink creates it."""


def _database(table: Path) -> None:
    table.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(table)) as db:
        db.execute("CREATE TABLE t (id integer, name text)")


def _counted(
    read: Callable[[Path, str], list[tuple[Any, ...]]],
) -> Callable[[Path, int], tuple[int, int]]:
    def count(table: Path, records: int) -> tuple[int, int]:
        [(rows, ids)] = read(table, "SELECT count(*), count(DISTINCT id) FROM t")
        return records - ids, rows - ids

    return count


def _database_rows(table: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(table)) as db:
        return db.execute(query).fetchall()


def _merged(table: Path, records: int) -> tuple[int, int]:
    """How many keys lack their last update, and how often a version took a key back to an older one."""
    newest = DeltaTable(str(table)).version()
    before: dict[int, str] = {}
    taken_back = 0
    for version in range(newest + 1):
        rows = pa.table(DeltaTable(str(table), version=version).to_pyarrow_table()).to_pylist()
        found = {row["id"]: row["name"] for row in rows}
        assert len(found) == len(rows), f"version {version} has a key twice"
        taken_back += sum(found.get(id, "") < name for id, name in before.items())
        before = found
    last = {number % KEYS: f"row {number:06}" for number in range(records)}
    return sum(before.get(id) != name for id, name in last.items()), taken_back


def _iceberg(table: Path) -> None:
    pytest.importorskip("pyiceberg", reason="the extra iceberg is not installed")
    from tests.tables.test_iceberg import Place

    Place(table).create()


def _iceberg_rows(table: Path, query: str) -> list[tuple[Any, ...]]:
    from tests.tables.test_iceberg import Place

    return Place(table).rows(query)


KINDS = {
    "iceberg": Kind(
        "from pathlib import Path\nfrom tests.tables.test_iceberg import Place",
        "Place(Path(table)).sink()",
        _iceberg,
        _counted(_iceberg_rows),
    ),
    "delta": Kind(
        "from minirt_connectors.delta import DeltaSink",
        "DeltaSink(table, schema=schema)",
        _nothing,
        _counted(delta_rows),
    ),
    "delta-merge": Kind(
        "from minirt_connectors.delta import DeltaSink",
        'DeltaSink(table, mode="merge", key="id", schema=schema)',
        _nothing,
        _merged,
        f'updated_rows({{sink}}, records, {_PAUSE_MS // 2}, keys={KEYS}, job="killed")',
    ),
    "sqlite": Kind(
        "from minirt_connectors.database import DatabaseSink",
        'DatabaseSink("sqlite3", {"database": table}, "t", schema)',
        _database,
        _counted(_database_rows),
    ),
}


def run(kind: Kind, folder: Path, kills: int, seed: int) -> Outcome:
    """Run a job to its end, killing on the way."""
    chance = random.Random(seed)
    table, storage = folder / "table", folder / "chk"
    kind.prepare(table)
    job = _JOB.replace("{imports}", kind.imports).replace("{rows}", kind.rows)
    job = job.replace("{sink}", kind.sink)
    striker = Striker(storage, kills, chance)
    run_to_its_end(job, [str(table), str(storage), str(RECORDS)], storage, chance, striker.strike)
    return striker.struck(), *kind.count(table, RECORDS)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[pytest.mark.soak] if name == "delta-merge" else [], id=name)
        for name, kind in KINDS.items()
    ],
)
def test_nothing_is_lost_or_repeated_whoever_is_killed(tmp_path: Path, kind: Kind) -> None:
    struck, lost, repeated = run(kind, tmp_path, kills=3, seed=1)
    assert struck.shows_little is None
    assert (lost, repeated) == (0, 0)


@contextmanager
def attempts(kind: str) -> Iterator[Attempt]:
    yield lambda folder, seed: run(KINDS[kind], folder, 12, seed)
