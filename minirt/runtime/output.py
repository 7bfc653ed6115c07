"""The outgoing side of a subtask: deals records to channels and packs them into frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from minirt.config import Limits
from minirt.data.batch import Batch, Columns, Rows
from minirt.data.codec import RowCodec, UnsupportedRecordError, encode_columns
from minirt.data.keys import KeyRouter, UnstableKeyError, key_hash
from minirt.errors import MinirtError, UserCodeError
from minirt.graph.execution import Link
from minirt.graph.job_graph import Broadcast, Custom, Hash
from minirt.protocol.barriers import Barrier
from minirt.runtime.channels import OutputChannel
from minirt.runtime.frames import (
    ACTIVE_FRAME,
    END_FRAME,
    IDLE_FRAME,
    Frame,
    Kind,
    barrier_frame,
    watermark_frame,
)
from minirt.runtime.in_flight import Overtaken
from minirt.runtime.metrics import SubtaskMetrics
from minirt.runtime.operators.base import shown, user_error
from minirt.runtime.spill import SpilledFrame

_FIRST_RECORD_BYTES = 256
"""What a record is taken to be large before the first one was packed."""


@dataclass(slots=True)
class Outlet:
    """What all buffers of a subtask share.

    `make_room` is called whenever memory has no room for a frame: it lets go what the receivers take, and
    blocks while the channel is overdrawn.
    """

    name: str
    """The subtask's, for messages."""
    codec: RowCodec
    limits: Limits
    metrics: SubtaskMetrics
    now: Callable[[], float]
    make_room: Callable[[OutputChannel], None]


