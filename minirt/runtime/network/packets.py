"""Packets: the form in which frames of many channels travel on one trunk.

A packet is `length (u32 LE) | channel (u32 LE) | kind (u8) | payload`. The channel is its number on the
trunk. A frame that fits is one packet. A larger one is cut, so that it holds up other channels no longer
than one packet takes: all its packets but the last say in `kind` that more follow. Packets of one channel
come in order; those of others may come between them. A payload may be compressed, each packet by itself.
"""

from __future__ import annotations

import struct

from minirt.errors import ProtocolError
from minirt.runtime.channels.frames import Frame
from minirt.runtime.network.compression import (
    COMPRESSED_FROM_BYTES,
    compressed,
    decompressed,
)

HEADER = struct.Struct("<IIB")
CREDIT = struct.Struct("<IQQ")
"""What a receiver sends back: a channel, the bytes consumed since it opened, and the window beyond them."""
PAYLOAD_BYTES_MAX = 64 * 1024
MORE = 0x80
"""Set in `kind` where the frame goes on in the next packet of its channel."""
COMPRESSED = 0x40
"""Likewise where the payload is compressed."""

Piece = bytes | memoryview
"""What a system call sends or receives at one place."""


def cut(
    number: int, kind: int, payload: Piece, into: list[Piece], compress: bool = False
) -> memoryview | None:
    """Append a packet of the payload of a frame; returns what is left of that, None if it was all."""
    rest = None
    if len(payload) > PAYLOAD_BYTES_MAX:
        view, kind = memoryview(payload), kind | MORE
        payload, rest = view[:PAYLOAD_BYTES_MAX], view[PAYLOAD_BYTES_MAX:]
    if compress and len(payload) >= COMPRESSED_FROM_BYTES and (packed := compressed(payload)):
        payload, kind = packed, kind | COMPRESSED
    into.append(HEADER.pack(len(payload), number, kind))
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


class PacketDecoder:
    """Makes frames of the bytes that come on a trunk of `channels` channels.

    Raises ProtocolError on a channel that the trunk does not have, on a packet above its limit, and on a
    frame above `frame_bytes_max`.
    """

    def __init__(self, channels: int, frame_bytes_max: int) -> None:
        self._channels = channels
        self._frame_bytes_max = frame_bytes_max
        self._packet = bytearray()
        """A packet that has come in part."""
        self._frames: dict[int, bytearray] = {}
        """By channel, the payload of a frame that has come in part."""

    def feed(self, data: memoryview) -> list[tuple[int, Frame]]:
        """The frames that are whole once `data` has come, each with its channel."""
        frames: list[tuple[int, Frame]] = []
        if self._packet:
            data = self._complete(data, frames)
        position, available = 0, len(data)
        while available - position >= HEADER.size:
            length, number, kind = self._header(data, position)
            start = position + HEADER.size
            if start + length > available:
                break
            position = start + length
            self._add(number, kind, data[start:position], frames)
        self._packet += data[position:]
        return frames

    def _complete(self, data: memoryview, frames: list[tuple[int, Frame]]) -> memoryview:
        """Add to the packet that has come in part; returns the data behind it."""
        packet = self._packet
        data = self._fill(data, HEADER.size)
        if len(packet) < HEADER.size:
            return data
        length, number, kind = self._header(packet, 0)
        data = self._fill(data, HEADER.size + length)
        if len(packet) == HEADER.size + length:
            self._add(number, kind, packet[HEADER.size :], frames)
            packet.clear()
        return data

    def _fill(self, data: memoryview, size: int) -> memoryview:
        missing = max(0, size - len(self._packet))
        self._packet += data[:missing]
        return data[missing:]

    def _header(self, data: memoryview | bytearray, position: int) -> tuple[int, int, int]:
        length, number, kind = HEADER.unpack_from(data, position)
        if length > PAYLOAD_BYTES_MAX:
            raise ProtocolError(
                f"a packet of {length} bytes: a trunk takes {PAYLOAD_BYTES_MAX} at a time"
            )
        if number >= self._channels:
            raise ProtocolError(
                f"a packet for channel {number} of a trunk that has {self._channels}"
            )
        return length, number, kind

    def _add(
        self,
        number: int,
        kind: int,
        payload: memoryview | bytearray,
        frames: list[tuple[int, Frame]],
    ) -> None:
        if kind & COMPRESSED:
            payload, kind = memoryview(decompressed(payload, PAYLOAD_BYTES_MAX)), kind ^ COMPRESSED
        if kind < MORE and number not in self._frames:
            frames.append((number, Frame(kind, bytes(payload))))
            return
        whole = self._frames.setdefault(number, bytearray())
        whole += payload
        if len(whole) > self._frame_bytes_max:
            raise ProtocolError(
                f"a frame of {len(whole)} bytes or more exceeds frame_bytes_max "
                f"({self._frame_bytes_max})"
            )
        if kind < MORE:
            del self._frames[number]
            frames.append((number, Frame(kind, bytes(whole))))
