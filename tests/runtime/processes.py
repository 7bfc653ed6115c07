"""The processes of a running job, as the operating system sees them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

needs_proc = pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks into /proc")

_TEMPLATE = "minirt.runtime.worker.template"
_PAUSE_S, _PAUSE_S_MAX = 0.005, 0.3


def wait_until(condition: Callable[[], bool], what: str, timeout: float = 30.0) -> None:
    """Fails the test if the condition does not come true.

    Asking takes a tenth of the time at most, and comes late by a fiftieth of the wait: who waits leaves the
    cores to those that it waits for.
    """
    began_at = time.monotonic()
    deadline = began_at + timeout
    while True:
        asked_at = time.monotonic()
        if condition():
            return
        answered_at = time.monotonic()
        if answered_at > deadline:
            pytest.fail(f"waited {timeout:g} s in vain: {what}")
        pause_s = max(_PAUSE_S, 9 * (answered_at - asked_at), (answered_at - began_at) / 50)
        time.sleep(min(_PAUSE_S_MAX, pause_s))


def templates(coordinator: int | None = None) -> list[int]:
    """The template processes of a coordinator, by default of this process."""
    parent = os.getpid() if coordinator is None else coordinator
    return [pid for pid in children(parent) if _TEMPLATE in command_line(pid)]


def workers(coordinator: int | None = None) -> list[int]:
    """The worker processes of a coordinator, those that are still starting included."""
    return [worker for template in templates(coordinator) for worker in children(template)]


def children(parent: int) -> list[int]:
    """The living children of a process."""
    return [pid for pid in sorted(started_by(parent)) if is_alive(pid)]


def started_by(parent: int) -> set[int]:
    """The children of a process, also those that have ended. To look at all processes would take long."""
    try:
        threads = [*Path(f"/proc/{parent}/task").iterdir()]
    except OSError:
        return set()
    return {int(pid) for thread in threads for pid in _read(thread / "children").split()}


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and waits to be reaped does not."""
    return _status(pid).get("State", "Z")[0] not in "ZX"


def resident_bytes(pid: int) -> int:
    """Memory that the process holds and shares with no file, in bytes."""
    return int(_status(pid)["RssAnon"].split()[0]) * 1024


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().replace("\0", " ")
    except OSError:
        return ""


def send(pid: int, number: signal.Signals) -> bool:
    """Send a signal; False if the process was gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def freeze(pid: int) -> None:
    """SIGSTOP; when it returns, none of the threads runs."""
    send(pid, signal.SIGSTOP)
    statuses = [*Path(f"/proc/{pid}/task").glob("*/status")]
    wait_until(lambda: all("State:\tT" in _read(status) for status in statuses), "it stands still")


def _status(pid: int) -> dict[str, str]:
    lines = _read(Path(f"/proc/{pid}/status")).splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # The process or thread has ended.
        return ""
