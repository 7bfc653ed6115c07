"""Channels over stream sockets on one machine: Unix domain sockets, or TCP over the loopback address.

Data flows one way as frames, credit the other way. Both ends are non-blocking. How they find each other is
in `minirt.runtime.worker.rendezvous`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from minirt.clock import SYSTEM_CLOCK
from minirt.runtime.channels.channels import InputChannel, OutputChannel
from minirt.runtime.channels.frames import CREDIT, Frame, FrameDecoder
from minirt.runtime.channels.transit import Transit, departing

Address = str | tuple[str, int]
"""A path of a Unix socket, or host and port."""

TOKEN_BYTES = 32
_SEND_BYTES = 128 * 1024


def listen(folder: str, name: str, transport: str) -> tuple[socket.socket, Address]:
    """A listening socket, in `folder` or on a free port of this host, and where it can be reached."""
    if transport == "unix":
        path = os.path.join(folder, name)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        address: Address = path
    else:
        listener = socket.socket(socket.AF_INET)
        listener.bind(("127.0.0.1", 0))
        address = listener.getsockname()
    listener.listen(4096)
    return listener, address


def connected(address: Address, timeout_s: float) -> socket.socket:
    """A blocking socket with somebody at the other end. Raises OSError."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    sock = socket.socket(family)
    try:
        sock.settimeout(timeout_s)
        sock.connect(address)
        if family == socket.AF_INET:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError:
        sock.close()
        raise
    return sock


class SocketSender:
    """Sends what an output channel holds and its credit allows."""

    def __init__(
        self,
        sock: socket.socket,
        channel: OutputChannel,
        monotonic: Callable[[], float] = SYSTEM_CLOCK.monotonic,
    ) -> None:
        self.sock = sock
        self.channel = channel
        self._monotonic = monotonic
        self._under_way = memoryview(b"")
        self._credit = bytearray()

    def send(self) -> bool:
        """Send until nothing is left or the socket takes no more; True if it takes no more."""
        while True:
            if not self._under_way:
                chunk = self._next_chunk()
                if not chunk:
                    return False
                self._under_way = memoryview(chunk)
            try:
                sent = self.sock.send(self._under_way)
            except BlockingIOError:
                return True
            self._under_way = self._under_way[sent:]

    def on_readable(self) -> bool:
        """Take in credit; False once the receiver is gone."""
        try:
            data = self.sock.recv(4096)
        except BlockingIOError:
            return True
        if not data:
            return False
        self._credit += data
        whole = len(self._credit) // CREDIT.size * CREDIT.size
        if whole:
            consumed, window = CREDIT.unpack_from(self._credit, whole - CREDIT.size)
            del self._credit[:whole]
            self.channel.on_credit(consumed, window)
        return True

    def _next_chunk(self) -> bytes:
        parts: list[bytes] = []
        size = 0
        while size < _SEND_BYTES and (frame := self.channel.poll()) is not None:
            parts.append(departing(frame, self._monotonic()).wire())
            size += frame.size
        return parts[0] if len(parts) == 1 else b"".join(parts)


class SocketReceiver:
    """Takes in frames of a channel as soon as they are there: credit bounds how many that can be.

    `on_stuck` is called when the socket takes no more credit: `flush_credit` once it does again.
    """

    def __init__(
        self,
        sock: socket.socket,
        channel: InputChannel,
        deliver: Callable[[Frame], None],
        frame_bytes_max: int,
        on_stuck: Callable[[SocketReceiver], None],
        monotonic: Callable[[], float] = SYSTEM_CLOCK.monotonic,
    ) -> None:
        self.sock = sock
        self._deliver = deliver
        self._on_stuck = on_stuck
        self._monotonic = monotonic
        self._transit = Transit()
        self._decoder = FrameDecoder(frame_bytes_max)
        self._credit = b""
        channel.grant = self._grant

    def on_readable(self, buffer: memoryview) -> bool:
        """Deliver what has arrived; False once the sender is gone."""
        try:
            count = self.sock.recv_into(buffer)
        except BlockingIOError:
            return True
        if not count:
            return False
        for frame in self._decoder.feed(buffer[:count]):
            self._deliver(self._transit.frame(frame, self._monotonic()))
        return True

    def flush_credit(self) -> bool:
        """Send credit that the socket did not take; True if it still does not."""
        while self._credit:
            try:
                self._credit = self._credit[self.sock.send(self._credit) :]
            except BlockingIOError:
                return True
        return False

    def _grant(self, consumed_bytes: int, window_bytes: int) -> None:
        # Only the newest credit counts, but one that is partly sent must be completed first.
        partial = self._credit[: len(self._credit) % CREDIT.size]
        self._credit = partial + CREDIT.pack(consumed_bytes, window_bytes)
        try:
            if self.flush_credit():
                self._on_stuck(self)
        except OSError:
            self._credit = b""  # The sender is gone; the coordinator hears of that from its worker.
