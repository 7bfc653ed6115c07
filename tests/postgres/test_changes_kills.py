"""SIGKILL of workers, coordinator and server while changes are read, and while others write.

For more of it, `-m tests.kills postgres-changes`.
"""

from __future__ import annotations

import json
import random
import signal
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.kills import Attempt
from tests.postgres.replica import Replica, forget, writing
from tests.postgres.server import Postgres
from tests.postgres.soaking import attempts_with_server
from tests.program_kills import Program, Striker, Struck, run_to_its_end

pytestmark = [pytest.mark.postgres, pytest.mark.processes]

ROWS, TRANSACTIONS = 1000, 80
EARLY = 2
"""So many kills of each run strike whatever the job does: most meet its begin."""
_SLOW_PAUSE_S = 0.3
"""Between transactions once there are enough: on a slow machine the job must catch up all the same."""
_LOG = 48 * 1024 * 1024
"""How much log there is from the begin of a run to its end: more than its transactions write."""

_JOB = """
import json, os, random, sys, time
import minirt as rt
from minirt_connectors.postgres import PostgresChangesSource, PostgresSink

class Lagging(PostgresChangesSource):
    def committed(self, offsets):
        if random.random() < 0.1:
            super().committed(offsets)

class Numbering(rt.KeyedProcess):
    count = rt.ValueState(0)

    def process(self, record, ctx):
        self.count.value += 1
        time.sleep(0.0003)
        yield {"number": self.count.value, "record": json.dumps(record)}

uri, storage, until = sys.argv[1:]
env = rt.Environment("killed", parallelism=os.getpid() % 3 + 1)
source = Lagging(uri, "changes", slot="killed", until=until, poll="20ms")
read = env.source(source, uid="changes").key_by(lambda record: 0)
read.process(Numbering(), uid="number").sink(PostgresSink(uri, "results"), uid="out")
env.execute(
    checkpointing=rt.Checkpointing(storage, interval="50ms", tolerable_failures=1000),
    restart=rt.Restart.fixed_delay(None, "10ms"),
    restore="latest",
)
"""
"""Each start has another parallelism: a slot is one split, which somebody else reads then.

The slot is often behind the checkpoint, as if calls were lost: what it gives again must be passed over.
"""


def run(server: Postgres, storage: Path, kills: int, seed: int, crashes: int = 0) -> Struck:
    """Run the job to its end while others write; processes are killed, and the server stops or crashes.

    The first kills strike the job while it begins. Nobody writes any more once all strikes are over.
    """
    _begin(server)
    [(until,)] = server.rows(f"SELECT (pg_current_wal_flush_lsn() + {_LOG})::text")
    chance = random.Random(seed)
    striker = Striker(
        storage,
        kills,
        chance,
        first=EARLY,
        crashes=crashes,
        crash=lambda: server.restart(chance.choice([signal.SIGINT, signal.SIGQUIT])),
    )
    with writing(server, random.Random(seed), pause_s=0.01) as written:

        def strike(program: Program) -> None:
            if written.committed > 2 * TRANSACTIONS:
                written.pause_s = _SLOW_PAUSE_S
            if not striker.done:
                striker.strike(program)
            elif written.committed > TRANSACTIONS and not written.stop.is_set():
                written.stop.set()
                written.join(30)
                _fill_log(server, until)

        run_to_its_end(_JOB, [server.uri, str(storage), until], storage, chance, strike)
    return striker.struck()


def judged(server: Postgres) -> tuple[int, int]:
    """How many rows differ between the tables and what was made of their changes; each must have fitted."""
    found = _results(server)
    assert [number for number, _ in found] == list(range(1, len(found) + 1))
    replica = Replica()
    replica.apply(record for _, record in found)
    tables = replica.of(server)
    assert replica.updates > 0
    lost = repeated = 0
    for name, rows in tables.items():
        own = replica.tables[name]
        lost += sum(own.get(id) != row for id, row in rows.items())
        repeated += len(own.keys() - rows.keys())
    return lost, repeated


def _results(server: Postgres) -> list[tuple[Any, ...]]:
    return server.rows("SELECT number, record::json FROM results ORDER BY number")


def _keep(server: Postgres, folder: Path) -> None:
    """Copy the results, and what the server has logged, into a folder."""
    server.keep(folder)
    with (folder / "results.jsonl").open("w") as results:
        results.writelines(json.dumps(row) + "\n" for row in _results(server))


def _begin(server: Postgres) -> None:
    """The tables, published as `changes`, and no slot."""
    _end(server)
    server.run(
        "CREATE TABLE results (number bigint, record text)",
        "CREATE TABLE accounts (id bigint PRIMARY KEY, owner text, version bigint NOT NULL)",
        "CREATE TABLE notes (id bigint PRIMARY KEY, body text)",
        "CREATE PUBLICATION changes FOR TABLE accounts, notes",
        f"INSERT INTO accounts SELECT n, 'owner', 0 FROM generate_series(1, {ROWS}) n",
    )


def _end(server: Postgres) -> None:
    forget(server)
    server.run(
        "DROP PUBLICATION IF EXISTS changes",
        "DROP TABLE IF EXISTS accounts, notes, results, minirt_commits",
    )


def _fill_log(server: Postgres, until: str) -> None:
    """Write messages that nobody reads, up to this place in the log."""
    with psycopg.connect(server.uri, autocommit=True) as connection:
        ahead = "SELECT pg_current_wal_flush_lsn() > %s::pg_lsn"
        while not connection.execute(ahead, (until,)).fetchone()[0]:  # type: ignore[index]
            connection.execute("SELECT pg_logical_emit_message(false, '', repeat('x', 1000000))")


def test_what_is_made_of_changes_is_the_table_whoever_is_killed(
    server: Postgres, tmp_path: Path
) -> None:
    try:
        struck = run(server, tmp_path / "chk", kills=5, seed=1, crashes=1)
        assert struck.shows_little is None
        assert judged(server) == (0, 0)
    except AssertionError:
        _keep(server, tmp_path / "server")
        raise
    finally:
        _end(server)


def attempts(_: str) -> AbstractContextManager[Attempt]:
    return attempts_with_server(run, judged, _keep)
