"""The template process as its coordinator sees it."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys

from minirt.runtime.control.connection import MessageConnection
from minirt.runtime.control.messages import Fork, KillGeneration
from minirt.runtime.worker.template import PYTHON, TemplateStart

_END_S_MAX = 2.0
"""How long it may take to end its workers in an orderly way."""


class TemplateProcess:
    """Starts the template and hands it orders; those that come before it is up are kept for it.

    It and the workers that it forks are a process group of their own: signals from a terminal do not
    reach them, and whoever is left of them can be killed together.
    """

    def __init__(self, start: TemplateStart) -> None:
        self._start = pickle.dumps(start)
        self._connection: MessageConnection | None = None
        self._waiting: list[Fork] = []
        self._process = self._spawn()

    @property
    def connection(self) -> MessageConnection | None:
        """The way to the template while it is up, else None."""
        return self._connection

    @property
    def exit_code(self) -> int | None:
        """How it ended before it was up, negative for a signal; None as long as it may still come."""
        return self._process.poll() if self._connection is None else None

    def how_it_ended(self) -> str:
        """What became of it, once its connection is gone."""
        try:
            return how_it_ended(self._process.wait(_END_S_MAX))
        except subprocess.TimeoutExpired:
            return "has hung up"

    def on_ready(self, connection: MessageConnection) -> None:
        """It is up, and this is the way to it."""
        self._connection = connection
        waiting, self._waiting = self._waiting, []
        for fork in waiting:
            self.fork(fork)

    def fork(self, fork: Fork) -> None:
        if self._connection is None:
            self._waiting.append(fork)
        else:
            self._tell(self._connection, fork)

    def kill_generation(self, generation: int) -> None:
        self._waiting = [fork for fork in self._waiting if fork.generation != generation]
        if self._connection is not None:
            self._tell(self._connection, KillGeneration(generation))

    def restart(self) -> None:
        """Start another one in its place, which has no workers yet."""
        self._disconnect()
        self._kill()
        self._process = self._spawn()

    def close(self) -> None:
        """End it together with all its workers."""
        if self._connection is not None:
            self._disconnect()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S_MAX)
        self._kill()

    def _disconnect(self) -> None:
        """Without the connection it ends its workers, and itself."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _kill(self) -> None:
        if self._process.returncode is None:  # Else its id may belong to somebody else by now.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _tell(self, connection: MessageConnection, message: Fork | KillGeneration) -> None:
        # Its end is noticed where its connection is read.
        with contextlib.suppress(OSError):
            connection.send(message)

    def _spawn(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [*PYTHON, "-c", "from minirt.runtime.worker.template import main; main()"],
            stdin=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(self._start)
        return process


def how_it_ended(code: int) -> str:
    """What became of a process, by its exit code as `subprocess` gives it."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
