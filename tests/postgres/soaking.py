"""Runs of jobs on a PostgreSQL server of their own whose processes are killed, again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kills import Attempt, Outcome
from tests.postgres.server import Postgres, a_server
from tests.program_kills import Struck

Run = Callable[[Postgres, Path, int, int, int], Struck]
"""Of a server, a folder for checkpoints, how many kills, a seed, and how many crashes of the server."""


@contextmanager
def attempts_with_server(
    run: Run,
    judged: Callable[[Postgres], tuple[int, int]],
    keep: Callable[[Postgres, Path], object] = Postgres.keep,
) -> Iterator[Attempt]:
    """`keep` puts into a folder what may tell why a run has gone wrong."""
    with a_server() as server:

        def attempt(folder: Path, seed: int) -> Outcome:
            kept = True
            try:
                struck = run(server, folder / "chk", 12, seed, 2)
                lost, repeated = judged(server)
                kept = lost + repeated > 0
            finally:
                if kept:
                    keep(server, folder / "server")
            return struck, lost, repeated

        yield attempt
