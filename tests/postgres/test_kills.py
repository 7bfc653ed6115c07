"""SIGKILL of workers, coordinator and server; for more, `-m tests.postgres.test_kills N`."""

from __future__ import annotations

import random
import signal
import sys
from pathlib import Path

import pytest

from tests.postgres.server import Postgres
from tests.postgres.soaking import soak_with_server
from tests.program_kills import Program, kill, run_to_its_end

pytestmark = [pytest.mark.postgres, pytest.mark.processes]

RECORDS = 3000

_JOB = """
import sys, time
import minirt as rt
from minirt_connectors.postgres import PostgresSink

def named(number):
    time.sleep(0.001)
    return {"id": number, "name": f"row {number}"}

uri, storage, records = sys.argv[1], sys.argv[2], int(sys.argv[3])
env = rt.Environment("killed", parallelism=2)
numbers = env.source(rt.SequenceSource(records, splits=4), uid="numbers")
numbers.map(named, uid="named").sink(PostgresSink(uri, "results"), uid="out")
env.execute(
    checkpointing=rt.Checkpointing(storage, interval="50ms", tolerable_failures=1000),
    restart=rt.Restart.fixed_delay(None, "10ms"),
    restore="latest",
)
"""


def run(server: Postgres, storage: Path, kills: int, seed: int, crashes: int = 0) -> int:
    """Run the job to its end, killing on the way; returns how often something was killed.

    In between the server is stopped or crashes so many times, and is started again.
    """
    server.run("DROP TABLE IF EXISTS results, minirt_commits")
    server.run("CREATE TABLE results (id bigint, name text)")
    chance, done = random.Random(seed), 0

    def strike(program: Program) -> None:
        nonlocal done, crashes
        if done < kills and chance.random() < 0.8 and program.poll() is None:
            done += kill(program, chance)
        elif crashes and done:
            server.restart(chance.choice([signal.SIGINT, signal.SIGQUIT]))
            crashes -= 1

    command = [sys.executable, "-c", _JOB, server.uri, str(storage), str(RECORDS)]
    run_to_its_end(command, chance, strike)
    return done


def judged(server: Postgres) -> tuple[int, int]:
    """How many records are lost, and how many are there more than once."""
    [(rows, ids)] = server.rows("SELECT count(*), count(DISTINCT id) FROM results")
    return RECORDS - ids, rows - ids


def test_nothing_is_lost_or_repeated_whoever_is_killed(server: Postgres, tmp_path: Path) -> None:
    assert run(server, tmp_path / "chk", kills=5, seed=1, crashes=1) > 0
    assert judged(server) == (0, 0)


if __name__ == "__main__":
    sys.exit(soak_with_server(int(sys.argv[1]), run, judged))
