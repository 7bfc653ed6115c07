"""Recovered channels: in-flight data of a checkpoint, consumed before anything new arrives."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

from minirt.data.batch import Batch, Rows
from minirt.data.codec import RowCodec
from minirt.data.keys import KeyRouter
from minirt.graph.execution import Link
from minirt.graph.job_graph import Custom, Hash
from minirt.protocol.manifest import ManifestKey, SnapshotRef
from minirt.protocol.restore import RecoveredChannel
from minirt.runtime.elements import Data, Origin
from minirt.runtime.frames import Frame
from minirt.runtime.in_flight import batch_of, data_frame, stored_frames
from minirt.storage.checkpoints import CheckpointStorage


@dataclass(frozen=True, slots=True)
class InFlightSource:
    """Where recovered channels are read from."""

    storage: CheckpointStorage
    checkpoint: ManifestKey
    frame_bytes_max: int

    def read(
        self, channels: Sequence[RecoveredChannel]
    ) -> list[tuple[RecoveredChannel, list[Frame]]]:
        """The frames of each channel, reading every stored object once."""
        stored: dict[SnapshotRef, dict[str, bytes]] = {}
        frames = []
        for channel in channels:
            ref = channel.stored
            if ref not in stored:
                stored[ref] = self.storage.read_snapshot(ref, self.checkpoint)
            path = ref.path or f"in the manifest of checkpoint {self.checkpoint.checkpoint_id}"
            section = stored[ref][channel.section]
            frames.append((channel, stored_frames(section, self.frame_bytes_max, path)))
        return frames


class RecoveredChannels:
    """Gives out the captured records of the old channels of one subtask, one channel after another.

    Where parallelism has changed, each record is dealt again, and only what falls to this subtask is
    given out. All of it is read at the start, since a newer checkpoint may let the old files go; it
    takes as much memory as the queues took from which it was captured.
    """

    def __init__(
        self,
        channels: Sequence[RecoveredChannel],
        links: Mapping[str, Link],
        receiver: int,
        source: InFlightSource,
        codec: RowCodec,
    ) -> None:
        self._links = links
        self._receiver = receiver
        self._codec = codec
        self._filters: dict[str, Callable[[Batch], Batch]] = {}
        self._channels = deque(source.read(channels))
        self._frames: deque[Frame] = deque()
        self._current: RecoveredChannel | None = None

    @property
    def done(self) -> bool:
        return not self._channels and not self._frames

    def next(self) -> Data | None:
        """The next records for this subtask; None once all are consumed."""
        while not self.done:
            if not self._frames:
                self._current, frames = self._channels.popleft()
                self._frames.extend(frames)
                continue
            channel = self._current
            assert channel is not None
            batch = self._own(channel, batch_of(self._frames.popleft(), self._codec))
            if len(batch):
                link = self._links[channel.data.link]
                return Data(batch, link.target_input, _origin(channel))
        return None

    def remaining(self) -> list[tuple[Origin, list[Frame]]]:
        """What was not given out yet, as frames to be captured again, in order."""
        left: list[tuple[Origin, list[Frame]]] = []
        if self._current is not None and self._frames:
            left.append((_origin(self._current), self._own_frames(self._current, self._frames)))
        for channel, frames in self._channels:
            left.append((_origin(channel), self._own_frames(channel, frames)))
        return left

    def _own_frames(self, channel: RecoveredChannel, frames: Sequence[Frame]) -> list[Frame]:
        if not channel.deal_again:
            return list(frames)
        batches = [self._own(channel, batch_of(frame, self._codec)) for frame in frames]
        return [data_frame(batch, self._codec) for batch in batches if len(batch)]

    def _own(self, channel: RecoveredChannel, batch: Batch) -> Batch:
        """The records of the batch that fall to this subtask."""
        if not channel.deal_again:
            return batch
        key = channel.data.link
        if key not in self._filters:
            self._filters[key] = _dealer(self._links[key], self._receiver)
        return self._filters[key](batch)


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

    def keep(batch: Batch) -> Batch:
        rows = batch.rows()
        mine = [choose(record) == receiver for record in rows.records]
        times = None if rows.timestamps is None else list(compress(rows.timestamps, mine))
        return Rows(list(compress(rows.records, mine)), times)

    return keep
