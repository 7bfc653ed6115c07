"""Interpreters that tests start: forks of one process that has minirt imported already.

An interpreter that imports minirt takes most of the time of a small job, and each job starts one, its
template; a program that runs a job is another. While `warm_processes` lasts, `subprocess` has both from
a *nursery*, which is started once for each process of pytest and imports minirt once.

What comes from there is a child of this process with the process id, standard streams, folder, variables,
session, group and command line that the interpreter would have, and ends as that would. Two things
differ: minirt and what it imports are there from the start, and all forks of a nursery hash alike. Tests
that are about starting use the fixture `cold_starts`; options of the interpreter, or variables that it
reads when it starts, have it start as usual.

A program from the nursery has a spare fork of what it was before it began. The spare becomes the next
interpreter that the program starts, the template of a job or another program, and leaves the next spare.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.nursery import COMMAND_BYTES, LOADED_IF_USED, ROOT, Door, Start, cold_start, streams


class Nursery:
    """The process that forks; it ends when its socket closes."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        used = [name for name in LOADED_IF_USED if name in sys.modules]
        code = (
            f"import sys; sys.path.insert(1, {str(ROOT)!r}); from tests.nursery import serve; "
            f"del sys.path[1]; exec(serve({theirs.fileno()}, {used}))"
        )
        environ = {**os.environ}
        environ.pop("PYTHONPATH", None)
        with theirs:
            # Signals of the terminal do not reach it, but forks can join the groups of this session. The
            # last argument is room for their command lines.
            self._process = subprocess.Popen(
                [sys.executable, "-c", code, " " * COMMAND_BYTES],
                pass_fds=[theirs.fileno()],
                process_group=0,
                env=environ,
            )
        self.door = Door(ours)

    @property
    def gone(self) -> bool:
        """Whether it has ended: the first test that starts a process and fails takes it along."""
        return self._process.poll() is not None

    def close(self) -> None:
        self.door.close()
        self._process.wait()


@contextmanager
def cold_starts() -> Iterator[None]:
    """While the body runs, interpreters start as they do for users."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "_fork_exec", cold_start)
        yield


@contextmanager
def warm_processes() -> Iterator[None]:
    """While the body runs, interpreters come from a nursery, which the first of them starts."""
    nurseries: list[Nursery] = []
    lock = threading.Lock()
    mine = os.getpid()

    def fork_exec(*call: object) -> int:
        start = Start.of(call) if os.getpid() == mine else None
        if start is None:
            return cold_start(*call)
        with lock:
            if not nurseries or nurseries[-1].gone:
                nurseries.append(Nursery())
        return nurseries[-1].door.fork(start, streams(call)) or cold_start(*call)

    with pytest.MonkeyPatch.context() as patch:
        if sys.platform == "linux":
            patch.setattr(subprocess, "_fork_exec", fork_exec)
        yield
    for one in nurseries:
        one.close()
