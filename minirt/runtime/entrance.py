"""Where workers and the template reach their coordinator, and prove the job's token."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge

from minirt.runtime.sockets import listen

_HANDSHAKE_S_MAX = 5.0
_SEND_S_MAX = 5.0
"""How long a process may refuse to take a message, before its connection counts as broken."""


class Entrance:
    """Lets in who knows the token; nothing that others send is unpickled.

    Each caller is examined in a thread of its own, so that one who stays silent, or dies meanwhile,
    keeps nobody waiting. `admit` is called from these threads.
    """

    def __init__(
        self, folder: str, transport: str, token: bytes, admit: Callable[[Connection], None]
    ) -> None:
        self.listener, self.address = listen(folder, "coordinator", transport)
        """Readable when somebody has come."""
        self.listener.setblocking(False)
        self._token = token
        self._admit = admit

    def accept(self) -> None:
        """Begin to examine everybody who has come."""
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:  # Nobody is left, or somebody has gone again.
                return
            threading.Thread(
                target=self._examine, args=(sock,), name="minirt-entrance", daemon=True
            ).start()

    def close(self) -> None:
        self.listener.close()

    def _examine(self, sock: socket.socket) -> None:
        with sock:
            sock.setblocking(True)
            connection = Connection(os.dup(sock.fileno()))
            try:
                _limit(sock, socket.SO_SNDTIMEO, _SEND_S_MAX)
                _limit(sock, socket.SO_RCVTIMEO, _HANDSHAKE_S_MAX)
                deliver_challenge(connection, self._token)
                answer_challenge(connection, self._token)
                _limit(sock, socket.SO_RCVTIMEO, 0.0)
            except Exception:
                connection.close()
                return
        self._admit(connection)


def _limit(sock: socket.socket, option: int, seconds: float) -> None:
    """Let blocking calls fail after this time; 0 for never."""
    whole = int(seconds)
    sock.setsockopt(
        socket.SOL_SOCKET, option, struct.pack("ll", whole, int((seconds - whole) * 1e6))
    )
