"""Recovered channels: in-flight data of a checkpoint, consumed before anything new arrives."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from minirt.data.batch import Batch, Columns, Rows
from minirt.data.codec import RowCodec
from minirt.graph.execution import Link
from minirt.partitionings.common.dealing import DealingSite
from minirt.protocol.manifest import ManifestKey, SnapshotRef
from minirt.protocol.redistribution import RecoveredChannel
from minirt.runtime.channels.batches import batch_of, data_frame
from minirt.runtime.channels.frames import Frame
from minirt.runtime.channels.spill import Room, SpilledFrame
from minirt.runtime.input.elements import Advance, Data, Element, Origin
from minirt.runtime.input.in_flight import stored_frames
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.part_reader import referred_part

_ROUTES_MAX = 1 << 16
"""For how many keys their receivers are remembered while records are dealt again."""


@dataclass(frozen=True, slots=True)
class InFlightSource:
    """Where recovered channels are read from."""

    storage: CheckpointStorage
    checkpoint: ManifestKey

    def read(
        self, channels: Sequence[RecoveredChannel], room: Room
    ) -> Iterator[tuple[RecoveredChannel, list[Frame | SpilledFrame]]]:
        """Each channel with its frames, all checksums verified, in the order of the stored objects.

        Raises CorruptCheckpointError.
        """
        by_object: dict[SnapshotRef, list[RecoveredChannel]] = {}
        for channel in channels:
            by_object.setdefault(channel.stored, []).append(channel)
        for ref, stored_there in by_object.items():
            part = referred_part(self.storage.store, ref, self.checkpoint)
            sections = {section.name: section for section in part.index.sections}
            for channel in stored_there:
                content = part.section(sections[channel.section])
                yield channel, room.keep(stored_frames(content, part.path))


class RecoveredChannels:
    """Gives out the captured records of the old channels of one subtask, one channel after another.

    Where parallelism has changed, each record is dealt again, and only what falls to this subtask is
    kept. All of it is fetched at the start, since a newer checkpoint may let the old files go; what there
    is no room for in memory waits on local disk until it is its turn.
    """

    def __init__(
        self,
        channels: Sequence[RecoveredChannel],
        links: Mapping[str, Link],
        receiver: int,
        source: InFlightSource,
        codec: RowCodec,
        room: Room,
    ) -> None:
        self._links = links
        self._receiver = receiver
        self._codec = codec
        self._dealers: dict[str, _Dealer] = {}
        kept = {
            channel: self._own(channel, frames, room)
            for channel, frames in source.read(channels, room)
        }
        self._channels = deque((channel, deque(kept[channel])) for channel in channels)

    @property
    def remaining_bytes(self) -> int:
        """The size of what was not given out yet."""
        return sum(frame.size for _, frames in self._channels for frame in frames)

    @property
    def capturable(self) -> bool:
        """Whether all that is left came over links whose records may be captured."""
        return all(
            self._links[channel.data.link].capturable
            for channel, frames in self._channels
            if frames
        )

    @property
    def last_place(self) -> int:
        """The place of the last operator that records are left for; 0 if there are none."""
        places = (self._links[c.data.link].target_place for c, frames in self._channels if frames)
        return max(places, default=0)

    def next(self) -> Data | None:
        """The next records for this subtask; None once all are consumed."""
        while self._channels:
            channel, frames = self._channels[0]
            if frames:
                batch = self._batch_of(frames.popleft())
                link = self._links[channel.data.link]
                return Data(batch, link.target_input, _origin(channel), link.target_place)
            self._channels.popleft()
        return None

    def remaining(self) -> list[tuple[Origin, list[Frame | SpilledFrame]]]:
        """What was not given out yet, as frames to be captured again, in order."""
        return [(_origin(channel), list(frames)) for channel, frames in self._channels if frames]

    def _own(
        self, channel: RecoveredChannel, frames: list[Frame | SpilledFrame], room: Room
    ) -> list[Frame | SpilledFrame]:
        """What falls to this subtask."""
        if not channel.deal_again:
            return frames
        key = channel.data.link
        if key not in self._dealers:
            self._dealers[key] = _Dealer(self._links[key], self._receiver)
        batches = (self._dealers[key].keep(self._batch_of(frame)) for frame in frames)
        own = room.keep(data_frame(batch, self._codec) for batch in batches if len(batch))
        room.give_back(frames)
        return own

    def _batch_of(self, frame: Frame | SpilledFrame) -> Batch:
        return batch_of(frame.load() if isinstance(frame, SpilledFrame) else frame, self._codec)


def _origin(channel: RecoveredChannel) -> Origin:
    return Origin(channel.data.link, channel.data.sender, channel.data.recoveries + 1)


@dataclass(slots=True)
class _Dealt:
    """The rows that one receiver gets; a `RowBuffer`."""

    records: list[Any] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)


class _Dealer:
    """Runs the link's partitioning again, as its senders do, and keeps what it deals to `receiver`."""

    def __init__(self, link: Link, receiver: int) -> None:
        self._receiver = receiver
        self._dealt = [_Dealt() for _ in range(link.receivers)]
        site = DealingSite(self._dealt, link.max_parallelism, link.source_uid, _ROUTES_MAX)
        self._dealer = link.partitioning.dealer(site)

    def keep(self, batch: Batch) -> Batch:
        if isinstance(batch, Columns):
            parts = dict(self._dealer.columns(batch))
            return parts.get(self._receiver, batch.slice(0, 0))
        self._dealer.rows(batch)
        own = self._dealt[self._receiver]
        kept = Rows(own.records[:], None if batch.timestamps is None else own.timestamps[:])
        for dealt in self._dealt:
            dealt.records.clear()
            dealt.timestamps.clear()
        return kept


class RestoredInput:
    """What a subtask takes in before anything new: its watermark, then the records that were recovered."""

    def __init__(
        self, watermark: int | None = None, recovered: RecoveredChannels | None = None
    ) -> None:
        self._first = None if watermark is None else Advance(watermark, None)
        self._recovered = recovered
        self.pending = watermark is not None or recovered is not None
        """Whether there may be more: until `poll` has said that there is not."""

    @property
    def capturable(self) -> bool:
        """Whether a checkpoint may be taken before what is left is consumed."""
        return self._recovered is None or self._recovered.capturable

    @property
    def remaining_bytes(self) -> int:
        """The size of the records that are left."""
        return 0 if self._recovered is None else self._recovered.remaining_bytes

    @property
    def last_place(self) -> int:
        """The place of the last operator that records are left for; 0 if there are none."""
        return 0 if self._recovered is None else self._recovered.last_place

    def poll(self) -> Element | None:
        """The next element; None once there is none left."""
        if self._first is not None:
            first, self._first = self._first, None
            return first
        data = None if self._recovered is None else self._recovered.next()
        if data is None:
            self._recovered, self.pending = None, False
        return data

    def remaining(self) -> list[tuple[Origin, list[Frame | SpilledFrame]]]:
        """The records that are left, as frames to be captured again, in order."""
        return [] if self._recovered is None else self._recovered.remaining()
