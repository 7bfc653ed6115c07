"""In-flight data: capturing it for a snapshot, and its stored form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from minirt.data.codec import count_records
from minirt.errors import CorruptCheckpointError
from minirt.graph.execution import Link
from minirt.protocol.manifest import ChannelData
from minirt.runtime.channels.frames import HEADER, Frame
from minirt.runtime.channels.output import Overtaken
from minirt.runtime.channels.spill import SpilledFrame
from minirt.runtime.input.elements import Origin

Side = Literal["out", "in"]


@dataclass(frozen=True, slots=True)
class CapturedFrames:
    """The frames of one channel as they are stored: in chunks, those on disk read when it is their turn."""

    frames: Sequence[Frame | SpilledFrame]

    def __iter__(self) -> Iterator[bytes]:
        return (frame.wire() for frame in self.frames)


@dataclass(slots=True)
class Capture:
    """What one subtask captures for one snapshot, in the order in which it would be consumed."""

    overtaken: Sequence[Overtaken]
    arrived: dict[Origin, list[Frame | SpilledFrame]] = field(default_factory=dict)
    open_channels: set[int] = field(default_factory=set)
    """Channels whose barrier is still missing."""

    @property
    def overtaken_bytes(self) -> int:
        """What barriers overtook in output queues."""
        return sum(frame.size for part in self.overtaken for frame in part.frames)

    def add(self, origin: Origin, frames: Iterable[Frame | SpilledFrame]) -> None:
        self.arrived.setdefault(origin, []).extend(frames)

    def channels(
        self, sender: int, links: Mapping[str, Link]
    ) -> list[tuple[ChannelData, CapturedFrames]]:
        """Everything that was captured, by channel; `sender` is this subtask's index."""
        stored = [
            _stored(part.link, part.link_key, sender, part.receiver, "out", part.frames)
            for part in self.overtaken
            if part.frames
        ]
        for origin, frames in self.arrived.items():
            if frames:
                link, recoveries = links[origin.link], origin.recoveries
                stored.append(
                    _stored(link, origin.link, origin.sender, sender, "in", frames, recoveries)
                )
        return stored


def _stored(
    link: Link,
    key: str,
    sender: int,
    receiver: int,
    side: Side,
    frames: Sequence[Frame | SpilledFrame],
    recoveries: int = 0,
) -> tuple[ChannelData, CapturedFrames]:
    size, records = sum(frame.size for frame in frames), sum(map(_records, frames))
    channel = ChannelData(
        *(key, link.kind, sender, receiver, link.receivers, side, size), recoveries, records
    )
    return channel, CapturedFrames(frames)


def _records(frame: Frame | SpilledFrame) -> int:
    """How many records a frame holds; counted in its payload if the frame does not say."""
    if isinstance(frame, Frame) and not frame.records:
        return count_records(frame.payload)
    return frame.records


class Readable(Protocol):
    """A stored section, or what is like it."""

    def read(self, size: int, /) -> bytes: ...


def stored_frames(section: Readable, path: str) -> Iterator[Frame]:
    """The frames of a stored section. Raises CorruptCheckpointError if it does not end with one."""
    while header := section.read(HEADER.size):
        if len(header) == HEADER.size:
            length, kind = HEADER.unpack(header)
            payload = section.read(length)
            if len(payload) == length:
                yield Frame(kind, payload)
                continue
        raise CorruptCheckpointError("in-flight data ends in the middle of a frame", path)
