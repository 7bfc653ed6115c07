"""Campaigns of SIGKILL for every sink beside its real server.

    python -m tests.kills --kills 200 --json FILE

Each run of a job is a line of FILE as soon as it is over, so the same command goes on from where it was
stopped. The campaigns take turns: all have come about as far whenever somebody looks. The table at the end
counts what FILE holds; `--kills 0` prints it and runs nothing. Names behind the options choose campaigns.

The exit status is 1 if anything was lost or repeated or a run failed, and 2 if a campaign shows little.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.needs import ROOT
from tests.program_kills import Struck
from tests.warm_processes import warm_processes

Outcome = tuple[Struck, int, int]
"""Of a run: what it has met, how many records are lost, and how many are there more than once."""
Attempt = Callable[[Path, int], Outcome]
"""Runs a job once: with an empty folder, which is kept if anything is wrong, and a seed."""

CAMPAIGNS = {
    "kafka": ("tests.kafka.test_kills", "exactly_once"),
    "kafka-direct": ("tests.kafka.test_kills", "direct"),
    "postgres": ("tests.postgres.test_kills", "append"),
    "postgres-upsert": ("tests.postgres.test_kills", "upsert"),
    "postgres-changes": ("tests.postgres.test_changes_kills", "changes"),
    "database": ("tests.postgres.test_kills", "database"),
    "sqlite": ("tests.tables.test_kills", "sqlite"),
    "delta": ("tests.tables.test_kills", "delta"),
    "delta-merge": ("tests.tables.test_kills", "delta-merge"),
    "iceberg": ("tests.tables.test_kills", "iceberg"),
}
"""The module of each, whose `attempts(NAME)` starts the server and makes an `Attempt`, and that name."""

_TURN_KILLS = 40
"""So many a campaign has before the next one has its turn."""
_FAILED_IN_A_ROW_MAX = 3


@dataclass(frozen=True, slots=True)
class Run:
    """A run that is over: a line of the file."""

    campaign: str
    seed: int
    struck: Struck
    lost: int
    repeated: int
    seconds: float
    version: str
    """Of minirt, as git names it."""
    error: str | None = None
    """Why the run failed, if it came to no end that could be judged."""
    kept: str | None = None
    """The folder that tells more, if anything is wrong."""

    @staticmethod
    def parse(line: str) -> Run:
        values: dict[str, Any] = json.loads(line)
        return Run(**{**values, "struck": Struck(**values["struck"])})


@dataclass(slots=True)
class Tally:
    """What the runs of a campaign add up to."""

    struck: Struck = field(default_factory=Struck)
    runs: int = 0
    lost: int = 0
    repeated: int = 0
    failed: int = 0

    def add(self, run: Run) -> None:
        self.struck += run.struck
        self.runs += 1
        self.lost += run.lost
        self.repeated += run.repeated
        self.failed += run.error is not None

    @property
    def status(self) -> int:
        """The exit status that this campaign asks for."""
        if self.lost or self.repeated or self.failed:
            return 1
        return 2 if self.struck.shows_little else 0

    def row(self, campaign: str) -> list[str]:
        struck = self.struck
        counts = [struck.kills, struck.behind_progress, struck.crashes, struck.checkpoints]
        counts += [self.lost, self.repeated, self.runs, self.failed]
        return [campaign, *map(str, counts), struck.shows_little or ""]


_HEADINGS = ["sink", "kills", "behind new checkpoints", "stops of the server", "checkpoints"]
_HEADINGS += ["lost", "repeated", "runs", "failed runs", ""]


def table(tallies: dict[str, Tally]) -> str:
    """A row for each campaign, in Markdown."""
    rows = [_HEADINGS, ["---"] * len(_HEADINGS)]
    rows += [tally.row(name) for name, tally in tallies.items()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


class Book:
    """The runs that are over, in a file of JSON Lines."""

    def __init__(self, file: Path, campaigns: Sequence[str]) -> None:
        self._file = file
        self.tallies = {name: Tally() for name in campaigns}
        for line in file.read_text().splitlines() if file.exists() else []:
            run = Run.parse(line)
            if run.campaign in self.tallies:
                self.tallies[run.campaign].add(run)

    def add(self, run: Run) -> None:
        with self._file.open("a") as file:
            file.write(json.dumps(dataclasses.asdict(run)) + "\n")
        self.tallies[run.campaign].add(run)


def campaign(
    name: str, kills: int, book: Book, attempts: Callable[[str], AbstractContextManager[Attempt]]
) -> Iterator[Run]:
    """Run jobs until so many processes were killed, or several runs in a row have failed."""
    _, argument = CAMPAIGNS[name]
    failed = 0
    with attempts(argument) as attempt:
        while book.tallies[name].struck.kills < kills and failed < _FAILED_IN_A_ROW_MAX:
            run = _run(name, attempt)
            failed = failed + 1 if run.error else 0
            book.add(run)
            yield run


def _run(name: str, attempt: Attempt) -> Run:
    folder = Path(tempfile.mkdtemp(prefix=f"minirt-kills-{name}-"))
    seed = random.randrange(1 << 30)
    begin = time.monotonic()
    struck, lost, repeated, error = Struck(), 0, 0, None
    try:
        struck, lost, repeated = attempt(folder, seed)
    except Exception as failure:
        error = f"{type(failure).__name__}: {failure}"
    wrong = lost or repeated or error
    if not wrong:
        shutil.rmtree(folder, ignore_errors=True)
    return Run(
        name, seed, struck, lost, repeated, round(time.monotonic() - begin, 1), _version(),
        error, str(folder) if wrong else None,
    )  # fmt: skip


def _version() -> str:
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return said.stdout.strip() or "unknown"


def _run_all(book: Book, kills: int) -> None:
    """Give each campaign its turns until all have had so many kills."""
    cannot = set[str]()
    for goal in range(min(_TURN_KILLS, kills), kills + _TURN_KILLS, _TURN_KILLS):
        for name in [name for name in book.tallies if name not in cannot]:
            before = book.tallies[name].failed
            try:
                module = importlib.import_module(CAMPAIGNS[name][0])
                for run in campaign(name, min(goal, kills), book, module.attempts):
                    _say(run, book.tallies[name])
            except (ImportError, pytest.skip.Exception) as missing:
                print(f"{name}: skipped: {missing}", flush=True)
                cannot.add(name)
            if book.tallies[name].failed - before >= _FAILED_IN_A_ROW_MAX:
                cannot.add(name)


def _say(run: Run, tally: Tally) -> None:
    wrong = f"; {run.error.splitlines()[0]}" if run.error else ""
    kept = f"; kept {run.kept}" if run.kept else ""
    print(
        f"{time.strftime('%H:%M:%S')} {run.campaign}: {tally.struck}: {tally.lost} lost, "
        f"{tally.repeated} repeated; seed {run.seed}, {run.seconds} s{wrong}{kept}",
        flush=True,
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("campaigns", nargs="*", metavar="NAME", help=", ".join(CAMPAIGNS))
    parser.add_argument("--kills", type=int, default=200, help="in each campaign")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="of the runs, also of earlier ones"
    )
    given = parser.parse_args(arguments)
    if unknown := set(given.campaigns) - CAMPAIGNS.keys():
        parser.error(f"no such campaign: {', '.join(sorted(unknown))}")
    os.environ["PYTHONFAULTHANDLER"] = "1"  # Workers say where they are, too, if a job hangs.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # Servers end, too.
    with ExitStack() as open_until_the_end:
        file = given.json
        if file is None:
            folder = open_until_the_end.enter_context(tempfile.TemporaryDirectory())
            file = Path(folder) / "runs.jsonl"
        book = Book(file, given.campaigns or list(CAMPAIGNS))
        open_until_the_end.enter_context(warm_processes())
        _run_all(book, given.kills)
    print(table(book.tallies))
    return max((tally.status for tally in book.tallies.values()), key=[0, 2, 1].index)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
