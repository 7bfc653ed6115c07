"""Notes the events of a subtask's checkpoints, for pictures of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from minirt.protocol.barriers import Barrier
from minirt.protocol.ids import SubtaskId
from minirt.protocol.manifest import ChannelData
from minirt.protocol.reports import ChannelReport
from minirt.protocol.trace import (
    NO_CHANNEL,
    SubtaskTrace,
    TraceEvent,
    TraceEventKind,
    TraceSender,
)
from minirt.runtime.subtask.local_snapshots import PartOfLine


class CheckpointTracer:
    """The checkpoints under way, as barriers tell of them. It is asked a few times a channel and
    checkpoint, never for a record."""

    def __init__(
        self,
        id: SubtaskId,
        name: str,
        senders: Sequence[TraceSender],
        monotonic: Callable[[], float],
        events_max: int,
    ) -> None:
        self._id = id
        self._name = name
        self._senders = tuple(senders)
        self._monotonic = monotonic
        self._events_max = events_max
        self._newest_id = 0
        self._under_way: dict[int, tuple[Barrier, list[TraceEvent]]] = {}

    def on_barrier(self, kind: TraceEventKind, channel: int, barrier: Barrier, now: float) -> None:
        """A barrier has got somewhere."""
        checkpoint_id = barrier.checkpoint_id
        if checkpoint_id > self._newest_id:
            oldest_id = checkpoint_id if barrier.oldest_id is None else barrier.oldest_id
            going_on = {id: one for id, one in self._under_way.items() if id >= oldest_id}
            self._under_way = {**going_on, checkpoint_id: (barrier, [])}
            self._newest_id = checkpoint_id
        if checkpoint_id in self._under_way:
            self._under_way[checkpoint_id][1].append(TraceEvent(now, kind, channel))

    def note(self, kind: TraceEventKind, channel: int = NO_CHANNEL) -> None:
        """Something has happened that all checkpoints under way have to do with."""
        event = TraceEvent(self._monotonic(), kind, channel)
        for _, events in self._under_way.values():
            events.append(event)

    def step(
        self, checkpoint_id: int, kind: TraceEventKind, bytes: int = 0, at: float | None = None
    ) -> None:
        """A step of one checkpoint, now if not at another time; past so much data, if barriers moved."""
        event = TraceEvent(self._monotonic() if at is None else at, kind, NO_CHANNEL, bytes)
        self._under_way[checkpoint_id][1].append(event)

    def whole(self, checkpoint_id: int, captured: Iterable[ChannelData]) -> SubtaskTrace:
        """Nothing is missing of the subtask's part of a checkpoint: the trace of that so far."""
        self.step(checkpoint_id, "whole")
        barrier, noted = self._under_way.pop(checkpoint_id)
        events, left_out = within(noted, self._events_max)
        return SubtaskTrace(
            self._id.vertex,
            self._id.index,
            self._name,
            barrier.created_at,
            self._senders,
            tuple(events),
            reports_of(captured),
            left_out,
        )

    def line(
        self, part: PartOfLine, captured: Iterable[ChannelData], overtaken_bytes: int
    ) -> SubtaskTrace:
        """All that a line needs besides a local snapshot is there; its marks went past so much data."""
        marks = [
            TraceEvent(at, "arrived", channel)
            for channel, at in enumerate(part.marks_at)
            if at is not None
        ]
        noted = [
            TraceEvent(part.taken_at, "sent", NO_CHANNEL, overtaken_bytes),
            TraceEvent(part.taken_at, "snapshot"),
            *marks,
            TraceEvent(part.ordered_at, "triggered"),
            TraceEvent(self._monotonic(), "whole"),
        ]
        events, left_out = within(sorted(noted, key=lambda event: event.at), self._events_max)
        return SubtaskTrace(
            self._id.vertex,
            self._id.index,
            self._name,
            part.ordered_at,
            self._senders,
            tuple(events),
            reports_of(captured),
            left_out,
            local=part.number,
        )


def reports_of(captured: Iterable[ChannelData]) -> tuple[ChannelReport, ...]:
    """What was stored in flight, for a trace."""
    return tuple(
        ChannelReport(c.link, c.sender, c.receiver, c.side, c.bytes, c.records) for c in captured
    )


class Untraced:
    """In place of a tracer where nobody wants a picture."""

    def on_barrier(
        self, kind: TraceEventKind, channel: int, barrier: Barrier, now: float
    ) -> None: ...

    def note(self, kind: TraceEventKind, channel: int = NO_CHANNEL) -> None: ...

    def step(
        self, checkpoint_id: int, kind: TraceEventKind, bytes: int = 0, at: float | None = None
    ) -> None: ...

    def whole(self, checkpoint_id: int, captured: Iterable[ChannelData]) -> None: ...

    def line(
        self, part: PartOfLine, captured: Iterable[ChannelData], overtaken_bytes: int
    ) -> None: ...


def within(events: Sequence[TraceEvent], events_max: int) -> tuple[list[TraceEvent], int]:
    """The events, but at most about `events_max`, and of how many channels there are none.

    The channels that something happened to last stay, since the checkpoint waited for these, and the one
    that came first.
    """
    if len(events) <= events_max:
        return list(events), 0
    count: dict[int, int] = {}
    last: dict[int, int] = {}
    for place, event in enumerate(events):
        if event.channel != NO_CHANNEL:
            count[event.channel] = count.get(event.channel, 0) + 1
            last[event.channel] = place
    first = next(iter(last), NO_CHANNEL)
    room = events_max - (len(events) - sum(count.values())) - count.get(first, 0)
    kept = {NO_CHANNEL, first}
    for channel in sorted(last, key=lambda one: -last[one]):
        if channel not in kept:
            room -= count[channel]
            if room < 0:
                break
            kept.add(channel)
    left_out = len(set(last) - kept)
    return [event for event in events if event.channel in kept], left_out
