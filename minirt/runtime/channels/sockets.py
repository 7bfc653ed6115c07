"""Channels over stream sockets, of whatever kind their `network` makes them.

Data flows one way as frames, credit the other way. Both ends are non-blocking. How they find each other is
in `minirt.runtime.worker.rendezvous`.
"""

from __future__ import annotations

from collections.abc import Callable

from minirt.clock import SYSTEM_CLOCK
from minirt.runtime.channels.channels import InputChannel, OutputChannel
from minirt.runtime.channels.frames import CREDIT, Frame, FrameDecoder
from minirt.runtime.channels.network import Socket
from minirt.runtime.channels.transit import Transit, departing

_SEND_BYTES = 128 * 1024


class SocketSender:
    """Sends what an output channel holds and its credit allows."""

    def __init__(
        self,
        sock: Socket,
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
        sock: Socket,
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
        self._credit = memoryview(b"")
        """What the socket has not taken of a credit that is on its way."""
        self._newest = b""
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
        while self._credit or self._newest:
            if not self._credit:
                self._credit, self._newest = memoryview(self._newest), b""
            try:
                self._credit = self._credit[self.sock.send(self._credit) :]
            except BlockingIOError:
                return True
        return False

    def _grant(self, consumed_bytes: int, window_bytes: int) -> None:
        # Only the newest credit counts, but one that is on its way must be completed first.
        self._newest = CREDIT.pack(consumed_bytes, window_bytes)
        try:
            if self.flush_credit():
                self._on_stuck(self)
        except OSError:
            # The sender is gone; the coordinator hears of that from its worker.
            self._credit, self._newest = memoryview(b""), b""
