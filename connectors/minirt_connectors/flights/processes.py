"""Which processes of this machine belong to a demo: those that have its mark in their environment."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path

_VARIABLE = "DEMO_OF_MINIRT"
"""Not MINIRT_...: those are options."""
_OF_JOBS = ("minirt host", "minirt.runtime.worker.template")
_OF_EXECUTORS = ("CoarseGrainedExecutorBackend", "pyspark.daemon")
_EXECUTOR = _OF_EXECUTORS[0]
_END_S_MAX = 20.0
"""How long the processes of a job, or of Spark, may take to end when it is over."""
_LOOK_AGAIN_S = 0.1


class Mark:
    """Whatever this process starts from now on carries the mark, and what that starts as well."""

    def __init__(self) -> None:
        value = uuid.uuid4().hex
        os.environ[_VARIABLE] = value
        self._entry = f"{_VARIABLE}={value}".encode()

    def left_of_jobs(self, wait_s: float = _END_S_MAX) -> list[int]:
        """Agents, templates and workers that still live, once they had so long to end."""
        return self._left(_OF_JOBS, wait_s)

    def left_of_executors(self, wait_s: float = _END_S_MAX) -> list[int]:
        """Executors of Spark and their Python processes."""
        return self._left(_OF_EXECUTORS, wait_s)

    def _left(self, what: tuple[str, ...], wait_s: float) -> list[int]:
        deadline = time.monotonic() + wait_s
        while left := self._living(what):
            if time.monotonic() > deadline:
                return left
            time.sleep(_LOOK_AGAIN_S)
        return []

    def _living(self, what: tuple[str, ...]) -> list[int]:
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            pid = int(entry.name)
            try:
                mine = self._entry in (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if mine and pid != os.getpid() and any(one in _command(pid) for one in what):
                found.append(pid)
        return sorted(found)


def executor_of(pid: int) -> int | None:
    """The executor of Spark that has started a process, or its parent, or the parent of that."""
    while pid > 1:
        if _EXECUTOR in _command(pid):
            return pid
        pid = _parent(pid)
    return None


def _command(pid: int) -> str:
    try:
        return (
            Path(f"/proc/{pid}/cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode("utf-8", "replace")
        )
    except OSError:
        return ""


def _parent(pid: int) -> int:
    try:
        # The name, in brackets, may hold anything.
        return int(
            Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1]
        )
    except OSError:
        return 0
