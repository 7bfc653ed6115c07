"""SIGKILL of a program and of what it starts, again and again until it has come to its end."""

from __future__ import annotations

import io
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import psutil

import minirt as rt
from tests.needs import ROOT
from tests.warm_processes import warm_processes

_RUN_S_MAX = 480
_SAID_BYTES = 200_000
_KILLS_THAT_TELL = 10
"""Of fewer kills, chance may have most strike early."""
_WANTED_MAX = 8
_CHECKPOINTS_PER_KILL = 3
"""So many a campaign completes at least: else its kills strike jobs that have nothing to commit."""
_TELLS_STACKS = "import faulthandler\nfaulthandler.enable()\n"

Program = subprocess.Popen[bytes]


def run_to_its_end(
    program: str,
    arguments: Sequence[str],
    chance: random.Random,
    strike: Callable[[Program], None],
    run_s_max: float = _RUN_S_MAX,
    progress: Callable[[], object] = lambda: None,
) -> None:
    """Start a program of Python anew for as long as SIGKILL ends it, calling `strike` now and then.

    Its `run_s_max` seconds begin anew whenever `progress` gives something else than before.

    What it says goes to a file: a pipe that nobody reads holds a program up as soon as it is full, and an
    outage is worth many lines. One that does not end says where all of its threads are.
    """
    command = [sys.executable, "-c", _TELLS_STACKS + program, *arguments]
    end, reached = time.monotonic() + run_s_max, progress()
    with tempfile.TemporaryFile() as said:
        while True:
            said.seek(0)
            said.truncate()
            with subprocess.Popen(command, cwd=ROOT, stderr=said) as started:
                while started.poll() is None:
                    if (now_reached := progress()) != reached:
                        end, reached = time.monotonic() + run_s_max, now_reached
                    if time.monotonic() > end:
                        _end_with_stacks(started)
                        raise AssertionError(
                            f"the job did not end within {run_s_max:g} s: {_tail(said)}"
                        )
                    time.sleep(chance.uniform(0.05, 0.8))
                    strike(started)
            if started.returncode == 0:
                return
            assert started.returncode == -signal.SIGKILL, _tail(said)


def _end_with_stacks(program: Program) -> None:
    """Have the program, and all that it has started, say where they are, and kill them."""
    try:
        everybody = psutil.Process(program.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return
    for one in (program, *everybody):
        with suppress(psutil.NoSuchProcess):
            one.send_signal(signal.SIGABRT)
    time.sleep(2)
    for one in (program, *everybody):
        with suppress(psutil.NoSuchProcess):
            one.kill()


def _tail(file: BinaryIO) -> str:
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - _SAID_BYTES))
    return file.read().decode(errors="replace")


@dataclass(frozen=True, slots=True)
class Struck:
    """What runs of jobs have met on their way to the end."""

    kills: int = 0
    behind_progress: int = 0
    """Before so many of the kills a checkpoint was completed since the last strike."""
    crashes: int = 0
    checkpoints: int = 0
    """How many were completed, in all."""

    def __add__(self, other: Struck) -> Struck:
        return Struck(
            self.kills + other.kills,
            self.behind_progress + other.behind_progress,
            self.crashes + other.crashes,
            self.checkpoints + other.checkpoints,
        )

    def __str__(self) -> str:
        return (
            f"{self.kills} kills ({self.behind_progress} behind new checkpoints), {self.crashes} crashes "
            f"of the server, {self.checkpoints} checkpoints"
        )

    @property
    def shows_little(self) -> str | None:
        """Why nothing follows from these runs, if they have lost and repeated nothing."""
        if self.kills == 0:
            return "nobody was killed"
        if self.checkpoints < _CHECKPOINTS_PER_KILL * self.kills:
            return f"fewer than {_CHECKPOINTS_PER_KILL} checkpoints for each kill: {self}"
        few = self.kills < _KILLS_THAT_TELL
        if self.behind_progress < (1 if few else self.kills / 2):
            return f"most kills struck before there was anything new to lose: {self}"
        return None


