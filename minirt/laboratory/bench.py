"""Runs one program after another, each in a folder of its own, and goes on whatever becomes of them."""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, BinaryIO

import psutil

from minirt.clock import SYSTEM_CLOCK
from minirt.errors import ConfigurationError
from minirt.laboratory.matrix import MINIRT, Turn, labels
from minirt.laboratory.measured import Comparison, Run, Verification
from minirt.laboratory.one_run import FINISH_S, PATIENCE, START_S
from minirt.laboratory.trial import RunRequest, Trial, prepare
from minirt.protocol.plain import from_plain, to_plain

OVERHEAD_S = 4.0
"""What a run takes besides its measured time, until the first runs have told."""

STOP_S = 30.0
"""How long a run that was told to end may take to store what it has."""

VERIFY_S = 600.0
"""How long Spark may take to judge the output of a run."""

_LOOK_S = 0.1
_ERROR_LINES = 12

Progress = Callable[[int, float, float], None]
"""Called with the number of runs made, the seconds of the one under way, and those left in all."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All runs to be made: a request for each setting, without seed and folder, and the turns."""

    requests: tuple[RunRequest, ...]
    turns: tuple[Turn, ...]
    seed: int

    def request(self, turn: Turn, folder: str) -> RunRequest:
        """The runs of one repeat have the same seed, so that kills strike all settings alike."""
        return replace(self.requests[turn.setting], seed=self.seed + turn.repeat, folder=folder)

    @property
    def run_s(self) -> float:
        """How long a run takes, about."""
        one = self.requests[0]
        return one.warm_up_s + one.seconds + OVERHEAD_S


def check(plan: Plan) -> tuple[Trial, ...]:
    """Make every setting of minirt ready without running it. Raises what `prepare` raises."""
    found = []
    for request in plan.requests:
        if request.setting.system != MINIRT:
            continue
        with run_folder() as folder:
            found.append(prepare(replace(request, folder=folder)))
    return tuple(found)


def nothing_run(plan: Plan, repeat: int, title: str, command: str) -> Comparison:
    """The comparison of a plan, still without runs. `command` is what to repeat it with."""
    settings = tuple(request.setting for request in plan.requests)
    one = plan.requests[0]
    return Comparison(
        title,
        command,
        one.workload or one.job or "",
        one.workload,
        settings,
        labels(settings),
        one.seconds,
        one.warm_up_s,
        repeat,
        one.kill_every_s,
        one.latency_from,
        plan.seed,
        dt.datetime.fromtimestamp(SYSTEM_CLOCK.now(), dt.UTC).isoformat(timespec="seconds"),
        False,
        machine(),
        versions(),
        kill_at_s=one.kill_at_s,
    )


def make_runs(plan: Plan, on_run: Callable[[Run], None], progress: Progress) -> bool:
    """Make all runs in turn; `on_run` hears of each. Returns whether all were made.

    Ctrl-C ends the run under way, which still counts as interrupted, and all further ones.
    """
    began = time.monotonic()
    for done, turn in enumerate(plan.turns):
        passed = time.monotonic() - began
        each_s = passed / done if done else plan.run_s
        left = len(plan.turns) - done

        def show(run_s: float, done: int = done, left_s: float = each_s * left) -> None:
            progress(done, run_s, max(0.0, left_s - run_s))

        try:
            with run_folder() as folder:
                run, interrupted = _make(plan.request(turn, folder), show)
        except KeyboardInterrupt:
            return False
        on_run(replace(run, setting=turn.setting, repeat=turn.repeat))
        if interrupted:
            return False
    return True


def _make(request: RunRequest, show: Callable[[float], None]) -> tuple[Run, bool]:
    """The run, and whether Ctrl-C came meanwhile. Raises KeyboardInterrupt if nothing is left of it."""
    folder = Path(request.folder)
    request_file, result = folder / "request.json", folder / "result.json"
    request_file.write_text(json.dumps(to_plain(request)))
    with (folder / "log").open("wb") as log:
        process = _start(request_file, result, log)
        interrupted = False
        try:
            _wait(process, _longest_s(request), show)
        except KeyboardInterrupt:
            interrupted = True
            _end(process)
        finally:
            _kill(process)
    if result.exists():
        return from_plain(Run, json.loads(result.read_text())), interrupted
    if interrupted:
        raise KeyboardInterrupt
    return _failed(request, _last_lines(folder / "log", process.returncode)), False


def _start(request: Path, result: Path, log: BinaryIO) -> subprocess.Popen[bytes]:
    """In a session of its own: Ctrl-C is for this program, which tells the run itself."""
    return subprocess.Popen(
        [sys.executable, "-m", "minirt.laboratory.one_run", str(request), str(result)],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def _longest_s(request: RunRequest) -> float:
    verify_s = 0.0 if request.expected is None else VERIFY_S
    return START_S + request.warm_up_s + PATIENCE * request.seconds + FINISH_S + verify_s + STOP_S


def _wait(
    process: subprocess.Popen[bytes], longest_s: float, show: Callable[[float], None]
) -> None:
    began = time.monotonic()
    while process.poll() is None and (passed := time.monotonic() - began) < longest_s:
        show(passed)
        time.sleep(_LOOK_S)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let it store what it has, unless Ctrl-C comes again."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(STOP_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        return


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Make sure that it is gone. Its workers end with it: they hold a lifeline."""
    if process.poll() is None:
        process.kill()
        process.wait()
    if process.stdin is not None:
        process.stdin.close()


def _last_lines(log: Path, status: int | None) -> str:
    lines = log.read_text(errors="backslashreplace").strip().splitlines()[-_ERROR_LINES:]
    return "\n".join([f"the run ended with status {status} and no result", *lines])


def _failed(request: RunRequest, error: str) -> Run:
    return Run(
        setting=0,
        repeat=0,
        seed=request.seed,
        started_at="",
        ended="failed",
        error=error,
        measured_s=0.0,
        start_s=0.0,
        restarts=0,
        source_records=0,
        sink_records=0,
        committed_records=0,
        cpu_s=0.0,
        peak_rss_bytes=0,
        latency=None,
        visible_after=None,
        verification=Verification("not verified", "the run failed"),
    )


@contextmanager
def run_folder() -> Iterator[str]:
    """A temporary folder for one run, removed in the end."""
    folder = tempfile.mkdtemp(prefix="minirt-compare-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def machine() -> dict[str, Any]:
    """What the runs were made on."""
    return {
        "system": platform.system(),
        "kernel": platform.release(),
        "processor": _processor(),
        "cores": os.cpu_count() or 0,
        "memory_bytes": psutil.virtual_memory().total,
    }


def versions() -> dict[str, Any]:
    """What the runs were made with."""
    found = {"python": platform.python_version()}
    for package in ("minirt", "pyarrow", "numpy", "msgpack", "psutil"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def refuse_unwritable(flag: str, given: str | None, *, folder: bool = False) -> None:
    """Raise ConfigurationError unless a file, or files in a folder, can be written there."""
    if given is None:
        return
    path = Path(given)
    if folder and path.exists() and not path.is_dir():
        raise ConfigurationError(f"{flag}: {given} is a file, not a folder")
    if not folder and path.is_dir():
        raise ConfigurationError(f"{flag}: {given} is a folder, not a file")
    place = path if path.exists() else path.absolute().parent
    if not os.access(place, os.W_OK):
        raise ConfigurationError(f"{flag}: cannot write {given}")
