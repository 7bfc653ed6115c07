"""How the processes of a job reach each other: Unix sockets on one machine, TCP and TLS between hosts."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field

from minirt.runtime.network.tls import Certificate, Fingerprint, TlsSocket

Address = str | tuple[str, int]
"""A path of a Unix socket, or host and port."""

Socket = socket.socket | TlsSocket

TOKEN_BYTES = 32

_BACKLOG = 4096
_EVERY_ADDRESS = ("0.0.0.0", "::")
_KEEPALIVE = (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 5))
"""A machine that is gone says nothing: after 15 s of silence the kernel takes it for lost."""
_UNACKNOWLEDGED_MS_MAX = 15_000
_UNSENT_BYTES_MAX = 128 * 1024
"""What the kernel holds beyond what is on its way: barriers that overtake data do not overtake that."""


@dataclass(frozen=True, slots=True)
class Network:
    """What a process binds, and what it proves to others. `folder` is its host's, and private to the user.

    With an `interface`, an address of this host, it listens there by TCP, else in the folder.
    """

    token: bytes = field(repr=False)
    folder: str
    interface: str | None = None
    certificate: Certificate | None = None
    compress: bool = False
    """Whether data that goes to another host is compressed."""

    def listen(self, name: str, port: int = 0) -> tuple[socket.socket, Address]:
        """A listening socket, and where it can be reached. Raises OSError."""
        if self.interface is None:
            path = os.path.join(self.folder, name)
            listener = socket.socket(socket.AF_UNIX)
            address: Address = path
        else:
            listener = socket.socket(_family(self.interface))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            address = (self.interface, port)
        try:
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
        return listener, address if isinstance(address, str) else listener.getsockname()[:2]

    def compresses(self, sock: Socket) -> bool:
        """Whether what is sent there is to be compressed: both ends of one address are on one host."""
        return self.compress and sock.getsockname()[0] != sock.getpeername()[0]

    def accepted(self, sock: socket.socket) -> Socket:
        """The connection of somebody who has called."""
        _set_up(sock)
        return sock if self.certificate is None else self.certificate.server(sock)


def connected(
    address: Address, timeout_s: float, certificate: Certificate | Fingerprint | None = None
) -> Socket:
    """A blocking socket with somebody at the other end, who must own the certificate. Raises OSError."""
    sock = socket.socket(socket.AF_UNIX if isinstance(address, str) else _family(address[0]))
    try:
        sock.settimeout(timeout_s)
        sock.connect(address)
        _set_up(sock)
    except OSError:
        sock.close()
        raise
    return sock if certificate is None else certificate.client(sock)


def shown(address: Address) -> str:
    """As users write it."""
    if isinstance(address, str):
        return address
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reachable(address: Address) -> Address:
    """What to tell others, who cannot call "every address"."""
    if isinstance(address, str) or address[0] not in _EVERY_ADDRESS:
        return address
    return socket.gethostname(), address[1]


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _set_up(sock: socket.socket) -> None:
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES_MAX)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS_MAX)
