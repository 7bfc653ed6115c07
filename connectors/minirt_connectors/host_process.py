"""What launchers share whose agents are processes of the tasks of some cluster."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from minirt import ConfigurationError, HostCluster, Invitation, Launched

_PR_SET_PDEATHSIG = 1
_TEMPORARY_FAILURE = 75
_FAILURES_MAX = 5
_QUICK_S = 60.0


@dataclass(frozen=True, slots=True)
class Agent:
    """What `run_host` takes, and what is to be done once the job is over."""

    command: list[str]
    secret: dict[str, str]
    close: Callable[[], None]

    @classmethod
    def invited(
        cls,
        invitation: Invitation,
        slots: int,
        credentials: str | os.PathLike[str] | None,
        write: Callable[[Invitation], Launched],
    ) -> Agent:
        """An agent with so many slots. Its secret goes along, or `write` writes it to `credentials`."""
        command = ["-m", "minirt", "host", "--coordinator", invitation.coordinator]
        command += ["--slots", str(slots)]
        if credentials is None:
            return cls(command, {"MINIRT_CREDENTIALS": invitation.credentials}, lambda: None)
        # A shared file system may show the new file late.
        command += ["--credentials", os.path.abspath(credentials), "--wait", "30s"]
        return cls(command, {}, write(invitation).close)


def refuse_too_few(cluster: HostCluster, slots: int, invitation: Invitation) -> None:
    """Raises ConfigurationError if a job would wait for more slots than were asked for."""
    bends = cluster.min_slots is not None or cluster.reactive is not None
    needed = (cluster.min_slots or 1) if bends else invitation.slots
    if slots < needed:
        advice = "" if bends else ", or let min_slots or reactive say that fewer will do"
        raise ConfigurationError(
            f"{type(cluster).__name__}: the job needs {needed} slots, and slots={slots} gives fewer; "
            f"ask for as many{advice}"
        )


class QuickFailures:
    """Counts failures in a row that each come within a minute; five are too many."""

    def __init__(self) -> None:
        self._count = 0

    def too_many(self, began_at: float) -> bool:
        """Count the failure of what began then, by the monotonic clock."""
        self._count = self._count + 1 if time.monotonic() - began_at < _QUICK_S else 1
        return self._count >= _FAILURES_MAX


def run_host(command: Sequence[str], secret: Mapping[str, str]) -> None:
    """Run `python COMMAND`, an agent, until its job is over; `secret` joins its environment.

    Modules that this process finds are found by the agent as well. Raises RuntimeError if it fails.
    """
    libc = ctypes.CDLL(None)
    process = subprocess.Popen(
        [sys.executable, *command],
        env={
            **os.environ,
            **secret,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        },
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=partial(_end_with_parent, libc, os.getpid()),
    )
    try:
        status = process.wait()
    finally:
        process.terminate()
        process.wait()
    if status:
        raise RuntimeError(f"minirt host ended with exit code {status}; see the stderr of its task")


def _end_with_parent(libc: Any, parent: int) -> None:
    """Clusters kill the process of a task, but not the children of that."""
    if sys.platform == "linux":
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(_TEMPORARY_FAILURE)


def in_one_line(error: BaseException, telling: Sequence[str] = ("exit code",)) -> str:
    """The first line with one of these words, else the first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    found = [line for line in lines if any(word in line for word in telling)]
    return (found or lines or [type(error).__name__])[0]
