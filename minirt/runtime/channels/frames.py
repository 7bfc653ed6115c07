"""Frames: what travels in a channel, and their form on a wire.

A frame is `length (u32 LE) | kind (u8) | payload`. Data frames hold a batch of whole records; only they
count against a channel's credit. Control frames are tiny and always allowed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

import msgpack

from minirt.errors import ProtocolError
from minirt.protocol.barriers import Barrier


class Kind(IntEnum):
    """What a frame is."""

    ROWS = 1
    COLUMNS = 2
    WATERMARK = 3
    IDLE = 4
    ACTIVE = 5
    BARRIER = 6
    END = 7


HEADER = struct.Struct("<IB")
_WATERMARK = struct.Struct("<q")
CREDIT = struct.Struct("<QQ")
"""What a receiver sends back: bytes consumed since the channel opened, and the window beyond them."""


@dataclass(slots=True)
class Frame:
    """One element of a channel; `records` is how many a data frame holds, 0 where that is unknown."""

    kind: int
    payload: bytes = b""
    records: int = 0

    @property
    def is_data(self) -> bool:
        return self.kind <= Kind.COLUMNS

    @property
    def size(self) -> int:
        return HEADER.size + len(self.payload)

    def wire(self) -> bytes:
        return HEADER.pack(len(self.payload), self.kind) + self.payload


IDLE_FRAME = Frame(Kind.IDLE)
ACTIVE_FRAME = Frame(Kind.ACTIVE)
END_FRAME = Frame(Kind.END)


def watermark_frame(watermark: int) -> Frame:
    return Frame(Kind.WATERMARK, _WATERMARK.pack(watermark))


def watermark_of(frame: Frame) -> int:
    watermark: int = _WATERMARK.unpack(frame.payload)[0]
    return watermark


def barrier_frame(barrier: Barrier) -> Frame:
    fields = (barrier.checkpoint_id, barrier.mode, barrier.created_at, barrier.savepoint)
    return Frame(Kind.BARRIER, msgpack.packb(fields))


def barrier_of(frame: Frame) -> Barrier:
    return Barrier(*msgpack.unpackb(frame.payload))


class FrameDecoder:
    """Cuts a byte stream into frames. Raises ProtocolError on a length above `frame_bytes_max`."""

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._rest = bytearray()

    def feed(self, data: memoryview) -> list[Frame]:
        """The frames that are complete once `data` has arrived."""
        self._rest += data
        view = memoryview(self._rest)
        frames: list[Frame] = []
        position, available = 0, len(view)
        while available - position >= HEADER.size:
            length, kind = HEADER.unpack_from(view, position)
            if length > self._frame_bytes_max:
                raise ProtocolError(
                    f"a frame of {length} bytes exceeds frame_bytes_max ({self._frame_bytes_max})"
                )
            end = position + HEADER.size + length
            if end > available:
                break
            frames.append(Frame(kind, bytes(view[position + HEADER.size : end])))
            position = end
        view.release()
        del self._rest[:position]
        return frames
