"""Where a subtask takes its elements from: the one interface of channels and of sources."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from minirt.data.batch import Batch
from minirt.data.codec import RowCodec
from minirt.errors import ProtocolError
from minirt.graph.execution import Link
from minirt.io.base import Offset
from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.protocol.barriers import TRIGGER_CHANNEL, Barrier
from minirt.protocol.stored_watermarks import LinkWatermarks
from minirt.runtime.channels.batches import data_frame
from minirt.runtime.channels.frames import Frame
from minirt.runtime.channels.spill import SpilledFrame
from minirt.runtime.input.elements import MANY_CHANNELS, Data, Element, Ended, Origin
from minirt.runtime.input.recovered import RestoredInput

ChannelFrames = tuple[Origin, Sequence[Frame | SpilledFrame]]
"""The frames of one channel, in order."""


@dataclass(slots=True)
class InWork:
    """A batch that was polled; its first `position` records are processed."""

    data: Data
    position: int = 0

    @property
    def left(self) -> int:
        return len(self.data.batch) - self.position

    def piece(self, count: int) -> Batch:
        """The next `count` records."""
        batch, start = self.data.batch, self.position
        return batch if count == len(batch) else batch.slice(start, start + count)

    def rest(self) -> Data:
        """What is not processed yet."""
        batch = self.data.batch
        return replace(self.data, batch=batch.slice(self.position, len(batch)))


@dataclass(frozen=True, slots=True)
class InputParts:
    """What every input is made of.

    `links` are those that lead into the vertex, by key, also those whose records are only restored.
    """

    links: Mapping[str, Link]
    codec: RowCodec
    metrics: SubtaskMetrics
    restored: RestoredInput


class Input(ABC):
    """What a subtask reads: first what was restored, then what is new. The batch in work is part of it.

    A subclass says in `_poll_new` what is new. What it does not override fits an input without channels.
    """

    is_source: ClassVar[bool] = False
    """Whether checkpoints begin here, when the coordinator triggers them."""

    def __init__(self, origins: Sequence[Origin], parts: InputParts) -> None:
        links, restored = parts.links, parts.restored
        self.origins = origins
        """Where records come from, by the index of the channel."""
        self.links = links
        self.in_work: InWork | None = None
        self._codec = parts.codec
        self._restored = restored
        self.channels = [TRIGGER_CHANNEL] if self.is_source else [*range(len(origins))]
        """The channels that the barriers of a checkpoint come through."""
        self.uncapturable = [i for i, o in enumerate(origins) if not links[o.link].capturable]
        """The channels among them whose records no checkpoint may capture."""
        self._recovering: int | None = None
        """A channel that no barrier comes through: that of recovered records which must not be captured
        again. It ends with the last of them."""
        if not restored.capturable:
            self._recovering = len(self.channels)
            self.channels.append(self._recovering)
            self.uncapturable.append(self._recovering)

    # What the subtask takes.

    @property
    def has_input(self) -> bool:
        """Whether there is a batch in work, or `poll` may bring something now."""
        return self.in_work is not None or self._restored.pending or self._has_new

    @property
    def wake_at(self) -> float | None:
        """When `poll` may bring something even if nothing arrives, by the monotonic clock."""
        return None

    @property
    def piece_records(self) -> int | None:
        """How many records the first operator asks for at a time; None if any number will do."""
        return None

    @property
    def restored_place(self) -> int:
        """The place of the last operator that restored records are still to come to; 0 if none are.

        What it gives on belongs behind them.
        """
        in_work = 0 if self.in_work is None else self.in_work.data.place
        return max(in_work, self._restored.last_place) if self._restored.pending else in_work

    def poll(self) -> Element | None:
        """The next element, None if there is none now; to be called once no batch is in work."""
        element = self._poll_restored() if self._restored.pending else self._poll_new()
        if isinstance(element, Data):
            self.in_work = InWork(element)
        return element

    def consumed(self, records: int) -> None:
        """So many more records of the batch in work were processed."""
        work = self.in_work
        assert work is not None
        work.position += records
        if not work.left:
            self.in_work = None
        if not self._restored.pending:
            self._processed(records)

    def on_end(self) -> None:
        """All records were processed, and event time ends."""

    @property
    def tells_due(self) -> bool:
        """Whether `poll` says when operators do what is due by the clock, and not the clock."""
        return False

    def on_due(self, place: int) -> None:
        """The operator at this place of the vertex begins to do what is due by the clock."""

    def drain(self) -> None:
        """Sources: end at the next `poll`. Channels end when their senders do."""

    @property
    def held_by_drift(self) -> bool:
        """Whether a source reads nothing because its event time is too far ahead of that of others."""
        return False

    def limit_drift(self, group: str, limit_ms: int) -> None:
        """Sources in this drift group: read no split whose watermark is above the limit."""

    # What arrives, and what barriers do to it.

    def put(self, channel: int, frame: Frame) -> None:
        """A frame has arrived from the wire."""
        raise ProtocolError(f"a frame has arrived in channel {channel} of a subtask that has none")

    def block(self, channel: int) -> None:
        """Read nothing more of a channel. A source has nothing to wait for."""

    def unblock_all(self) -> None:
        """Read all channels again."""

    def drop_barriers(self, is_over: Callable[[int], bool]) -> None:
        """Drop the barriers that wait of the checkpoints for whose ids this is so: they mean nothing."""

    # What a snapshot stores.

    @abstractmethod
    def watermarks(self) -> tuple[int | None, tuple[LinkWatermarks, ...]]:
        """How far event time has come: in all, and by channel."""

    def offsets(self) -> Mapping[str, Offset] | None:
        """How far a source is in its splits, by their ids, if it wants to know once that is stored."""
        return None

    def unread(self) -> Iterator[Data]:
        """What was taken from channels and is not processed yet, in order."""
        work = self.in_work
        if work is not None and work.data.origin not in (None, MANY_CHANNELS):
            yield work.rest()
        yield from self.held()

    def held(self) -> Iterable[Data]:
        """What was taken from channels and given out to nobody, or as part of a larger batch."""
        return ()

    def in_flight(self, overtaking: Barrier, channels: Collection[int]) -> Iterator[ChannelFrames]:
        """What lies before the operators, in order, if the barrier overtakes in these channels."""
        yield from self.taken()
        yield from self.ahead(overtaking, self._own(channels))

    def taken(self) -> Iterator[ChannelFrames]:
        """What was taken from the queues of channels, or restored, and is not processed, in order."""
        yield from self._unread_frames()
        yield from self._restored.remaining()

    @property
    def may_capture_restored(self) -> bool:
        """Whether all that was restored and is not processed may be captured."""
        return self._restored.capturable

    def queued_frames(self, channel: int) -> int:
        """How many frames are in the queue of a channel, those of control included, but for barriers."""
        raise ProtocolError(f"a subtask without channels has none with the number {channel}")

    def processed_records(self) -> Sequence[int] | None:
        """By channel, how many records were processed that have come through it.

        None if nobody counts them, or if restored ones are left, which have come through no channel.
        """
        return None

    def on_snapshot(self, number: int) -> None:
        """A local snapshot of this number was taken."""

    def on_line(self, number: int) -> None:
        """Nobody falls back behind the local snapshot of this number any more."""

    def in_flight_bytes(self, overtaking: Barrier, channels: Collection[int]) -> int:
        """The size of what `in_flight` gives."""
        unread_bytes = sum(frame.size for _, frames in self._unread_frames() for frame in frames)
        ahead_bytes = self.ahead_bytes(overtaking, self._own(channels))
        return unread_bytes + self._restored.remaining_bytes + ahead_bytes

    def ahead(self, overtaking: Barrier, channels: Collection[int]) -> Iterable[ChannelFrames]:
        """The data that arrived and was not polled, ahead of the barrier in these channels."""
        return ()

    def ahead_bytes(self, overtaking: Barrier, channels: Collection[int]) -> int:
        """The size of what `ahead` gives."""
        return 0

    # What the metrics say of it.

    @property
    def queued_bytes(self) -> int:
        """The size of what has arrived and was not polled."""
        return 0

    @property
    def room_bytes(self) -> int:
        """How much senders may have under way, in all channels together."""
        return 0

    # How it works.

    @property
    @abstractmethod
    def _has_new(self) -> bool:
        """Whether `_poll_new` may bring something now."""

    @abstractmethod
    def _poll_new(self) -> Element | None:
        """The next element that was not restored."""

    def _processed(self, records: int) -> None:
        """So many more records were processed of the batch that `_poll_new` gave last."""

    def _begin(self) -> None:
        """Called before the first element that was not restored is read."""

    def _poll_restored(self) -> Element | None:
        """All that was polled of it by now is consumed; perhaps a checkpoint waits for just that."""
        if self._recovering is not None and self._restored.capturable:
            ended, self._recovering = Ended(self._recovering), None
            return ended
        element = self._restored.poll()
        if element is not None:
            return element
        self._begin()
        return self._poll_new()

    def _own(self, channels: Collection[int]) -> Collection[int]:
        """The channels among them that have a queue."""
        return [channel for channel in channels if channel < len(self.origins)]

    def _unread_frames(self) -> Iterator[ChannelFrames]:
        for data in self.unread():
            assert data.origin is not None
            yield data.origin, [data_frame(data.batch, self._codec)]
