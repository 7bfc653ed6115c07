"""SIGKILL of workers and coordinator against a real server; for more, `-m tests.postgres.test_kills N`."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from tests.needs import ROOT
from tests.postgres.server import Postgres, programs

pytestmark = [pytest.mark.postgres, pytest.mark.processes]

RECORDS = 3000
_RUN_S_MAX = 240

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
    checkpointing=rt.Checkpointing(storage, interval="50ms"),
    restart=rt.Restart.fixed_delay(None, "10ms"),
    restore="latest",
)
"""


def run(server: Postgres, storage: Path, kills: int, seed: int) -> int:
    """Run the job to its end, killing on the way; returns how often something was killed."""
    server.run("DROP TABLE IF EXISTS results, minirt_commits")
    server.run("CREATE TABLE results (id bigint, name text)")
    chance, done, end = random.Random(seed), 0, time.monotonic() + _RUN_S_MAX
    command = [sys.executable, "-c", _JOB, server.uri, str(storage), str(RECORDS)]
    while time.monotonic() < end:
        with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as program:
            while program.poll() is None:
                if time.monotonic() > end:
                    program.kill()
                    break
                time.sleep(chance.uniform(0.05, 0.8))
                if done < kills and program.poll() is None:
                    done += kill(program, chance)
            said = program.stderr.read() if program.stderr else ""
        if program.returncode == 0:
            return done
        assert program.returncode == -signal.SIGKILL, said
    raise AssertionError(f"the job did not end within {_RUN_S_MAX} s")


def kill(program: subprocess.Popen[str], chance: random.Random) -> int:
    """Kill the coordinator, or one of the processes that it has started."""
    if chance.random() < 0.3:
        program.kill()
        return 1
    try:
        started = psutil.Process(program.pid).children(recursive=True)
        if not started:
            return 0
        chance.choice(started).kill()
    except psutil.NoSuchProcess:
        return 0
    return 1


def judged(server: Postgres) -> tuple[int, int]:
    """How many records are lost, and how many are there more than once."""
    [(rows, ids)] = server.rows("SELECT count(*), count(DISTINCT id) FROM results")
    return RECORDS - ids, rows - ids


def test_nothing_is_lost_or_repeated_whoever_is_killed(server: Postgres, tmp_path: Path) -> None:
    assert run(server, tmp_path / "chk", kills=5, seed=1) > 0
    assert judged(server) == (0, 0)


def soak(kills: int) -> None:
    """Run jobs until so many processes were killed; the last line has the count."""
    bin = programs()
    if bin is None:
        print("no PostgreSQL server is installed: nobody was killed")
        return
    folder = Path(tempfile.mkdtemp(prefix="minirt-postgres-"))
    server = Postgres(folder, bin)
    storages = Path(tempfile.mkdtemp(prefix="minirt-kills-"))
    killed = lost = repeated = seed = 0
    try:
        while killed < kills:
            killed += run(server, storages / str(seed), kills=12, seed=seed)
            one_lost, one_repeated = judged(server)
            lost, repeated, seed = lost + one_lost, repeated + one_repeated, seed + 1
            print(f"{killed} kills in {seed} runs: {lost} lost, {repeated} repeated", flush=True)
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(storages, ignore_errors=True)
    sys.exit(1 if lost or repeated else 0)


if __name__ == "__main__":
    soak(int(sys.argv[1]))
