"""Runs a host agent as a process of a task of some cluster, and lets nothing of it outlive the task."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

_PR_SET_PDEATHSIG = 1
_TEMPORARY_FAILURE = 75


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
