"""The outgoing side of a subtask: deals records to channels and packs them into frames."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress, takewhile
from operator import ne

from minirt.data.batch import Batch, Columns
from minirt.data.errors import UnsupportedRecordError
from minirt.errors import UnsupportedValueError
from minirt.graph.execution import Link
from minirt.graph.operator_spec import Thinning
from minirt.partitionings.common.dealing import DealingSite
from minirt.protocol.barriers import Barrier
from minirt.protocol.ids import ChannelId
from minirt.protocol.topology import InFlight
from minirt.runtime.channels.buffers import ChannelBuffer, Outlet
from minirt.runtime.channels.channels import OutputChannel
from minirt.runtime.channels.frames import (
    ACTIVE_FRAME,
    END_FRAME,
    IDLE_FRAME,
    Frame,
    barrier_frame,
    latency_frame,
    mark_frame,
    watermark_frame,
)
from minirt.runtime.channels.gathered import Gathered
from minirt.runtime.channels.latency_marker import LatencyMarker
from minirt.runtime.channels.pruning import Pruning
from minirt.runtime.channels.spill import SpilledFrame


@dataclass(frozen=True, slots=True)
class Overtaken:
    """The data frames that a barrier overtook in one output queue."""

    link: Link
    link_key: str
    receiver: int
    frames: Sequence[Frame | SpilledFrame]


class LinkOutput:
    """One outgoing link: `emit` deals a batch to the receivers by the link's partitioning."""

    def __init__(
        self,
        link: Link,
        link_key: str,
        sender: int,
        channels: Sequence[OutputChannel],
        label: str,
        outlet: Outlet,
        thinning: Thinning | None = None,
        pruning: Pruning | None = None,
    ) -> None:
        """`thinning` says which records of columns need not be sent, `pruning` which columns."""
        self.link = link
        self._pruning = pruning
        self._thinning = thinning
        self._link_key = link_key
        self._sender = sender
        self.channels = channels
        self._label = label
        self._outlet = outlet
        self.began_at = 0.0
        """When the slice in work began. What it emits counts as old as that: so what a long call emits is
        due right behind it."""
        self._timed = False
        together = link.partitioning.in_flight is InFlight.ONE_COPY or len(channels) == 1
        groups = [channels] if together else [[channel] for channel in channels]
        self._turn = sender
        """Whose turn it is to get a latency marker. Senders begin at different receivers."""
        self._waiting: dict[ChannelBuffer, float] = {}
        """Since when buffers hold records, oldest first: when the slice began that has emitted them."""
        self._settled = [0] * len(groups)
        """How many rows each buffer held when it was settled last: another number says that it got some."""
        self._buffers = [
            ChannelBuffer(group, outlet, self._waiting, self._settled, place)
            for place, group in enumerate(groups)
        ]
        self._held_rows = [buffer.records for buffer in self._buffers]
        """Their lists, which stay the same objects."""
        self._gathered = Gathered()
        self._frame_bytes = 0
        """How large frames of what is gathered should be; looked at when gathering begins."""
        entries = outlet.limits.route_cache_entries
        site = DealingSite(self._buffers, link.max_parallelism, label, entries)
        self._dealer = link.partitioning.dealer(site)
        self._deal_rows = self._dealer.rows

    def emit(self, batch: Batch) -> None:
        """Rows are dealt at once and wait in the buffers; columns wait to be dealt many at a time."""
        if not len(batch):
            return
        self._outlet.metrics.records_out += len(batch)
        if isinstance(batch, Columns):
            self._gather(batch)
            return
        timed = batch.timestamps is not None
        if self._timed is not timed or self._gathered.since is not None:
            # All records of a frame carry timestamps, or none does; and what came first goes first.
            self.flush()
            self._timed = timed
        self._deal_rows(batch)
        # A batch may be for a few of very many receivers: the others are passed over in C.
        changed = map(ne, map(len, self._held_rows), self._settled)
        for place in [*compress(range(len(self._buffers)), changed)]:
            self._buffers[place].settle(self.began_at)

    def flush(self) -> None:
        """Send everything that is held. At any time that is either rows or columns."""
        gathered = self._gathered
        if gathered.records:
            frame_records = 1 + self._frame_bytes * gathered.records // (gathered.bytes + 1)
            for batch in gathered.take():
                self._deal_columns(batch, frame_records)
        for buffer in [*self._waiting]:
            buffer.flush()

    def flush_older_than(self, time: float) -> None:
        if self._gathered.since is not None and self._gathered.since <= time:
            self.flush()
        due = [*takewhile(lambda buffer: self._waiting[buffer] <= time, self._waiting)]
        for buffer in due:
            buffer.flush()

    def flush_wanted(self) -> None:
        """Send what receivers wait for."""
        if self._gathered.since is not None:
            if self._all_taken:
                self.flush()
            return  # Latency markers in the buffers belong behind what is gathered.
        for buffer in [*self._waiting]:
            if buffer.taken:
                buffer.flush()

    @property
    def wanted(self) -> bool:
        """Whether `flush_wanted` has something to send."""
        if self._gathered.since is not None:
            return self._all_taken
        return any(buffer.taken for buffer in self._waiting)

    @property
    def _all_taken(self) -> bool:
        """Columns that are gathered are for any of the receivers."""
        return all(buffer.taken for buffer in self._buffers)

    @property
    def oldest(self) -> float | None:
        """Since when the oldest record waits to be sent."""
        buffered = next(iter(self._waiting.values()), None)
        times = (self._gathered.since, buffered)
        return min((time for time in times if time is not None), default=None)

    def overtake(self, barrier: Frame) -> list[Overtaken]:
        """Send a barrier ahead of everything that is queued; returns the data that it overtakes."""
        self.flush()
        self._count(barrier)
        return [
            Overtaken(self.link, self._link_key, receiver, channel.overtake(barrier))
            for receiver, channel in self._ends()
        ]

    def move_ahead(self, barrier: Frame) -> list[Overtaken]:
        """Let a barrier that was sent overtake what still lies ahead of it; returns that data."""
        return [
            Overtaken(self.link, self._link_key, receiver, channel.move_ahead(barrier))
            for receiver, channel in self._ends()
            if channel.holds(barrier)
        ]

    def barrier(self, barrier: Frame) -> None:
        """Send a barrier behind everything emitted so far."""
        self._count(barrier)
        self.control(barrier)

    def control(self, frame: Frame) -> None:
        """Send a control frame behind everything emitted so far, into every channel."""
        self.flush()
        for buffer in self._buffers:
            buffer.put(frame)

    def latency(self, marker: Frame) -> None:
        """Send a latency marker to one receiver, to each in turn; to all where all get the same records.

        To all always, it would be multiplied by each shuffle of the job.
        """
        self._buffers[self._turn % len(self._buffers)].add_marker(marker, self.began_at)
        self._turn += 1

    def _count(self, barrier: Frame) -> None:
        self._outlet.metrics.protocol_bytes_out += barrier.size * len(self.channels)

    def _ends(self) -> Iterator[tuple[int, OutputChannel]]:
        """The channels with the subtasks that receive from them."""
        return zip(self.link.receivers_of(self._sender), self.channels, strict=True)

    def _gather(self, batch: Columns) -> None:
        gathered = self._gathered
        if self._pruning is not None:
            batch = self._pruning(batch)
        if gathered.since is None or not gathered.fits(batch):
            self.flush()
            self._frame_bytes = min(buffer.column_frame_bytes for buffer in self._buffers)
            self._dealer.check_columns(batch.table)
        gathered.add(batch, self.began_at)
        if gathered.bytes >= self._frame_bytes * len(self._buffers):
            self.flush()

    def _thinned(self, batch: Columns) -> Columns:
        if self._thinning is None:
            return batch
        thinned = self._thinning(batch)
        self._outlet.metrics.records_out -= len(batch) - len(thinned)
        return thinned

    def _deal_columns(self, batch: Columns, frame_records: int) -> None:
        try:
            for piece in self._thinned(batch).cut(frame_records * len(self._buffers)):
                for place, part in self._dealer.columns(piece):
                    self._buffers[place].send_columns(part, frame_records)
        except UnsupportedRecordError as error:
            raise UnsupportedValueError(f"what operator {self._label} emits: {error}") from error


