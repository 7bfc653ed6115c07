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

    def read(self, ref: SnapshotRef) -> dict[str, bytes]:
        return self.storage.read_snapshot(ref, self.checkpoint)


class RecoveredChannels:
    """Gives out the captured records of the old channels of one subtask, one channel after another.

    Where parallelism has changed, each record is dealt again, and only what falls to this subtask is
    given out. Channels are read one at a time, when it is their turn.
    """

    def __init__(
        self,
        channels: Sequence[RecoveredChannel],
        links: Mapping[str, Link],
        receiver: int,
        source: InFlightSource,
        codec: RowCodec,
    ) -> None:
        self._channels = deque(channels)
        self._links = links
        self._receiver = receiver
        self._source = source
        self._codec = codec
        self._frames: deque[Frame] = deque()
        self._current: RecoveredChannel | None = None
        self._read: tuple[SnapshotRef, dict[str, bytes]] | None = None
        self._filters: dict[str, Callable[[Batch], Batch]] = {}

    @property
    def done(self) -> bool:
        return not self._channels and not self._frames

    def next(self) -> Data | None:
        """The next records for this subtask; None once all are consumed."""
        while not self.done:
            if not self._frames:
                self._open(self._channels.popleft())
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
        for channel in self._channels:
            left.append((_origin(channel), self._own_frames(channel, self._load(channel))))
        return left

    def _open(self, channel: RecoveredChannel) -> None:
        self._current = channel
        self._frames.extend(self._load(channel))
        if not self._channels:
            self._read = None

    def _load(self, channel: RecoveredChannel) -> list[Frame]:
        if self._read is None or self._read[0] != channel.stored:
            self._read = (channel.stored, self._source.read(channel.stored))
        path = channel.stored.path or "the manifest"
        section = self._read[1][channel.section]
        return stored_frames(section, self._source.frame_bytes_max, path)

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
    return Origin(channel.data.link, channel.data.sender)


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
