"""Where workers and the template reach their coordinator, and prove the job's token."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable
from functools import partial

from minirt.errors import MinirtError
from minirt.monitoring.logs import logger_of
from minirt.runtime.channels.sockets import listen
from minirt.runtime.control.connection import MessageConnection
from minirt.runtime.control.handshake import welcome
from minirt.threads import start_thread

logger = logger_of("coordinator")

_HANDSHAKE_S_MAX = 5.0
_SEND_S_MAX = 5.0
"""How long a process may refuse to take a message, before its connection counts as broken."""


class Entrance:
    """Admits callers that know the connection token, and unpickles nothing that others send.

    Each caller is examined in a thread of its own, so that one who stays silent, or dies meanwhile,
    keeps nobody waiting. `admit` is called from these threads.
    """

    def __init__(
        self,
        folder: str,
        transport: str,
        token: bytes,
        admit: Callable[[MessageConnection], None],
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
            start_thread("minirt-entrance", partial(self._examine, sock), _refused)

    def close(self) -> None:
        self.listener.close()

    def _examine(self, sock: socket.socket) -> None:
        known = False
        with contextlib.suppress(OSError, MinirtError):
            known = welcome(sock, self._token, _HANDSHAKE_S_MAX)
            _limit_sending(sock)
        if known:
            self._admit(MessageConnection(sock))
        else:
            sock.close()


def _refused(error: BaseException) -> None:
    """The caller gives up, and its generation fails."""
    logger.error("a caller could not be admitted: %s", error, exc_info=error)


def _limit_sending(sock: socket.socket) -> None:
    """Let calls that send fail after a time; those that read wait."""
    whole = int(_SEND_S_MAX)
    timeval = struct.pack("ll", whole, int((_SEND_S_MAX - whole) * 1e6))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)
