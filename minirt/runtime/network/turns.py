"""Whose frames go next on a trunk.

Control frames at the head of a queue go first: barriers must not wait for the data of other channels. All
else goes in turns. A channel whose turn it is sends frames until it has sent `TURN_BYTES`, or nothing is
left, or credit does not reach; a frame larger than a packet goes on at its next turn. So nobody waits for
longer than one turn of each other channel, and a channel without credit holds up nobody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from minirt.clock import SYSTEM_CLOCK
from minirt.runtime.channels.channels import OutputChannel
from minirt.runtime.channels.frames import Frame
from minirt.runtime.network.packets import HEADER, Piece, cut
from minirt.runtime.network.transit import departing

TURN_BYTES = 32 * 1024
BATCH_BYTES = 128 * 1024
BATCH_PIECES = 1000
"""A system call takes 1024 pieces at most."""


class Turns:
    """Deals turns to the channels of a trunk. `on_woken` is called whenever one of them may send."""

    def __init__(
        self,
        channels: Sequence[OutputChannel],
        on_woken: Callable[[], None],
        monotonic: Callable[[], float] = SYSTEM_CLOCK.monotonic,
        compress: bool = False,
    ) -> None:
        self._channels = channels
        self._compress = compress
        self._on_woken = on_woken
        self._monotonic = monotonic
        self._urgent: set[int] = set()
        """Channels that had a control frame at their head when they were woken: all go before any data."""
        self._line: deque[int] = deque()
        """Channels that wait for their turn: each one that may send, or has sent a part of a frame."""
        self._in_line = [False] * len(channels)
        self._sent_at = 0.0
        """When the batch that is made is sent, as its barriers say."""
        self._begun: dict[int, tuple[int, memoryview]] = {}
        """The kind and the rest of frames of which a part was sent."""
        for number, channel in enumerate(channels):
            channel.wake = partial(self._wake, number)
            if channel.sendable:
                self._wake(number)

    def batch(self) -> list[Piece]:
        """Packets to be sent in one go: `BATCH_BYTES` and a turn at most, none if nobody may send."""
        pieces: list[Piece] = []
        size = 0
        self._sent_at = self._monotonic()
        while size < BATCH_BYTES and len(pieces) < BATCH_PIECES:
            if self._urgent:
                size += self._hurry(self._urgent.pop(), pieces)
            elif self._line:
                size += self._turn(self._line.popleft(), pieces)
            else:
                break
        return pieces

    def _wake(self, number: int) -> None:
        if self._channels[number].control_is_next:
            self._urgent.add(number)
        if not self._in_line[number]:
            self._in_line[number] = True
            self._line.append(number)
        self._on_woken()

    def _hurry(self, number: int, pieces: list[Piece]) -> int:
        """Send the control frames at the head of a queue, unless they are behind a frame that has begun."""
        channel, size = self._channels[number], 0
        while number not in self._begun and channel.control_is_next:
            frame = channel.poll()
            if frame is None:
                break
            size += self._send(number, frame, pieces)
        return size

    def _turn(self, number: int, pieces: list[Piece]) -> int:
        channel, size = self._channels[number], 0
        while size < TURN_BYTES and len(pieces) < BATCH_PIECES:
            if number in self._begun:
                kind, rest = self._begun.pop(number)
                size += self._send_piece(number, kind, rest, pieces, begins=False)
                continue
            frame = channel.poll()
            if frame is None:
                self._in_line[number] = False
                return size
            size += self._send(number, frame, pieces)
        self._line.append(number)
        return size

    def _send(self, number: int, frame: Frame, pieces: list[Piece]) -> int:
        if not frame.is_data:
            frame = departing(frame, self._sent_at)
        return self._send_piece(number, frame.kind, frame.payload, pieces, begins=True)

    def _send_piece(
        self, number: int, kind: int, payload: Piece, pieces: list[Piece], *, begins: bool
    ) -> int:
        rest = cut(number, kind, payload, pieces, self._compress, begins=begins)
        if rest is None:
            return HEADER.size + len(payload)
        self._begun[number] = (kind, rest)
        return HEADER.size + len(payload) - len(rest)
