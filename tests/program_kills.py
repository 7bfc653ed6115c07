"""SIGKILL of a program and of what it starts, again and again until it has come to its end."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from tests.needs import ROOT

_RUN_S_MAX = 240

Program = subprocess.Popen[str]


def run_to_its_end(
    command: Sequence[str], chance: random.Random, strike: Callable[[Program], None]
) -> None:
    """Start the program anew for as long as SIGKILL ends it. `strike` is called now and then meanwhile."""
    end = time.monotonic() + _RUN_S_MAX
    while time.monotonic() < end:
        with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as program:
            while program.poll() is None:
                if time.monotonic() > end:
                    program.kill()
                    break
                time.sleep(chance.uniform(0.05, 0.8))
                strike(program)
            said = program.stderr.read() if program.stderr else ""
        if program.returncode == 0:
            return
        assert program.returncode == -signal.SIGKILL, said
    raise AssertionError(f"the job did not end within {_RUN_S_MAX} s")


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
