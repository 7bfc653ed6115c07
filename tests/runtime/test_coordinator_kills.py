"""The coordinator killed with SIGKILL: nothing survives it, and the next one continues exactly once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.runtime.campaign import compare, read_files
from tests.runtime.jobs import CASES
from tests.runtime.processes import is_alive, needs_proc, send, templates, wait_until, workers

pytestmark = [pytest.mark.processes, needs_proc]

COUNT = 1500
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the script; its temporary files go to `tmp_path / "tmp"`."""
    started: list[subprocess.Popen[bytes]] = []
    (tmp_path / "tmp").mkdir()

    def begin(*options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.runtime.script", str(tmp_path), *options]
        environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
        started.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE))
        return started[-1]

    yield begin
    for process in started:
        with process:
            process.kill()


def everybody(script: subprocess.Popen[bytes]) -> list[int]:
    return [*templates(script.pid), *workers(script.pid)]


def kill(script: subprocess.Popen[bytes]) -> list[int]:
    """SIGKILL; returns the processes that the script leaves behind."""
    left = everybody(script)
    script.kill()
    script.wait()
    return left


def is_committing(folder: Path) -> bool:
    return any(folder.glob("*/*.jsonl"))


def finish(script: subprocess.Popen[bytes]) -> None:
    _, errors = script.communicate(timeout=60)
    assert script.returncode == 0, errors.decode()


def assert_exactly_once(folder: Path, case: str = "keyed", parallelism: int = 2) -> None:
    assert compare(CASES[case], COUNT, parallelism, folder) == (0, 0)


def gone(pids: list[int]) -> Callable[[], bool]:
    return lambda: not any(is_alive(pid) for pid in pids)


def test_its_processes_and_files_are_gone_and_the_same_script_continues_exactly_once(
    start, tmp_path
):
    script = start()
    wait_until(lambda: is_committing(tmp_path), "first output")
    left = kill(script)
    assert len(left) == 5
    wait_until(gone(left), "workers and template gone", 10)
    wait_until(lambda: not any((tmp_path / "tmp").iterdir()), "temporary folder gone", 10)
    committed = len(read_files(tmp_path / "ledger"))
    assert committed > 0
    finish(start())
    assert_exactly_once(tmp_path)


def test_workers_that_sleep_in_user_code_do_not_survive_it(start, tmp_path):
    script = start("--case", "sleeper")
    wait_until(lambda: len(workers(script.pid)) == 4, "workers up")
    time.sleep(0.5)
    left = kill(script)
    wait_until(gone(left), "workers and template gone", 10)


def test_workers_do_not_survive_it_even_if_the_template_has_been_stopped(start, tmp_path):
    script = start()
    wait_until(lambda: is_committing(tmp_path), "first output")
    (template,) = templates(script.pid)
    hosts = workers(script.pid)
    send(template, signal.SIGSTOP)
    kill(script)
    try:
        wait_until(gone(hosts), "workers gone", 10)
    finally:
        send(template, signal.SIGKILL)


def test_killed_again_and_again_at_random_moments_it_ends_exactly_once(start, tmp_path):
    chosen = random.Random(1)
    for _ in range(3):
        script = start("--case", "united", "--placement", "slots")
        wait_until(lambda: bool(templates(script.pid)), "template up")  # noqa: B023
        time.sleep(chosen.uniform(0.3, 1.2))
        kill(script)
    finish(start("--case", "united", "--placement", "slots"))
    assert_exactly_once(tmp_path, "united")


def test_killed_in_the_middle_of_commits_it_ends_exactly_once(start, tmp_path):
    for fatal_commit in (3, 1):
        script = start("--fatal-commit", str(fatal_commit))
        assert script.wait(60) == -signal.SIGKILL
    finish(start())
    assert_exactly_once(tmp_path)


def test_killed_while_it_restarts_killed_workers_it_ends_exactly_once(start, tmp_path):
    script = start()
    wait_until(lambda: is_committing(tmp_path), "first output")
    for worker in workers(script.pid)[:2]:
        send(worker, signal.SIGKILL)
    time.sleep(0.03)
    kill(script)
    finish(start())
    assert_exactly_once(tmp_path)


def test_it_comes_back_with_another_parallelism(start, tmp_path):
    for parallelism in ("2", "3"):
        before = len(read_files(tmp_path / "ledger"))
        script = start("--parallelism", parallelism, "--placement", "slots")
        wait_until(lambda: len(read_files(tmp_path / "ledger")) > before + 100, "output")  # noqa: B023
        kill(script)
    finish(start("--parallelism", "1", "--placement", "slots"))
    assert_exactly_once(tmp_path)


def test_an_interrupt_from_the_keyboard_ends_everything_in_an_orderly_way(start, tmp_path):
    script = start()
    wait_until(lambda: is_committing(tmp_path), "first output")
    left = everybody(script)
    script.send_signal(signal.SIGINT)
    _, errors = script.communicate(timeout=20)
    assert script.returncode == -signal.SIGINT
    assert errors.decode().rstrip().endswith("KeyboardInterrupt")
    assert gone(left)()
    assert not any((tmp_path / "tmp").iterdir())
    finish(start())
    assert_exactly_once(tmp_path)
