"""A coordinator, or the server, dies at one exact place of a commit, such as between rows and ledger.

Kills at random moments rarely meet these places.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.needs import ROOT
from tests.postgres.server import Postgres

pytestmark = [pytest.mark.postgres, pytest.mark.processes]

RECORDS = 200

_JOB = """
import os, signal, sys, time
from contextlib import contextmanager
from pathlib import Path
import minirt as rt
from minirt_connectors.postgres import PostgresSink
from minirt_connectors.postgres.sink import PostgresConnection, _Transaction

uri, storage, place, who, mark, records = *sys.argv[1:5], Path(sys.argv[5]), int(sys.argv[6])

def die():
    if mark.exists():
        return
    mark.touch()
    if who == "coordinator":
        os.kill(os.getpid(), signal.SIGKILL)
    while mark.exists() and mark.read_text() != "the server is back":
        time.sleep(0.01)
    if place == "behind the commit":
        raise rt.StorageError("the answer is lost")

class Dying(_Transaction):
    def record(self, owner, entry):
        if entry.checkpoint_id and place == "between rows and ledger":
            die()
        super().record(owner, entry)
        self.commits = entry.checkpoint_id > 0

    def finish(self):
        super().finish()
        if getattr(self, "commits", False) and place == "between ledger and commit":
            die()

class DyingConnection(PostgresConnection):
    @contextmanager
    def transaction(self):
        with super().transaction() as transaction:
            yield transaction
        if getattr(transaction, "commits", False) and place == "behind the commit":
            die()

import minirt_connectors.postgres.sink as sink
sink._Transaction, sink.PostgresConnection = Dying, DyingConnection

def named(number):
    time.sleep(0.002)
    return {"id": number, "name": f"row {number}"}

env = rt.Environment("crashing", parallelism=2)
numbers = env.source(rt.SequenceSource(records, splits=2), uid="numbers")
numbers.map(named, uid="named").sink(PostgresSink(uri, "results"), uid="out")
env.execute(
    checkpointing=rt.Checkpointing(storage, interval="50ms", tolerable_failures=1000),
    restart=rt.Restart.fixed_delay(None, "10ms"),
    restore="latest",
)
"""

PLACES = ["between rows and ledger", "between ledger and commit", "behind the commit"]


@pytest.mark.parametrize("who", ["coordinator", "server"])
@pytest.mark.parametrize("place", PLACES)
def test_rows_and_ledger_show_together_or_not_at_all(
    server: Postgres, table: str, tmp_path: Path, place: str, who: str
) -> None:
    server.run("DROP TABLE IF EXISTS minirt_commits")
    mark = tmp_path / "mark"
    command = [sys.executable, "-c", _JOB, server.uri, str(tmp_path / "chk"), place, who]
    command += [str(mark), str(RECORDS)]
    with subprocess.Popen(command, cwd=ROOT) as job:
        try:
            end = time.monotonic() + 60
            while not mark.exists():
                assert job.poll() is None
                assert time.monotonic() < end, "no commit came to the place"
                time.sleep(0.01)
            if who == "server":
                server.restart(signal.SIGQUIT)
                _check(server, place)
                mark.write_text("the server is back")
                assert job.wait(60) == 0
            else:
                assert job.wait(60) == -signal.SIGKILL
                _check(server, place)
                subprocess.run(command, cwd=ROOT, check=True, timeout=60)
        finally:
            job.kill()
    counted = "SELECT count(*), count(DISTINCT id) FROM results"
    assert server.rows(counted) == [(RECORDS, RECORDS)]


def _check(server: Postgres, place: str) -> None:
    """What shows is as much as the ledger says: that of the first commit with rows, or nothing."""
    [(rows,)] = server.rows("SELECT count(*) FROM results")
    [(checkpoint_id,)] = server.rows("SELECT checkpoint_id FROM minirt_commits")
    assert (rows > 0) == (checkpoint_id > 0) == (place == "behind the commit")