class ChannelBuffer:
    """Records on their way into one channel, or into several that get the same."""

    __slots__ = ("_channels", "_outlet", "records", "since", "threshold", "timestamps")

    def __init__(self, channels: Sequence[OutputChannel], outlet: Outlet) -> None:
        self._channels = channels
        self._outlet = outlet
        self.records: list[Any] = []
        self.timestamps: list[int] = []
        self.threshold = max(1, self._frame_bytes // _FIRST_RECORD_BYTES)
        """How many records make a frame, learned from the last one."""
        self.since: float | None = None
        """When the oldest record came in."""

    @property
    def _frame_bytes(self) -> int:
        """How large a frame should be: where little is granted, a large one would be most of it."""
        share = min(channel.share for channel in self._channels)
        return int(self._outlet.limits.frame_bytes * share)

    def settle(self, now: float) -> None:
        """Send what makes full frames; to be called after records were appended."""
        if len(self.records) >= self.threshold:
            self.flush()
        elif self.since is None and self.records:
            self.since = now

    def flush(self) -> None:
        """Send all records that are held, in frames of the learned size."""
        start, count = 0, len(self.records)
        while start < count:
            stop = min(count, start + self.threshold)
            whole = start == 0 and stop == count
            records = self.records if whole else self.records[start:stop]
            times = None
            if self.timestamps:
                times = self.timestamps if whole else self.timestamps[start:stop]
            self._send(Rows(records, times))
            start = stop
        self.records.clear()
        self.timestamps.clear()
        self.since = None

    def send_columns(self, batch: Columns) -> None:
        self.flush()
        self.put(Frame(Kind.COLUMNS, encode_columns(batch), len(batch)))

    def put(self, frame: Frame) -> None:
        outlet = self._outlet
        held: Frame | SpilledFrame = frame
        for channel in self._channels:
            held = channel.put(held)  # Once a frame is on disk, all the channels share it.
            if frame.is_data:
                outlet.metrics.bytes_out += frame.size
                if held is not frame or channel.overdrawn:
                    outlet.make_room(channel)
        if held is not frame:
            outlet.metrics.spilled_bytes += frame.size

    def _send(self, rows: Rows) -> None:
        count = len(rows)
        try:
            payload = self._outlet.codec.encode(rows)
        except UnsupportedRecordError as error:
            raise UserCodeError(f"what {self._outlet.name} emits: {error}") from error
        learned = self._frame_bytes * count // max(1, len(payload))
        self.threshold = max(1, min(self._outlet.limits.frame_records, learned))
        self.put(Frame(Kind.ROWS, payload, count))


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
    ) -> None:
        self.link = link
        self._link_key = link_key
        self._sender = sender
        self.channels = channels
        self._label = label
        self._outlet = outlet
        self._turn = 0
        self._timed = False
        together = isinstance(link.partitioning, Broadcast) or len(channels) == 1
        groups = [channels] if together else [[channel] for channel in channels]
        self._buffers = [ChannelBuffer(group, outlet) for group in groups]
        self._deal = self._dealer()

    def emit(self, batch: Batch) -> None:
        if not len(batch):
            return
        self._outlet.metrics.records_out += len(batch)
        if isinstance(batch, Columns) and len(self._buffers) == 1:
            self._buffers[0].send_columns(batch)
            return
        rows = batch.rows()
        if self._timed is not (rows.timestamps is not None):
            # All records of a frame carry timestamps, or none does.
            self.flush()
            self._timed = not self._timed
        self._deal(rows)
        now = self._outlet.now()
        for buffer in self._buffers:
            buffer.settle(now)

    def flush(self) -> None:
        for buffer in self._buffers:
            buffer.flush()

    def flush_older_than(self, time: float) -> None:
        for buffer in self._buffers:
            if buffer.since is not None and buffer.since <= time:
                buffer.flush()

    @property
    def oldest(self) -> float | None:
        """Since when the oldest record waits for its buffer to fill."""
        return min((b.since for b in self._buffers if b.since is not None), default=None)

    def overtake(self, barrier: Frame) -> list[Overtaken]:
        """Send a barrier ahead of everything that is queued; returns the data that it overtakes."""
        self.flush()
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

    def control(self, frame: Frame) -> None:
        """Send a control frame behind everything emitted so far, into every channel."""
        for buffer in self._buffers:
            buffer.flush()
            buffer.put(frame)

    def _ends(self) -> Iterator[tuple[int, OutputChannel]]:
        """The channels with the subtasks that receive from them."""
        return zip(self.link.receivers_of(self._sender), self.channels, strict=True)

    def _dealer(self) -> Callable[[Rows], None]:
        match self.link.partitioning:
            case Hash(key) if len(self._buffers) == 1:
                self._key_of = key.on_rows()
                return self._deal_keyed_to_one
            case _ if len(self._buffers) == 1:
                return self._deal_to_one
            case Hash(key):
                self._key_of = key.on_rows()
                entries = self._outlet.limits.route_cache_entries
                buffers, groups = self._buffers, self.link.max_parallelism
                self._appends = KeyRouter([b.records.append for b in buffers], groups, entries)
                self._timed_appends = KeyRouter(
                    [(b.records.append, b.timestamps.append) for b in buffers], groups, entries
                )
                return self._deal_by_key
            case Custom(function, key):
                self._key_of = key.on_rows()
                self._choose = function
                return self._deal_by_function
        return self._deal_in_turn

    def _deal_to_one(self, rows: Rows) -> None:
        buffer = self._buffers[0]
        buffer.records += rows.records
        if rows.timestamps is not None:
            buffer.timestamps += rows.timestamps

    def _deal_keyed_to_one(self, rows: Rows) -> None:
        """A key that could not be dealt to several is refused here too; one of a batch is looked at."""
        record = rows.records[0]
        try:
            key_hash(self._key_of(record))
        except Exception as error:
            raise self._key_error(error, record) from error
        self._deal_to_one(rows)

    def _deal_in_turn(self, rows: Rows) -> None:
        count = len(self._buffers)
        for place in range(count):
            buffer = self._buffers[(self._turn + place) % count]
            buffer.records += rows.records[place::count]
            if rows.timestamps is not None:
                buffer.timestamps += rows.timestamps[place::count]
        self._turn = (self._turn + len(rows)) % count

    def _deal_by_key(self, rows: Rows) -> None:
        key_of = self._key_of
        try:
            if rows.timestamps is None:
                appends = self._appends
                for record in rows.records:
                    appends[key_of(record)](record)
                return
            timed = self._timed_appends
            for record, time in zip(rows.records, rows.timestamps, strict=True):
                append, stamp = timed[key_of(record)]
                append(record)
                stamp(time)
        except Exception as error:
            raise self._key_error(error, record) from error

    def _key_error(self, error: Exception, record: Any) -> MinirtError:
        label = f"{self._label}, key of the next operator,"
        if isinstance(error, TypeError):
            try:
                key_hash(self._key_of(record))
            except UnstableKeyError as unstable:
                error = unstable
            except Exception:
                return user_error(label, error, record)
        if isinstance(error, UnstableKeyError):
            return UserCodeError(f"operator {label} failed on record {shown(record)}: {error}")
        return user_error(label, error, record)

    def _deal_by_function(self, rows: Rows) -> None:
        choose, key_of, count = self._choose, self._key_of, len(self._buffers)
        targets = []
        try:
            for record in rows.records:
                targets.append(choose(key_of(record), count))
        except Exception as error:
            raise user_error(f"{self._label}, partitioner,", error, record) from error
        for target in set(targets):
            if not (isinstance(target, int) and 0 <= target < count):
                raise UserCodeError(
                    f"operator {self._label}: the partitioner returned {target!r}; it must return an "
                    f"index from 0 to {count - 1}"
                )
        for target, record in zip(targets, rows.records, strict=True):
            self._buffers[target].records.append(record)
        if rows.timestamps is not None:
            for target, time in zip(targets, rows.timestamps, strict=True):
                self._buffers[target].timestamps.append(time)


