"""Channels: byte-bounded queues at the sender and at the receiver, with credit in bytes.

The receiver tells how many bytes it has consumed in all, that is taken from its queue, and how many it
takes beyond that: its credit window.
A sender never has more under way than the window, so everything on the wire fits the input queue
and whatever moves frames can always drain its socket. A frame larger than the window travels alone.

Frames that memory has no room for wait on disk (`spill.py`), in their place of the queue.

The same two classes are used between processes, within one, and in the simulator; only what moves
frames from one to the other differs.

The receiver may change its window (debloating). The sender then scales with it what it holds itself.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from minirt.protocol.ids import ChannelId
from minirt.runtime.channels.debloat import Debloater, full_window_bytes
from minirt.runtime.channels.frames import Frame, Kind, barrier_of
from minirt.runtime.channels.queue import FrameQueue, Queued
from minirt.runtime.channels.spill import Spill, SpilledFrame


@dataclass(frozen=True, slots=True)
class RowRoom:
    """What a channel may hold at each end while rows come through it: frames of rows are smaller than those
    of columns, so they need less."""

    queue_bytes: int
    window_bytes: int


class OutputChannel:
    """The sending end. `wake` is called when a frame was put into an empty queue, `barrier_left` with the
    checkpoint whose barrier was taken from the queue, and `changed` when `fill` may have changed.

    `window_bytes` is the largest window that the receiver may grant, and the first one. `rows` are bounds
    that hold for rows besides.

    Memory holds at most `overdraft_bytes` more than a full queue; what is beyond goes to `spill`.
    """

    def __init__(
        self,
        queue_bytes_max: int,
        window_bytes: int,
        overdraft_bytes: int = 0,
        spill: Spill | None = None,
        rows: RowRoom | None = None,
    ) -> None:
        self.queue_bytes_max = queue_bytes_max
        self.rows = rows or RowRoom(queue_bytes_max, window_bytes)
        self.share = 1.0
        """How much of its queue the sender should use: it shrinks, and frames with it, in proportion to the
        window that is granted."""
        self.queued_bytes = 0
        """In memory and on disk."""
        self.spill = spill or Spill(None, 0)
        self.wake: Callable[[], None] = _nothing
        self.barrier_left: Callable[[int], None] = _nothing_of
        self.changed: Callable[[], None] = _nothing
        self._frames = FrameQueue()
        self._overdraft_bytes = overdraft_bytes
        self._spilled_bytes = 0
        self._sent_bytes = 0
        self._consumed_bytes = 0
        self._window_bytes = self._window_bytes_max = window_bytes
        self._full_window_bytes = full_window_bytes(window_bytes, queue_bytes_max)
        self._has_rows = False
        """Whether the newest data is rows."""

    @property
    def fill(self) -> float:
        """How full the queue is; from 1 on the subtask should take no further input for its sake."""
        full = self.queue_bytes_max * self.share
        return self.queued_bytes / (min(full, self.rows.queue_bytes) if self._has_rows else full)

    @property
    def overdrawn(self) -> bool:
        """Whether memory holds more than it should, and disk has no room either."""
        return self._room_bytes < 0 and not self.spill.has_room

    @property
    def _room_bytes(self) -> int:
        """What fits into memory; negative if it holds too much already."""
        in_memory = self.queued_bytes - self._spilled_bytes
        return self.queue_bytes_max + self._overdraft_bytes - in_memory

    def put(self, frame: Frame | SpilledFrame) -> Frame | SpilledFrame:
        """Append a frame; returns it as it is held, which may be on disk.

        Never refuses: it is the caller that stops when the queue is full, or overdrawn.
        """
        if frame.is_data:
            self._has_rows = frame.kind == Kind.ROWS
            if isinstance(frame, Frame) and frame.size > self._room_bytes:
                frame = self.spill.add(frame) or frame
        if isinstance(frame, Frame) and frame.kind == Kind.BARRIER:
            self._enter(frame, self._frames.append_barrier)
        else:
            self._frames.append(frame)
            self.queued_bytes += frame.size
        if isinstance(frame, SpilledFrame):
            self._spilled_bytes += frame.size
        self.changed()
        if len(self._frames) == 1:
            self.wake()
        return frame

    def overtake(self, barrier: Frame) -> list[Frame | SpilledFrame]:
        """Put a barrier or a mark ahead of everything queued; returns the data frames that it overtakes.

        Marks that wait at the head stay ahead of it: a receiver counts by them.
        """
        overtaken = self.data_ahead(None)
        self._enter(barrier, self._frames.overtake)
        self.changed()
        self.wake()
        return overtaken

    def holds(self, barrier: Frame) -> bool:
        """Whether a barrier that was put has not left the queue yet."""
        return self._frames.holds_barrier(barrier_of(barrier).checkpoint_id)

    def data_ahead(self, barrier: Frame | None) -> list[Frame | SpilledFrame]:
        """The data frames ahead of a barrier that the queue holds; with None, those of all the queue."""
        return self._frames.data_ahead(
            None if barrier is None else barrier_of(barrier).checkpoint_id
        )

    def bytes_ahead(self, barrier: Frame | None) -> int:
        """The size of what `data_ahead` gives."""
        return self._frames.bytes_ahead(
            None if barrier is None else barrier_of(barrier).checkpoint_id
        )

    def move_ahead(self, barrier: Frame) -> list[Frame | SpilledFrame]:
        """Put a barrier that the queue holds at its head; returns the data frames that it overtakes."""
        overtaken = self.data_ahead(barrier)
        self._frames.move_ahead(barrier_of(barrier).checkpoint_id)
        self.wake()
        return overtaken

    def drop_barriers(self, is_over: Callable[[int], bool]) -> int:
        """Drop the barriers of the checkpoints for whose ids this is so; returns how many there were."""
        dropped = self._frames.drop(is_over)
        if dropped:
            self._dropped(dropped)
            self.changed()
        return len(dropped)

    def _enter(self, frame: Frame, put: Callable[[Frame], list[Queued]]) -> None:
        """Put a barrier or a mark into the queue; the barriers that it makes useless leave."""
        queued = len(self._frames)
        dropped = put(frame)
        if len(self._frames) + len(dropped) > queued:
            self.queued_bytes += frame.size
        self._dropped(dropped)

    def _dropped(self, barriers: Iterable[Queued]) -> None:
        for barrier in barriers:
            assert isinstance(barrier, Frame)
            self.queued_bytes -= barrier.size
            self.barrier_left(barrier_of(barrier).checkpoint_id)

    def poll(self) -> Frame | None:
        """The next frame that credit allows to send, taken from the queue.

        Raises StorageError if it lies on disk and cannot be read.
        """
        if not self.sendable:
            return None
        frame = self._frames.popleft()
        self.queued_bytes -= frame.size
        self.changed()
        if frame.is_data:
            self._sent_bytes += frame.size
        elif isinstance(frame, Frame) and frame.kind == Kind.BARRIER:
            self.barrier_left(barrier_of(frame).checkpoint_id)
        if isinstance(frame, SpilledFrame):
            self._spilled_bytes -= frame.size
            return frame.load()
        return frame

    @property
    def sendable(self) -> bool:
        if not self._frames:
            return False
        return self._has_credit(self._frames[0])

    def _has_credit(self, frame: Frame | SpilledFrame) -> bool:
        under_way = self._sent_bytes - self._consumed_bytes
        if not frame.is_data or under_way == 0:
            return True
        window = self._window_bytes
        if frame.kind == Kind.ROWS:
            window = min(window, self.rows.window_bytes)
        return under_way + frame.size <= window

    @property
    def control_is_next(self) -> bool:
        """Whether the next frame is a control frame, which needs no credit."""
        return bool(self._frames) and not self._frames[0].is_data

    @property
    def taken(self) -> bool:
        """Whether the receiver has taken all that was put, as far as is known here: it waits for more."""
        return not self._frames and self._sent_bytes == self._consumed_bytes

    def forget(self, processed: Mapping[ChannelId, int]) -> None:
        """Nobody asks again for the first so many records of these channels."""

    def on_credit(self, consumed_bytes: int, window_bytes: int) -> None:
        self._consumed_bytes = consumed_bytes
        self._window_bytes = window_bytes
        self.share = min(1.0, window_bytes / self._full_window_bytes)
        self.changed()
        if self._frames:
            self.wake()


class InputChannel:
    """The receiving end. `grant` is called with new credit once it is worth a message.

    The credit window is `window_bytes`, unless a debloater sizes it. Of rows, senders have at most
    `row_window_bytes` under way.
    """

    def __init__(
        self,
        window_bytes: int,
        debloater: Debloater | None = None,
        row_window_bytes: int | None = None,
    ) -> None:
        self._window_bytes = window_bytes
        self._row_window_bytes = window_bytes if row_window_bytes is None else row_window_bytes
        self._has_rows = False
        """Whether the newest data is rows."""
        self.debloater = debloater
        self.queued_bytes = 0
        self.frames = FrameQueue()
        self.grant: Callable[[int, int], None] = _no_grant
        self._consumed_bytes = 0
        self._granted_bytes = 0
        self._granted_window_bytes = 0

    @property
    def window_bytes(self) -> int:
        return self._window_bytes if self.debloater is None else self.debloater.window_bytes

    @property
    def room_bytes(self) -> int:
        """How much of what comes through now may be under way."""
        window = self.window_bytes
        return min(window, self._row_window_bytes) if self._has_rows else window

    def put(self, frame: Frame) -> None:
        """Append a frame, unless it means nothing to its reader: a mark counted when it arrived, and of the
        barriers of a channel only those of checkpoints that go on are kept."""
        if not self.frames:
            self.resume()
        if frame.kind == Kind.BARRIER:
            self.frames.append_barrier(frame)
        elif frame.kind != Kind.MARK:
            self.frames.append(frame)
        if frame.is_data:
            self.queued_bytes += frame.size
            self._has_rows = frame.kind == Kind.ROWS

    def take(self) -> Frame:
        frame = self.frames.popleft()
        assert isinstance(frame, Frame)  # What has arrived is in memory.
        if frame.is_data:
            self.queued_bytes -= frame.size
            self._consumed_bytes += frame.size
            # An empty queue is always told: the sender may be waiting to send an oversized frame alone.
            ungranted = self._consumed_bytes - self._granted_bytes
            if ungranted >= self.room_bytes // 4 or not self.queued_bytes:
                self._grant()
        return frame

    def begin(self, frame_bytes: int, records: int) -> None:
        """A frame that was taken will be worked on."""
        if self.debloater is not None:
            self.debloater.begin(frame_bytes, records)

    def processed(self, records: int) -> None:
        """So many records of the frame in work have been processed: the credit window may follow.

        A frame may be in work for long, so the sender hears at once if it may hold less from now on. That
        gives it no credit: a frame counts as consumed when it is taken.
        """
        if self.debloater is not None:
            self.debloater.processed(records)
            if self.debloater.window_bytes < self._granted_window_bytes:
                self._grant()

    def _grant(self) -> None:
        self._granted_bytes = self._consumed_bytes
        self._granted_window_bytes = self.window_bytes
        self.grant(self._consumed_bytes, self.window_bytes)

    def resume(self) -> None:
        """Frames may be taken from here on; that none were taken before says nothing about the pace."""
        if self.debloater is not None:
            self.debloater.resume()


class InputGate:
    """All input channels of a subtask; gives out frames fairly, one a channel in turn."""

    def __init__(self, channels: Sequence[InputChannel]) -> None:
        self.channels = channels
        self._ready: OrderedDict[int, None] = OrderedDict()
        """The channels that may be read, the next one first."""
        self._blocked: set[int] = set()

    @property
    def has_frames(self) -> bool:
        return bool(self._ready)

    @property
    def queued_bytes(self) -> int:
        return sum(channel.queued_bytes for channel in self.channels)

    @property
    def room_bytes(self) -> int:
        return sum(channel.room_bytes for channel in self.channels)

    def put(self, index: int, frame: Frame) -> None:
        channel = self.channels[index]
        channel.put(frame)
        if not channel.frames:
            self._ready.pop(index, None)  # The frame has dropped what was there.
        elif index not in self._ready and index not in self._blocked:
            self._ready[index] = None

    @property
    def next_kind(self) -> int | None:
        """The kind of the frame that `take` would give; None if it would give none."""
        for index in self._ready:
            return self.channels[index].frames[0].kind
        return None

    def take(self) -> tuple[int, Frame] | None:
        """The next frame and its channel; None if all queues are empty or blocked."""
        if not self._ready:
            return None
        index, _ = self._ready.popitem(last=False)
        channel = self.channels[index]
        frame = channel.take()
        if channel.frames:
            self._ready[index] = None
        return index, frame

    def take_from(self, index: int) -> Frame | None:
        """The next frame of one channel, be it blocked or not; None if its queue is empty."""
        channel = self.channels[index]
        if not channel.frames:
            return None
        frame = channel.take()
        if not channel.frames:
            self._ready.pop(index, None)
        return frame

    def drop_barriers(self, is_over: Callable[[int], bool]) -> None:
        """Drop the barriers of checkpoints that are over from all queues."""
        for index, channel in enumerate(self.channels):
            if channel.frames.drop(is_over) and not channel.frames:
                self._ready.pop(index, None)

    def block(self, index: int) -> None:
        self._blocked.add(index)
        self._ready.pop(index, None)

    def unblock_all(self) -> None:
        for index in sorted(self._blocked):
            self.channels[index].resume()
            if self.channels[index].frames:
                self._ready[index] = None
        self._blocked.clear()


def _nothing() -> None:
    return None


def _nothing_of(checkpoint_id: int) -> None:
    return None


def _no_grant(consumed_bytes: int, window_bytes: int) -> None:
    return None
