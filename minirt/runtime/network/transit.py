"""How old a barrier is that came from another process, whose clock nobody compares with one's own.

A barrier travels with two times of its sender's clock: when its checkpoint was triggered, and when it was
sent. The difference is its age at that moment, whatever that clock shows. The time on the way is not in
it, and two clocks that began at different times do not tell it. But how far they are apart stays the same,
while the time on the way is next to nothing now and then. So the least that was seen of both together
counts as the distance of the clocks, and what a barrier took longer than that counts as its way.

The same goes for latency markers. They may come much more often than barriers: they are remembered apart.

A checkpoint sends a barrier through each channel. Those that a process sends together and another one
takes in together are alike: they count as one arrival, and are decoded once.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import replace

from minirt.protocol.barriers import Barrier
from minirt.protocol.subtask_commands import SubtaskCommand, TriggerCheckpoint
from minirt.runtime.channels.frames import (
    Frame,
    Kind,
    Payload,
    barrier_frame,
    barrier_of,
    latency_frame,
    latency_marker_of,
)
from minirt.runtime.channels.latency_marker import LatencyMarker

_REMEMBERED = 64
"""Arrivals that are compared: clocks drift apart, by some seconds a day at most."""

_REMEMBERED_MARKERS = 256
"""As `_REMEMBERED`, of latency markers."""

_STAMPED = (Kind.BARRIER, Kind.LATENCY)
"""The kinds of frames that say when they were sent."""

_SENT_AT = struct.Struct("<d")


class Transit:
    """What arrives from one process. Times are by the monotonic clock of either side."""

    def __init__(self) -> None:
        self._apart: deque[float] = deque(maxlen=_REMEMBERED)
        self._markers_apart: deque[float] = deque(maxlen=_REMEMBERED_MARKERS)
        self._arrived_at = 0.0
        self._arrived: dict[Payload, Frame] = {}
        """What was made of the barriers and markers that arrived then, by their payload."""

    def note(self, sent_at: float, now: float) -> None:
        """Something has arrived."""
        self._apart.append(now - sent_at)

    def barrier(self, barrier: Barrier, sent_at: float, now: float) -> Barrier:
        """The barrier with its creation by the clock of this process, which now shows `now`."""
        self.note(sent_at, now)
        age_s = sent_at - barrier.created_at
        way_s = now - sent_at - min(self._apart)
        return replace(barrier, created_at=now - age_s - way_s)

    def marker(self, marker: LatencyMarker, sent_at: float, now: float) -> LatencyMarker:
        """As `barrier`, for a latency marker."""
        self._markers_apart.append(now - sent_at)
        apart = min(*self._apart, *self._markers_apart, now - sent_at)
        return replace(marker, emitted_at=marker.emitted_at + apart)

    def command(self, command: SubtaskCommand, sent_at: float, now: float) -> SubtaskCommand:
        """A command as it is to be handled here."""
        if not isinstance(command, TriggerCheckpoint):
            return command
        return replace(command, barrier=self.barrier(command.barrier, sent_at, now))

    def frame(self, frame: Frame, now: float) -> Frame:
        """A frame as it is to be handled here, once it was taken off the wire."""
        if frame.kind not in _STAMPED:
            return frame
        if now != self._arrived_at:
            self._arrived.clear()
            self._arrived_at = now
        arrived = self._arrived.get(frame.payload)
        if arrived is None:
            arrived = self._arrived[frame.payload] = self._arriving(frame, now)
        return arrived

    def _arriving(self, frame: Frame, now: float) -> Frame:
        payload = memoryview(frame.payload)
        [sent_at] = _SENT_AT.unpack(payload[-_SENT_AT.size :])
        bare = Frame(frame.kind, bytes(payload[: -_SENT_AT.size]))
        if frame.kind == Kind.LATENCY:
            return latency_frame(self.marker(latency_marker_of(bare), sent_at, now))
        barrier = barrier_of(bare)
        return barrier_frame(self.barrier(barrier, sent_at, now))


def departing(frame: Frame, now: float) -> Frame:
    """A frame as it is to be put on the wire: a barrier or a latency marker says when that was."""
    if frame.kind not in _STAMPED:
        return frame
    return Frame(frame.kind, bytes(frame.payload) + _SENT_AT.pack(now))
