"""SIGKILL of a program and of what it starts, again and again until it has come to its end."""

from __future__ import annotations

import io
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

import psutil

import minirt as rt
from tests.needs import ROOT

_PAUSE_S = (0.05, 0.8)
"""Between two looks at a program: the least and the most."""
_LOOKS_WITHOUT_PROGRESS_MAX = 700
"""Some five minutes. Looks count, and no clock: while somebody has stopped this process, none is taken."""
_LOOKS_MAX = 8000
"""About an hour."""
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
    storage: Path,
    chance: random.Random,
    strike: Callable[[Program], None],
    progress: Callable[[], object] | None = None,
) -> None:
    """Start a program of Python anew for as long as SIGKILL ends it, calling `strike` now and then.

    `storage` is where its job has its checkpoints. While `progress` gives the same for many looks, the
    job hangs, and then says where all of its threads are; by default that is the newest checkpoint. What
    the program says goes to a file beside the storage: a pipe that nobody reads holds a program up as
    soon as it is full, and an outage is worth many lines.

    Raises:
        AssertionError: The program hangs, or ended with an error of its own.
    """
    command = [sys.executable, "-c", _TELLS_STACKS + program, *arguments]
    patience = _Patience(progress or partial(newest_checkpoint, storage))
    storage.parent.mkdir(parents=True, exist_ok=True)
    with storage.with_suffix(".log").open("a+b") as said:
        while True:
            with subprocess.Popen(command, cwd=ROOT, stderr=said) as started:
                while started.poll() is None:
                    if patience.is_over():
                        _end_with_stacks(started)
                        raise AssertionError(f"the job does not come to its end: {_tail(said)}")
                    time.sleep(chance.uniform(*_PAUSE_S))
                    strike(started)
            if started.returncode == 0:
                return
            assert started.returncode == -signal.SIGKILL, _tail(said)


class _Patience:
    """Is over once a job makes no progress, or makes it for too long."""

    def __init__(self, progress: Callable[[], object]) -> None:
        self._progress = progress
        self._seen: object = None
        self._without_progress = 0
        self._looks = 0

    def is_over(self) -> bool:
        """To be asked at each look."""
        seen = self._progress()
        self._looks += 1
        self._without_progress = 0 if seen != self._seen else self._without_progress + 1
        self._seen = seen
        return self._looks > _LOOKS_MAX or self._without_progress > _LOOKS_WITHOUT_PROGRESS_MAX


def newest_checkpoint(storage: Path) -> int:
    """The id of the newest complete checkpoint; 0 without one."""
    files = storage.glob("manifests/chk-*.manifest")
    return max((int(file.name.split("-")[1]) for file in files), default=0)


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
        newest, kills_left = newest_checkpoint(self._storage), self._kills - self.so_far.kills
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
