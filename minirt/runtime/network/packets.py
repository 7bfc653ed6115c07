"""Packets: the form in which frames of many channels travel on one trunk.

A packet is `length (u32 LE) | channel (u32 LE) | kind (u8) | payload`. The channel is its number on the
trunk. A frame that fits is one packet. A larger one is cut, so that it holds up other channels no longer
than one packet takes: all its packets but the last say in `kind` that more follow, and the first says ahead
of its payload how large the frame is (u32 LE), so that its receiver makes room for it once. Packets of one
channel come in order; those of others may come between them. A payload may be compressed, each packet by
itself.
"""

from __future__ import annotations

import struct

import numpy as np

from minirt.errors import ProtocolError
from minirt.runtime.channels.frames import Frame
from minirt.runtime.network.compression import (
    COMPRESSED_FROM_BYTES,
    compressed,
    decompressed,
)
from minirt.wording import named

HEADER = struct.Struct("<IIB")
SIZE = struct.Struct("<I")
"""How large a frame is, behind the header of the first of its packets."""
CREDIT = struct.Struct("<IQQ")
"""What a receiver sends back: a channel, the bytes consumed since it opened, and the window beyond them."""
PAYLOAD_BYTES_MAX = 64 * 1024
_HEAD_BYTES_MAX = HEADER.size + SIZE.size
MORE = 0x80
"""Set in `kind` where the frame goes on in the next packet of its channel."""
COMPRESSED = 0x40
"""Likewise where the payload is compressed."""
BEGINS = 0x20
"""Likewise in the first packet of a frame that goes on, whose size stands behind the header."""

Piece = bytes | memoryview
"""What a system call sends or receives at one place."""


def cut(
    number: int,
    kind: int,
    payload: Piece,
    into: list[Piece],
    compress: bool = False,
    *,
    begins: bool = True,
) -> memoryview | None:
    """Append a packet of the payload of a frame; returns what is left of that, None if it was all.

    `begins` says that the payload is that of the whole frame.
    """
    rest, size = None, b""
    if len(payload) > PAYLOAD_BYTES_MAX:
        view, kind = memoryview(payload), kind | MORE
        if begins:
            size, kind = SIZE.pack(len(payload)), kind | BEGINS
        payload, rest = view[:PAYLOAD_BYTES_MAX], view[PAYLOAD_BYTES_MAX:]
    if compress and len(payload) >= COMPRESSED_FROM_BYTES and (packed := compressed(payload)):
        payload, kind = packed, kind | COMPRESSED
    into.append(HEADER.pack(len(payload), number, kind) + size)
    if payload:
        into.append(payload)
    return rest


def unsent(pieces: list[Piece], sent: int) -> list[Piece]:
    """What is left of some pieces of which the first `sent` bytes have been sent."""
    if sent == sum(map(len, pieces)):
        return []
    for index, piece in enumerate(pieces):
        if sent < len(piece):
            return [memoryview(piece)[sent:], *pieces[index + 1 :]]
        sent -= len(piece)
    return []


class _Arriving:
    """A payload that has come in part: `room` is filled from front to end."""

    def __init__(self, size: int) -> None:
        self.room = np.empty(size, np.uint8).data  # Not cleared: all of it is overwritten.
        self._size = 0
        """How much of it has come."""

    @property
    def missing(self) -> int:
        return len(self.room) - self._size

    def add(self, data: Piece) -> None:
        stop = self._size + len(data)
        self.room[self._size : stop] = data
        self._size = stop