class Outputs:
    """All links of a subtask.

    With `on_demand`, buffers do not wait for `buffer_timeout_s` while nobody has anything else to do: the
    subtask itself, which then calls `flush_wanted`, and the receiver, which has taken all that was sent.
    While a receiver works, or the sender does, they fill.
    """

    def __init__(
        self, links: Sequence[LinkOutput], buffer_timeout_s: float, *, on_demand: bool = False
    ) -> None:
        self.on_demand = on_demand
        self.links = links
        self._channels = [channel for link in links for channel in link.channels]
        self._overtakable = [link for link in links if link.link.capturable]
        self._watched: tuple[int, Callable[[], None]] | None = None
        """A checkpoint, and who hears that its barriers have left."""
        self._watched_left = 0
        """How many channels still hold one of these."""
        self._buffer_timeout_s = buffer_timeout_s
        self.changed: Callable[[], None] = _nothing
        """Called when `fill`, `wanted` or `flush_at` may have changed by what others do."""
        self._fill = 0.0
        self._fullest: OutputChannel | None = None
        """Whose fill that is; None if it may hold less by now."""
        for channel in self._channels:
            channel.changed = partial(self._on_changed, channel)
            self._on_changed(channel)
        for link in self._overtakable:
            for channel in link.channels:
                channel.barrier_left = self._on_barrier_left

    @property
    def full(self) -> bool:
        """Whether any channel holds as much as it may: the subtask should take no further input."""
        return self.fill >= 1

    @property
    def fill(self) -> float:
        """How full the fullest queue is; above 1 it holds more than it may."""
        if self._fullest is None and self._channels:
            self._fullest = max(self._channels, key=lambda channel: channel.fill)
            self._fill = self._fullest.fill
        return self._fill

    @property
    def queued_bytes(self) -> int:
        return sum(channel.queued_bytes for channel in self._channels)

    @property
    def flush_at(self) -> float | None:
        """When `flush_due` has something to do, by the monotonic clock."""
        times = (link.oldest for link in self.links)
        oldest = min((time for time in times if time is not None), default=None)
        return None if oldest is None else oldest + self._buffer_timeout_s

    def begin_slice(self, now: float) -> None:
        """What is emitted from here on counts as emitted at `now`."""
        for link in self.links:
            link.began_at = now

    def flush_due(self, now: float) -> None:
        for link in self.links:
            link.flush_older_than(now - self._buffer_timeout_s)

    @property
    def wanted(self) -> bool:
        """Whether any receiver waits for what is held."""
        return any(link.wanted for link in self.links)

    def flush_wanted(self) -> None:
        """Send what receivers wait for: to be called if the subtask has nothing else to do."""
        for link in self.links:
            link.flush_wanted()

    def watermark(self, watermark: int, of: Collection[str | None]) -> None:
        """Send a watermark on, behind everything emitted so far by the operators with these uids."""
        self._control(watermark_frame(watermark), of)

    def idle(self, idle: bool, of: Collection[str | None]) -> None:
        """As `watermark`, that the input has become idle, or active again."""
        self._control(IDLE_FRAME if idle else ACTIVE_FRAME, of)

    def latency(self, marker: LatencyMarker) -> None:
        """Send a latency marker on, into every link."""
        frame = latency_frame(marker)
        for link in self.links:
            link.latency(frame)

    def barrier(self, barrier: Barrier) -> None:
        """Send a barrier on, behind everything emitted so far."""
        frame = barrier_frame(barrier)
        for link in self.links:
            link.barrier(frame)

    def overtake(self, barrier: Barrier) -> list[Overtaken]:
        """Send a barrier on, ahead of all data that may be captured; returns that data."""
        frame = barrier_frame(barrier)
        overtaken: list[Overtaken] = []
        for link in self.links:
            if link.link.capturable:
                overtaken += link.overtake(frame)
            else:
                link.barrier(frame)
        return overtaken

    def mark(self, number: int, index: int | None = None) -> list[Overtaken]:
        """Send the mark of a local snapshot, ahead of all data in all channels; returns that data."""
        frame = mark_frame(number, index)
        return [part for link in self.links for part in link.overtake(frame)]

    def forget(self, processed: Mapping[ChannelId, int]) -> None:
        """Nobody asks again for the first so many records of these channels."""
        for channel in self._channels:
            channel.forget(processed)

    def watch(self, barrier: Barrier, passed: Callable[[], None]) -> None:
        """Call `passed` once the barrier has left all queues in which it may overtake."""
        frame = barrier_frame(barrier)
        ends = (channel for link in self._overtakable for channel in link.channels)
        self._watched_left = sum(channel.holds(frame) for channel in ends)
        if self._watched_left:
            self._watched = (barrier.checkpoint_id, passed)
        else:
            passed()

    def unwatch(self) -> None:
        self._watched = None

    def move_ahead(self, barrier: Barrier) -> list[Overtaken]:
        """Let a barrier that was sent on overtake what it may; returns the data that it overtakes."""
        frame = barrier_frame(barrier)
        return [part for link in self._overtakable for part in link.move_ahead(frame)]

    def overtakable_bytes(self, sent: Barrier | None) -> int:
        """What `move_ahead` of a barrier would capture now, or `overtake` if none was sent."""
        frame = None if sent is None else barrier_frame(sent)
        if frame is None:
            for link in self._overtakable:
                link.flush()
        return sum(
            channel.bytes_ahead(frame)
            for link in self._overtakable
            for channel in link.channels
            if frame is None or channel.holds(frame)
        )

    def drop_barriers(self, is_over: Callable[[int], bool]) -> None:
        """Drop the barriers of the checkpoints for whose ids this is so: nobody waits for them."""
        for channel in self._channels:
            channel.drop_barriers(is_over)

    def end(self) -> None:
        for link in self.links:
            link.control(END_FRAME)

    def _on_changed(self, channel: OutputChannel) -> None:
        """Follow the fullest queue: to look at all of them each time is much where there are many."""
        fill = channel.fill
        if fill >= self._fill:
            self._fill, self._fullest = fill, channel
        elif channel is self._fullest:
            self._fullest = None
        self.changed()

    def _control(self, frame: Frame, of: Collection[str | None]) -> None:
        for link in self.links:
            if link.link.source_uid in of:
                link.control(frame)

    def _on_barrier_left(self, checkpoint_id: int) -> None:
        if self._watched is None or self._watched[0] != checkpoint_id:
            return
        self._watched_left -= 1
        if not self._watched_left:
            _, passed = self._watched
            self._watched = None
            passed()


def _nothing() -> None:
    return None
