"""A worker's connection to its coordinator."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Client, Connection
from typing import Any

from minirt.runtime.messages import LifelineOpened, ToCoordinator
from minirt.runtime.sockets import Address

ORPHANED_EXIT = 70
"""Exit code of a worker whose coordinator is gone."""


class Control:
    """Messages both ways; the process ends as soon as the coordinator turns out to be gone."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def fileno(self) -> int:
        """Readable when a message waits."""
        return self._connection.fileno()

    @property
    def waiting(self) -> bool:
        """Whether `receive` would return at once."""
        try:
            return self._connection.poll()
        except OSError:
            os._exit(ORPHANED_EXIT)

    def receive(self) -> Any:
        """The next message."""
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            os._exit(ORPHANED_EXIT)

    def send(self, message: ToCoordinator) -> None:
        """May be called from any thread."""
        try:
            with self._sending:
                self._connection.send(message)
        except OSError:
            os._exit(ORPHANED_EXIT)

    @contextmanager
    def repeating(self, message: ToCoordinator, interval_s: float) -> Iterator[None]:
        """Send the message now and then while the body runs."""
        over = threading.Event()

        def repeat() -> None:
            while not over.wait(interval_s):
                self.send(message)

        thread = threading.Thread(target=repeat, name="signs-of-life", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def end_with_coordinator(address: Address, token: bytes) -> None:
    """End this process as soon as the coordinator is gone, whatever the user's code is doing.

    Only code that keeps the interpreter to itself can delay it; then the template kills the process.
    """
    lifeline = Client(address, authkey=token)
    lifeline.send(LifelineOpened())

    def wait() -> None:
        with suppress(EOFError, OSError):
            lifeline.recv_bytes()
        os._exit(ORPHANED_EXIT)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()
