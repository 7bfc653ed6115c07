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
from pathlib import Path
from typing import BinaryIO

import psutil

from tests.needs import ROOT

_RUN_S_MAX = 480
_SAID_BYTES = 200_000
_TELLS_STACKS = "import faulthandler\nfaulthandler.enable()\n"

Program = subprocess.Popen[bytes]


def run_to_its_end(
    program: str,
    arguments: Sequence[str],
    chance: random.Random,
    strike: Callable[[Program], None],
    run_s_max: float = _RUN_S_MAX,
) -> None:
    """Start a program of Python anew for as long as SIGKILL ends it, calling `strike` now and then.

    What it says goes to a file: a pipe that nobody reads holds a program up as soon as it is full, and an
    outage is worth many lines. One that does not end says where all of its threads are.
    """
    command = [sys.executable, "-c", _TELLS_STACKS + program, *arguments]
    end = time.monotonic() + run_s_max
    with tempfile.TemporaryFile() as said:
        while True:
            said.seek(0)
            said.truncate()
            with subprocess.Popen(command, cwd=ROOT, stderr=said) as started:
                while started.poll() is None:
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


def kill(program: Program, chance: random.Random) -> int:
    """Kill the coordinator, or one of the processes that it has started; how many were killed."""
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


def soak(kills: int, attempt: Callable[[Path, int], tuple[int, int, int]]) -> int:
    """Run jobs until so many processes were killed; the exit status. The last line has the count.

    `attempt` runs one with a folder for its checkpoints and a seed: what was killed, lost and repeated.
    """
    os.environ["PYTHONFAULTHANDLER"] = "1"  # Workers say where they are, too, see `run_to_its_end`.
    storages = Path(tempfile.mkdtemp(prefix="minirt-kills-"))
    killed = lost = repeated = seed = 0
    try:
        while killed < kills:
            done, one_lost, one_repeated = attempt(storages / str(seed), seed)
            killed, seed = killed + done, seed + 1
            lost, repeated = lost + one_lost, repeated + one_repeated
            print(f"{killed} kills in {seed} runs: {lost} lost, {repeated} repeated", flush=True)
    finally:
        shutil.rmtree(storages, ignore_errors=True)
    return 1 if lost or repeated else 0
