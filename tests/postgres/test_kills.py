"""SIGKILL of workers, coordinator and server; more by `tests.kills postgres postgres-upsert database`."""

from __future__ import annotations

import random
import signal
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from tests.kills import Attempt
from tests.postgres.server import Postgres
from tests.postgres.soaking import attempts_with_server
from tests.program_kills import Striker, Struck, run_to_its_end

pytestmark = [pytest.mark.postgres, pytest.mark.processes]

RECORDS, KEYS = 3000, 100
_PAUSE_S = 0.002
"""Of each record: a run lasts so long that the job completes many checkpoints between two kills."""

_JOB = """
import sys, time
import minirt as rt
from minirt_connectors.postgres import PostgresSink

uri, storage, records, keys, pause_s = *sys.argv[1:3], *map(int, sys.argv[3:5]), float(sys.argv[5])

def named(number):
    time.sleep(pause_s)
    return {"id": number, "name": f"row {number}"}

def of_key(number):
    time.sleep(pause_s)
    return {"id": number % keys}

env = rt.Environment("killed", parallelism=2)
numbers = env.source(rt.SequenceSource(records, splits=4), uid="numbers")
{results}
env.execute(
    checkpointing=rt.Checkpointing(storage, interval="50ms", tolerable_failures=1000),
    restart=rt.Restart.fixed_delay(None, "10ms"),
    restore="latest",
)
"""


@dataclass(frozen=True)
class Mode:
    """A mode of the sink: what the job writes, into which table, and how many are lost and repeated."""

    results: str
    columns: str
    judge: str

    @property
    def job(self) -> str:
        return _JOB.replace("{results}", self.results)


MODES = {
    "append": Mode(
        'numbers.map(named, uid="named").sink(PostgresSink(uri, "results"), uid="out")',
        "id bigint, name text",
        f"SELECT {RECORDS} - count(DISTINCT id), count(*) - count(DISTINCT id) FROM results",
    ),
    "upsert": Mode(
        'counts = numbers.map(of_key, uid="of").key_by("id").aggregate(rt.Count("n"), uid="counts")\n'
        'counts.sink(PostgresSink(uri, "results", mode="upsert", key="id"), uid="out")',
        "id bigint PRIMARY KEY, n bigint",
        f"SELECT sum(greatest({RECORDS // KEYS} - coalesce(n, 0), 0)), "
        f"sum(greatest(n - {RECORDS // KEYS}, 0)) "
        f"FROM generate_series(0, {KEYS - 1}) key LEFT JOIN results ON key = id",
    ),
}
MODES["database"] = replace(
    MODES["append"],
    results="from minirt_connectors.database import DatabaseSink\n"
    "import pyarrow as pa\n"
    'schema = pa.schema([("id", pa.int64()), ("name", pa.string())])\n'
    'sink = DatabaseSink("psycopg", {"conninfo": uri}, "results", schema)\n'
    'numbers.map(named, uid="named").sink(sink, uid="out")',
)


def run(
    server: Postgres, storage: Path, kills: int, seed: int, crashes: int = 0, *, mode: Mode
) -> Struck:
    """Run the job to its end; on the way processes are killed, and the server is stopped or crashes."""
    server.run("DROP TABLE IF EXISTS results, minirt_commits")
    server.run(f"CREATE TABLE results ({mode.columns})")
    chance = random.Random(seed)
    striker = Striker(
        storage,
        kills,
        chance,
        crashes=crashes,
        crash=lambda: server.restart(chance.choice([signal.SIGINT, signal.SIGQUIT])),
    )
    arguments = [server.uri, str(storage), str(RECORDS), str(KEYS), str(_PAUSE_S)]
    run_to_its_end(mode.job, arguments, storage, chance, striker.strike)
    return striker.struck()


def judged(server: Postgres, *, mode: Mode) -> tuple[int, int]:
    """How many records are lost, and how many are there, or were counted, more than once."""
    [(lost, repeated)] = server.rows(mode.judge)
    return int(lost), int(repeated)


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(mode, marks=[] if name == "append" else [pytest.mark.soak], id=name)
        for name, mode in MODES.items()
    ],
)
def test_nothing_is_lost_or_repeated_whoever_is_killed(
    server: Postgres, tmp_path: Path, mode: Mode
) -> None:
    struck = run(server, tmp_path / "chk", kills=5, seed=1, crashes=1, mode=mode)
    assert struck.shows_little is None
    assert judged(server, mode=mode) == (0, 0)


def attempts(mode: str) -> AbstractContextManager[Attempt]:
    return attempts_with_server(partial(run, mode=MODES[mode]), partial(judged, mode=MODES[mode]))
