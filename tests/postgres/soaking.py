"""Kills processes of jobs on a PostgreSQL server of their own, again and again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.postgres.server import Postgres, programs
from tests.program_kills import Struck, soak
from tests.servers import running

Run = Callable[[Postgres, Path, int, int, int], Struck]
"""Of a server, a folder for checkpoints, how many kills, a seed, and how many crashes of the server."""


def soak_with_server(kills: int, run: Run, judged: Callable[[Postgres], tuple[int, int]]) -> int:
    """Run jobs until so many processes were killed; the exit status. The last line has the count."""
    bin = programs()
    if bin is None:
        print("no PostgreSQL server is installed: nobody was killed")
        return 0
    with running("postgres", lambda folder: Postgres(folder, bin)) as server:
        return soak(
            kills, lambda storage, seed: (run(server, storage, 12, seed, 2), *judged(server))
        )