class Striker:
    """Kills the coordinator of a job, or a process that it has started, and crashes its server.

    The moments are random. Three kills in four, and all crashes, wait until the job has completed some
    checkpoints since the last strike; other kills strike what starts and restores. The `first` ones wait
    for nothing.
    """

    def __init__(
        self,
        storage: Path,
        kills: int,
        chance: random.Random,
        *,
        first: int = 0,
        crashes: int = 0,
        crash: Callable[[], object] = lambda: None,
    ) -> None:
        self._storage = storage
        self._kills = kills
        self._chance = chance
        self._first = first
        self._crashes = crashes
        self._crash = crash
        self._seen = 0
        self._wanted = 0 if first else chance.randint(1, _WANTED_MAX)
        """So many checkpoints more the next kill waits for."""
        self.so_far = Struck()
        """Without the checkpoints."""

    @property
    def done(self) -> bool:
        return self.so_far.kills >= self._kills and self.so_far.crashes >= self._crashes

    def strike(self, program: Program) -> None:
        """At a moment of the caller."""
        if program.poll() is not None:
            return
        newest, kills_left = self.newest(), self._kills - self.so_far.kills
        progress = newest - self._seen
        if (
            progress > 0
            and self.so_far.crashes < self._crashes
            and (kills_left <= 0 or self._chance.random() < 0.2)
        ):
            self._crash()
            self.so_far += Struck(crashes=1)
        elif kills_left > 0 and progress >= self._wanted and _kill(program, self._chance):
            self.so_far += Struck(kills=1, behind_progress=int(progress > 0))
            waits = self.so_far.kills >= self._first and self._chance.random() < 0.75
            self._wanted = self._chance.randint(1, _WANTED_MAX) if waits else 0
        else:
            return
        self._seen = newest

    def struck(self) -> Struck:
        """What has happened to the job, once it is at its end."""
        completed = sum(one.completed for one in rt.open_checkpoints(self._storage).history())
        return replace(self.so_far, checkpoints=completed)

    def newest(self) -> int:
        """The id of the newest complete checkpoint; 0 without one."""
        files = self._storage.glob("manifests/chk-*.manifest")
        return max((int(file.name.split("-")[1]) for file in files), default=0)


def _kill(program: Program, chance: random.Random) -> bool:
    """Whether there was somebody to kill."""
    if chance.random() < 0.3:
        program.kill()
        return True
    try:
        everybody = psutil.Process(program.pid).children(recursive=True)
        # Spare interpreters of `warm_processes` do nothing yet.
        started = [one for one in everybody if "tests.nursery" not in " ".join(one.cmdline())]
        if not started:
            return False
        chance.choice(started).kill()
    except psutil.NoSuchProcess:
        return False
    return True


Outcome = tuple[Struck, int, int]
"""Of a run: what it has met, how many records are lost, and how many are there more than once."""


def soak(kills: int, attempt: Callable[[Path, int], Outcome]) -> int:
    """Run jobs until so many processes were killed; the exit status. The last line has the count.

    `attempt` runs one with a folder for its checkpoints and a seed. A campaign that shows little does not
    count.
    """
    os.environ["PYTHONFAULTHANDLER"] = "1"  # Workers say where they are, too, see `run_to_its_end`.
    storages = Path(tempfile.mkdtemp(prefix="minirt-kills-"))
    total, lost, repeated, runs = Struck(), 0, 0, 0
    first = random.randrange(1 << 30)
    try:
        with warm_processes():
            while total.kills < kills:
                struck, one_lost, one_repeated = attempt(storages / str(runs), first + runs)
                total, runs = total + struck, runs + 1
                lost, repeated = lost + one_lost, repeated + one_repeated
                print(f"{total} in {runs} runs: {lost} lost, {repeated} repeated", flush=True)
    finally:
        shutil.rmtree(storages, ignore_errors=True)
    if lost or repeated:
        return 1
    if total.shows_little is not None:
        print(f"this campaign does not count: {total.shows_little}", flush=True)
        return 2
    return 0
