"""Trunks: all channels from a worker to another, on one stream socket of whatever kind `network` makes.

Frames go one way, in packets (`packets.py`) and in turns (`turns.py`); credit for each channel goes the
other way. Both ends are non-blocking. How they find each other is in `minirt.runtime.worker.rendezvous`.
Both count the channels alike: their place in the sequence that each end is given is their number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from minirt.clock import SYSTEM_CLOCK
from minirt.errors import ProtocolError
from minirt.runtime.channels.channels import InputChannel, OutputChannel
from minirt.runtime.channels.frames import Frame
from minirt.runtime.network.packets import CREDIT, PacketDecoder, Piece, unsent
from minirt.runtime.network.sockets import Socket
from minirt.runtime.network.transit import Transit
from minirt.runtime.network.turns import Turns

_CREDITS_BYTES = 32 * 1024


class TrunkSender:
    """Sends what output channels hold and their credit allows. `on_woken` is called when one may send."""

    def __init__(
        self,
        sock: Socket,
        channels: Sequence[OutputChannel],
        on_woken: Callable[[TrunkSender], None],
        monotonic: Callable[[], float] = SYSTEM_CLOCK.monotonic,
        compress: bool = False,
    ) -> None:
        self.sock = sock
        self._channels = channels
        self._turns = Turns(channels, partial(on_woken, self), monotonic, compress)
        self._under_way: list[Piece] = []
        self._credits = bytearray()

    def send(self) -> bool:
        """Send until nothing is left or the socket takes no more; True if it takes no more."""
        while True:
            if not self._under_way:
                self._under_way = self._turns.batch()
                if not self._under_way:
                    return False
            try:
                sent = self.sock.sendmsg(self._under_way)
            except BlockingIOError:
                return True
            self._under_way = unsent(self._under_way, sent)

    def on_readable(self) -> bool:
        """Take in credit; False once the receiver is gone."""
        try:
            data = self.sock.recv(_CREDITS_BYTES)
        except BlockingIOError:
            return True
        if not data:
            return False
        self._credits += data
        whole = len(self._credits) // CREDIT.size * CREDIT.size
        for number, consumed, window in CREDIT.iter_unpack(self._credits[:whole]):
            if number >= len(self._channels):
                raise ProtocolError(
                    f"credit for channel {number} of a trunk that has {len(self._channels)}"
                )
            self._channels[number].on_credit(consumed, window)
        del self._credits[:whole]
        return True


class TrunkReceiver:
    """Takes in frames as soon as they are there: credit bounds how many that can be.

    `deliver` is called with the number of a channel and its frame, `on_stuck` when the socket takes no more
    credit: `flush_credit` once it does again.
    """

    def __init__(
        self,
        sock: Socket,
        channels: Sequence[InputChannel],
        deliver: Callable[[int, Frame], None],
        frame_bytes_max: int,
        on_stuck: Callable[[TrunkReceiver], None],
        monotonic: Callable[[], float] = SYSTEM_CLOCK.monotonic,
    ) -> None:
        self.sock = sock
        self._deliver = deliver
        self._on_stuck = on_stuck
        self._monotonic = monotonic
        self._transit = Transit()
        self._decoder = PacketDecoder(len(channels), frame_bytes_max)
        self._credit = memoryview(b"")
        """What the socket has not taken of credits that are on their way."""
        self._newest: dict[int, bytes] = {}
        """By channel, credit that comes behind it."""
        for number, channel in enumerate(channels):
            channel.grant = partial(self._grant, number)

    def on_readable(self, buffer: memoryview) -> bool:
        """Deliver what has arrived; False once the sender is gone.

        Credit bounds it. All is taken in: else a barrier behind the data of other channels would wait for
        one more call of a function of the user for each buffer that is filled.
        """
        count = len(buffer)
        while count == len(buffer):
            try:
                count = self.sock.recv_into(buffer)
            except BlockingIOError:
                return True
            if not count:
                return False
            now = self._monotonic()
            for number, frame in self._decoder.feed(buffer[:count]):
                if not frame.is_data:
                    frame = self._transit.frame(frame, now)
                self._deliver(number, frame)
        return True

    def flush_credit(self) -> bool:
        """Send credit that the socket did not take; True if it still does not."""
        while self._credit or self._newest:
            if not self._credit:
                self._credit, self._newest = memoryview(b"".join(self._newest.values())), {}
            try:
                self._credit = self._credit[self.sock.send(self._credit) :]
            except BlockingIOError:
                return True
        return False

    def _grant(self, number: int, consumed_bytes: int, window_bytes: int) -> None:
        # Only the newest credit of a channel counts, but one that is on its way must be completed first.
        self._newest[number] = CREDIT.pack(number, consumed_bytes, window_bytes)
        try:
            if self.flush_credit():
                self._on_stuck(self)
        except OSError:
            # The sender is gone; the coordinator hears of that from its worker.
            self._credit, self._newest = memoryview(b""), {}
