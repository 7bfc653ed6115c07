"""A worker's connection to its coordinator."""

from __future__ import annotations

import os
import threading
import time
import traceback
from contextlib import AbstractContextManager, suppress
from multiprocessing.connection import wait
from typing import Any

from minirt.protocol.job_events import StopWorkers
from minirt.runtime.control.connection import MessageConnection, connect_to
from minirt.runtime.control.messages import LifelineOpened, ToCoordinator
from minirt.runtime.network.sockets import Address, Network
from minirt.threads import repeating, start_thread

ORPHANED_EXIT = 70
"""Exit code of a worker whose coordinator is gone."""
BROKEN_EXIT = 71
"""Exit code of a worker that has lost a thread it cannot do without."""


class Control:
    """Messages both ways; the process ends as soon as the coordinator turns out to be gone."""

    def __init__(self, connection: MessageConnection) -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def fileno(self) -> int:
        """Readable when something has arrived."""
        return self._connection.fileno()

    def receive(self) -> Any:
        """The next message, waiting for it."""
        try:
            return self._connection.receive()
        except (EOFError, OSError):
            os._exit(ORPHANED_EXIT)

    def arrived(self) -> list[Any]:
        """The messages that are there."""
        try:
            return self._connection.arrived()
        except (EOFError, OSError):
            os._exit(ORPHANED_EXIT)

    def is_told_to_stop(self, timeout_s: float) -> bool:
        """Whether the coordinator ends the worker within this time; other messages go unread."""
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            if not wait([self.fileno()], left_s):
                return False
            if any(isinstance(message, StopWorkers) for message in self.arrived()):
                return True
        return False

    def send(self, message: ToCoordinator) -> None:
        """May be called from any thread. Raises UnsendableError for what no message can carry."""
        try:
            with self._sending:
                self._connection.send(message)
        except OSError:
            os._exit(ORPHANED_EXIT)

    def repeating(self, message: ToCoordinator, interval_s: float) -> AbstractContextManager[None]:
        """Send the message now and then while the body runs."""
        return repeating("signs-of-life", interval_s, lambda: self.send(message), end_broken)


def end_broken(error: BaseException) -> None:
    """A thread has ended that the worker cannot do without: so does the process, and its template tells."""
    traceback.print_exception(error)
    os._exit(BROKEN_EXIT)


def end_with_coordinator(address: Address, network: Network) -> None:
    """End this process as soon as the coordinator is gone, whatever the user's code is doing.

    Only code that keeps the interpreter to itself can delay it; then the template kills the process.
    """
    lifeline = connect_to(address, network)
    lifeline.send(LifelineOpened())

    def wait() -> None:
        with suppress(EOFError, OSError):
            lifeline.receive()
        os._exit(ORPHANED_EXIT)

    start_thread("lifeline", wait, end_broken)
