"""What other threads leave for the one that polls, and what wakes it."""

from __future__ import annotations

import contextlib
import queue
import socket
from collections.abc import Callable


class Inbox:
    """Readable once something was left, or somebody woke whoever polls."""

    def __init__(self) -> None:
        self._left: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._receiver, self._sender = socket.socketpair()
        self._receiver.setblocking(False)
        self._sender.setblocking(False)

    def fileno(self) -> int:
        return self._receiver.fileno()

    def leave(self, what: Callable[[], None]) -> None:
        """Have the thread that polls do something; may be called from any thread."""
        self._left.put(what)
        self.wake()

    def wake(self) -> None:
        """May be called from any thread, also when all is closed."""
        with contextlib.suppress(OSError):
            self._sender.send(b"\0")

    def serve(self) -> None:
        """Do what was left; to be called when this is readable."""
        self._receiver.recv(4096)
        self.do_all()

    def close(self) -> None:
        self.do_all()
        self._receiver.close()
        self._sender.close()

    def do_all(self) -> None:
        """Do what was left until now, readable or not."""
        while not self._left.empty():
            self._left.get()()