class PacketDecoder:
    """Makes frames of the bytes that come on a trunk of `channels` channels. Copies each byte once.

    Raises ProtocolError on a channel that the trunk does not have, on a packet above its limit, on a frame
    above `frame_bytes_max`, and on one that is not as large as its first packet has said.
    """

    def __init__(self, channels: int, frame_bytes_max: int) -> None:
        self._channels = channels
        self._frame_bytes_max = frame_bytes_max
        self._head = b""
        """What has come of a head that has come in part."""
        self._packet: tuple[int, int, int] | None = None
        """Channel and kind of a packet that has come in part, and how much of its payload is missing."""
        self._packed: _Arriving | None = None
        """Its payload, if that is compressed; else it goes straight to that of its frame."""
        self._frames: dict[int, _Arriving] = {}
        """By channel, the payload of a frame that has come in part."""

    def feed(self, data: memoryview) -> list[tuple[int, Frame]]:
        """The frames that are whole once `data` has come, each with its channel."""
        frames: list[tuple[int, Frame]] = []
        if self._packet is not None:
            data = self._go_on(*self._packet, data, frames)
        while data:
            begun = len(self._head)
            head = self._read_head(self._head + data[: _HEAD_BYTES_MAX - begun] if begun else data)
            if head is None:
                self._head += data
                break
            size, length, number, kind = head
            data, self._head = data[size - begun :], b""
            if length <= len(data):
                self._add(number, kind, data[:length], frames)
                data = data[length:]
            else:
                self._begin_packet(number, kind, length)
                data = self._go_on(number, kind, length, data, frames)
        return frames

    def _read_head(self, data: memoryview | bytes) -> tuple[int, int, int, int] | None:
        """Its size, the length of the payload, channel and kind; None if it is not whole."""
        if len(data) < HEADER.size:
            return None
        length, number, kind = HEADER.unpack_from(data)
        if length > PAYLOAD_BYTES_MAX:
            raise ProtocolError(
                f"a packet of {length} bytes: a trunk takes {PAYLOAD_BYTES_MAX} at a time"
            )
        if number >= self._channels:
            raise ProtocolError(
                f"a packet for channel {number} of a trunk that has {self._channels}"
            )
        if not kind & BEGINS:
            if kind & MORE and number not in self._frames:
                raise ProtocolError("a frame goes on that has not begun")
            return HEADER.size, length, number, kind
        if number in self._frames:
            raise ProtocolError("a frame begins within another one of its channel")
        if len(data) < _HEAD_BYTES_MAX:
            return None
        [frame_bytes] = SIZE.unpack_from(data, HEADER.size)
        if frame_bytes > self._frame_bytes_max:
            raise ProtocolError(
                f"a frame of {frame_bytes} bytes exceeds {named('limits.frame_bytes_max')} "
                f"({self._frame_bytes_max})"
            )
        self._frames[number] = _Arriving(frame_bytes)
        return _HEAD_BYTES_MAX, length, number, kind

    def _begin_packet(self, number: int, kind: int, length: int) -> None:
        """The first part of a packet has come."""
        if kind & COMPRESSED:
            self._packed = _Arriving(length)
        elif number in self._frames:
            self._check_room(self._frames[number], length)
        else:
            self._frames[number] = _Arriving(length)

    def _go_on(
        self,
        number: int,
        kind: int,
        missing: int,
        data: memoryview,
        frames: list[tuple[int, Frame]],
    ) -> memoryview:
        """Add to a packet of which so much is missing; returns the data behind it."""
        part = data[:missing]
        (self._packed or self._frames[number]).add(part)
        if len(part) < missing:
            self._packet = number, kind, missing - len(part)
            return data[missing:]
        packed, self._packed, self._packet = self._packed, None, None
        if packed is not None:
            self._add(number, kind, packed.room, frames)
        elif kind < MORE:
            self._end_frame(number, kind, frames)
        return data[missing:]

    def _add(
        self, number: int, kind: int, payload: memoryview, frames: list[tuple[int, Frame]]
    ) -> None:
        """A packet has come as a whole."""
        if kind & COMPRESSED:
            payload, kind = memoryview(decompressed(payload, PAYLOAD_BYTES_MAX)), kind ^ COMPRESSED
        frame = self._frames.get(number)
        if frame is None:
            frames.append((number, Frame(kind, bytes(payload))))
            return
        self._check_room(frame, len(payload))
        frame.add(payload)
        if kind < MORE:
            self._end_frame(number, kind, frames)

    def _check_room(self, frame: _Arriving, length: int) -> None:
        if length > frame.missing:
            raise ProtocolError(
                f"a packet of {length} bytes for a frame of which {frame.missing} are missing"
            )

    def _end_frame(self, number: int, kind: int, frames: list[tuple[int, Frame]]) -> None:
        frame = self._frames.pop(number)
        if frame.missing:
            raise ProtocolError(f"a frame has ended of which {frame.missing} bytes are missing")
        frames.append((number, Frame(kind, frame.room.toreadonly())))
