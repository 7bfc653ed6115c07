"""Ends the wait of a loop that waits for sockets."""

from __future__ import annotations

import contextlib
import socket


class Waker:
    """Any thread may call `wake`. The loop waits until `receiver` can be read, and then calls `calm`."""

    def __init__(self) -> None:
        self.receiver, self._sender = socket.socketpair()
        self.receiver.setblocking(False)
        self._sender.setblocking(False)
        self._awake = False
        """Whether somebody has woken the loop since it last calmed down: then nobody else need."""

    def wake(self) -> None:
        if self._awake:
            return
        self._awake = True
        with contextlib.suppress(BlockingIOError):  # It is awake if there is no room for one more.
            self._sender.send(b"\0")

    def calm(self) -> None:
        """Wait again from here on; whatever it was woken for has to be looked at after this."""
        with contextlib.suppress(BlockingIOError):
            self.receiver.recv(4096)
        self._awake = False  # Behind the read: what that swallows would wake nobody any more.