class Outputs:
    """All links of a subtask."""

    def __init__(self, links: Sequence[LinkOutput], buffer_timeout_s: float) -> None:
        self.links = links
        self._channels = [channel for link in links for channel in link.channels]
        self._overtakable = [link for link in links if link.link.capturable]
        self._watched: tuple[Frame, Callable[[], None]] | None = None
        self._buffer_timeout_s = buffer_timeout_s
        for link in self._overtakable:
            for channel in link.channels:
                channel.barrier_left = self._look_at_watched

    @property
    def full(self) -> bool:
        """Whether any channel holds as much as it may: the subtask should take no further input."""
        return self.fill >= 1

    @property
    def fill(self) -> float:
        """How full the fullest queue is; above 1 it holds more than it may."""
        return max([channel.fill for channel in self._channels], default=0.0)

    @property
    def queued_bytes(self) -> int:
        return sum(channel.queued_bytes for channel in self._channels)

    @property
    def flush_at(self) -> float | None:
        """When `flush_due` has something to do, in seconds since 1970."""
        oldest = min((link.oldest for link in self.links if link.oldest is not None), default=None)
        return None if oldest is None else oldest + self._buffer_timeout_s

    def flush_due(self, now: float) -> None:
        for link in self.links:
            link.flush_older_than(now - self._buffer_timeout_s)

    def watermark(self, watermark: int) -> None:
        self._control(watermark_frame(watermark))

    def idle(self, idle: bool) -> None:
        self._control(IDLE_FRAME if idle else ACTIVE_FRAME)

    def barrier(self, barrier: Barrier) -> None:
        """Send a barrier on, behind everything emitted so far."""
        self._control(barrier_frame(barrier))

    def overtake(self, barrier: Barrier) -> list[Overtaken]:
        """Send a barrier on, ahead of all data that may be captured; returns that data."""
        frame = barrier_frame(barrier)
        overtaken: list[Overtaken] = []
        for link in self.links:
            if link.link.capturable:
                overtaken += link.overtake(frame)
            else:
                link.control(frame)
        return overtaken

    def watch(self, barrier: Barrier, passed: Callable[[], None]) -> None:
        """Call `passed` once the barrier has left all queues in which it may overtake."""
        self._watched = (barrier_frame(barrier), passed)
        self._look_at_watched()

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
            data.size
            for link in self._overtakable
            for channel in link.channels
            if frame is None or channel.holds(frame)
            for data in channel.data_ahead(frame)
        )

    def end(self) -> None:
        self._control(END_FRAME)

    def _control(self, frame: Frame) -> None:
        for link in self.links:
            link.control(frame)

    def _look_at_watched(self) -> None:
        if self._watched is None:
            return
        frame, passed = self._watched
        channels = (channel for link in self._overtakable for channel in link.channels)
        if not any(channel.holds(frame) for channel in channels):
            self._watched = None
            passed()
