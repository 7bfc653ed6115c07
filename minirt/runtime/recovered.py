"""Recovered channels: in-flight data of a checkpoint, consumed before anything new arrives."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

from minirt.data.batch import Batch, Columns, Rows
from minirt.data.codec import RowCodec
from minirt.data.keys import KeyRouter
from minirt.graph.execution import Link
from minirt.graph.job_graph import Custom, Hash
from minirt.protocol.manifest import ManifestKey, SnapshotRef
from minirt.protocol.restore import RecoveredChannel
from minirt.runtime.column_dealing import ColumnRouter
from minirt.runtime.elements import Data, Origin
from minirt.runtime.frames import Frame
from minirt.runtime.in_flight import batch_of, data_frame, stored_frames
from minirt.runtime.spill import Room, SpilledFrame
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.damage import cannot_restore_if_damaged
from minirt.storage.part_reader import referred_part


@dataclass(frozen=True, slots=True)
class InFlightSource:
    """Where recovered channels are read from."""

    storage: CheckpointStorage
    checkpoint: ManifestKey

    def read(
        self, channels: Sequence[RecoveredChannel], room: Room
    ) -> Iterator[tuple[RecoveredChannel, list[Frame | SpilledFrame]]]:
        """Each channel with its frames, all checksums verified, in the order of the stored objects.

        Raises CorruptCheckpointError, with the ways out.
        """
        by_object: dict[SnapshotRef, list[RecoveredChannel]] = {}
        for channel in channels:
            by_object.setdefault(channel.stored, []).append(channel)
        for ref, stored_there in by_object.items():
            part = referred_part(self.storage.store, ref, self.checkpoint)
            with cannot_restore_if_damaged(self.checkpoint.checkpoint_id):
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
        self._dealers: dict[str, Callable[[Batch], Batch]] = {}
        kept = {
            channel: self._own(channel, frames, room)
            for channel, frames in source.read(channels, room)
        }
        self._channels = deque((channel, deque(kept[channel])) for channel in channels)

    @property
    def remaining_bytes(self) -> int:
        """The size of what was not given out yet."""
        return sum(frame.size for _, frames in self._channels for frame in frames)

    def next(self) -> Data | None:
        """The next records for this subtask; None once all are consumed."""
        while self._channels:
            channel, frames = self._channels[0]
            if frames:
                batch = self._batch_of(frames.popleft())
                return Data(batch, self._links[channel.data.link].target_input, _origin(channel))
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
            self._dealers[key] = _dealer(self._links[key], self._receiver)
        batches = (self._dealers[key](self._batch_of(frame)) for frame in frames)
        own = room.keep(data_frame(batch, self._codec) for batch in batches if len(batch))
        room.give_back(frames)
        return own

    def _batch_of(self, frame: Frame | SpilledFrame) -> Batch:
        return batch_of(frame.load() if isinstance(frame, SpilledFrame) else frame, self._codec)


def _origin(channel: RecoveredChannel) -> Origin:
    return Origin(channel.data.link, channel.data.sender, channel.data.recoveries + 1)


def _dealer(link: Link, receiver: int) -> Callable[[Batch], Batch]:
    """Runs the link's partitioning again and keeps what it deals to `receiver`."""
    choose: Callable[[Any], int]
    match link.partitioning:
        case Hash(key):
            key_of = key.on_rows()
            router = KeyRouter(range(link.receivers), link.max_parallelism, 1 << 16)
            choose = lambda record: router[key_of(record)]  # noqa: E731
        case Custom(function, key):
            key_of = key.on_rows()
            choose = lambda record: function(key_of(record), link.receivers)  # noqa: E731
        case other:
            raise TypeError(f"{other} deals out whole channels")

    columns = ColumnRouter(link, link.source_uid)

    def keep(batch: Batch) -> Batch:
        if isinstance(batch, Columns):
            return batch.where(columns.targets(batch.table) == receiver)
        mine = [choose(record) == receiver for record in batch.records]
        times = None if batch.timestamps is None else list(compress(batch.timestamps, mine))
        return Rows(list(compress(batch.records, mine)), times)

    return keep
