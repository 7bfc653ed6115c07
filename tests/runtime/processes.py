"""The processes of a running job, as the operating system sees them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.warm_templates import forked

needs_proc = pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks into /proc")

_TEMPLATE = "minirt.runtime.worker.template"


def wait_until(condition: Callable[[], bool], what: str, timeout: float = 30.0) -> None:
    """Fails the test if the condition does not come true."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"waited {timeout:g} s in vain: {what}")
        time.sleep(0.005)


def templates(coordinator: int | None = None) -> list[int]:
    """The template processes of a coordinator, by default of this process."""
    parent = os.getpid() if coordinator is None else coordinator
    started = [pid for pid in children(parent) if _TEMPLATE in command_line(pid)]
    return [*started, *filter(is_alive, forked if parent == os.getpid() else ())]


def workers(coordinator: int | None = None) -> list[int]:
    """The worker processes of a coordinator, those that are still starting included."""
    return [worker for template in templates(coordinator) for worker in children(template)]


def children(parent: int) -> list[int]:
    """The living children of a process."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _status(int(entry.name)).get("PPid") == str(parent):
            found.append(int(entry.name))
    return [pid for pid in sorted(found) if is_alive(pid)]


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


def _status(pid: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
