"""Where others reach a job, and prove its token."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from functools import partial

from minirt.errors import MinirtError
from minirt.monitoring.logs import logger_of
from minirt.runtime.control.handshake import welcome
from minirt.runtime.network.sockets import Network, Socket, shown
from minirt.threads import start_thread

logger = logger_of("coordinator")

_HANDSHAKE_S_MAX = 5.0
_SEND_S_MAX = 5.0
"""How long a process may refuse to take a message, before its connection counts as broken."""
_VISITORS_MAX = 256
"""How many are examined at a time; then the oldest has to go, since whoever knows the token is quick."""
_ACCEPTED_MAX = 64
"""How many are let to the door at a time: a crowd must not keep the coordinator from all else."""


class Entrance:
    """Admits callers that know the token of the network, and interprets nothing that others send.

    Each caller is examined in a thread of its own, so that one who stays silent, or dies meanwhile,
    keeps nobody waiting. `admit` is called from these threads. The first stranger is logged.
    """

    def __init__(self, network: Network, admit: Callable[[Socket], None], port: int = 0) -> None:
        self.listener, self.address = network.listen("coordinator", port)
        """Readable when somebody has come."""
        self.listener.setblocking(False)
        self._network = network
        self._admit = admit
        self._visitors: dict[socket.socket, None] = {}
        """Those under examination, the oldest first."""
        self._lock = threading.Condition()
        """Notified when somebody was examined."""
        self._strangers = 0
        self._closed = False

    def accept(self) -> bool:
        """Begin to examine those who have come. False if nobody could be let to the door."""
        for count in range(_ACCEPTED_MAX):
            try:
                sock, whence = self.listener.accept()
            except OSError:  # Nobody is left, or somebody has gone again.
                return count > 0
            with self._lock:
                self._visitors[sock] = None
                oldest = next(iter(self._visitors)) if len(self._visitors) > _VISITORS_MAX else None
                if oldest is not None:
                    # The next one in its place is another, however slow it is.
                    del self._visitors[oldest]
            if oldest is not None:
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # Its own thread closes it.
            try:
                start_thread("minirt-entrance", partial(self._examine, sock, str(whence)), _refused)
            except RuntimeError:  # No thread can be had, and whoever has come may call again.
                with self._lock:
                    self._visitors.pop(sock, None)
                sock.close()
                return False
        return True

    def finish(self, patience_s: float) -> None:
        """Examine who has come by now, and wait until they are, for at most so many seconds.

        Whom nobody has accepted by `close` is cut off, though the system has taken the connection.
        """
        self.accept()
        with self._lock:
            self._lock.wait_for(lambda: not self._visitors, patience_s)

    def close(self) -> None:
        """Let nobody in any more; whoever was admitted until now has been handed over."""
        with self._lock:
            self._closed = True
        self.listener.close()
        if self._strangers > 1:
            logger.warning(
                "%d strangers were turned away at %s in all", self._strangers, shown(self.address)
            )

    def _examine(self, raw: socket.socket, whence: str) -> None:
        known, why = False, "it does not know the job's token"
        sock: Socket = raw
        try:
            sock = self._network.accepted(raw)
            known = welcome(sock, self._network.token, _HANDSHAKE_S_MAX)
        except (OSError, MinirtError) as error:
            why = str(error)
        with self._lock:
            self._visitors.pop(raw, None)
            self._lock.notify_all()
            self._strangers += not known
            first = not known and self._strangers == 1
            if known and not self._closed:
                _limit_sending(sock)
                self._admit(sock)
                return
        sock.close()
        if first and self._network.interface is not None:
            logger.warning(
                "a stranger from %s was turned away at %s: %s",
                *(whence or "this machine", shown(self.address), why),
            )


def _refused(error: BaseException) -> None:
    """The caller gives up, and its generation fails."""
    logger.error("a caller could not be admitted: %s", error, exc_info=error)


def _limit_sending(sock: Socket) -> None:
    """Let calls that send fail after a time; those that read wait for nothing anyway."""
    if not isinstance(sock, socket.socket):
        sock.settimeout(_SEND_S_MAX)
        return
    whole = int(_SEND_S_MAX)
    timeval = struct.pack("ll", whole, int((_SEND_S_MAX - whole) * 1e6))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)
