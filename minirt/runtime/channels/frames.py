"""Frames: what travels in a channel, and their form on disk; `packets.py` has that between workers.

A frame is `length (u32 LE) | kind (u8) | payload`. Data frames hold a batch of whole records; only they
count against a channel's credit. Control frames are tiny and always allowed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

import msgpack

from minirt.protocol.barriers import Barrier
from minirt.runtime.channels.latency_marker import LatencyMarker


class Kind(IntEnum):
    """What a frame is."""

    ROWS = 1
    COLUMNS = 2
    WATERMARK = 3
    IDLE = 4
    ACTIVE = 5
    BARRIER = 6
    END = 7
    MARK = 8
    LATENCY = 9


HEADER = struct.Struct("<IB")
_WATERMARK = struct.Struct("<q")
_MARK = struct.Struct("<Q")
_INDEXED_MARK = struct.Struct("<QQ")
_BARRIERS_KEPT = 64
"""Decoded barriers that are kept: of one checkpoint most are alike, as many as there are channels."""


Payload = bytes | memoryview
"""A view, if any, is of memory that nobody changes."""


@dataclass(slots=True)
class Frame:
    """One element of a channel; `records` is how many a data frame holds, 0 where that is unknown."""

    kind: int
    payload: Payload = b""
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


def mark_frame(number: int, index: int | None = None) -> Frame:
    """The mark of a local snapshot, with its index where snapshots have one."""
    if index is None:
        return Frame(Kind.MARK, _MARK.pack(number))
    return Frame(Kind.MARK, _INDEXED_MARK.pack(number, index))


def mark_of(frame: Frame) -> int:
    """The number of the snapshot."""
    number: int = _MARK.unpack_from(frame.payload)[0]
    return number


def index_of(frame: Frame) -> int:
    """The index of the snapshot of a mark that has one."""
    index: int = _INDEXED_MARK.unpack(frame.payload)[1]
    return index


def latency_frame(marker: LatencyMarker) -> Frame:
    return Frame(Kind.LATENCY, msgpack.packb((marker.source, marker.emitted_at)))


def latency_marker_of(frame: Frame) -> LatencyMarker:
    return LatencyMarker(*msgpack.unpackb(frame.payload))


def barrier_frame(barrier: Barrier) -> Frame:
    cut = (barrier.checkpoint_id, barrier.mode, barrier.created_at)
    fields = (*cut, barrier.savepoint, barrier.oldest_id)
    return Frame(Kind.BARRIER, msgpack.packb(fields))


def barrier_of(frame: Frame) -> Barrier:
    return _barrier(frame.payload)


@lru_cache(_BARRIERS_KEPT)
def _barrier(payload: Payload) -> Barrier:
    return Barrier(*msgpack.unpackb(payload))
