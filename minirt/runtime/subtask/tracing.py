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


class CheckpointTracer:
    """One checkpoint at a time: a barrier of a newer one begins anew. It is asked a few times a channel and
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
        self._checkpoint_id = 0
        self._created_at = 0.0
        self._events: list[TraceEvent] = []

    def on_barrier(self, kind: TraceEventKind, channel: int, barrier: Barrier, now: float) -> None:
        """A barrier has got somewhere."""
        if barrier.checkpoint_id > self._checkpoint_id:
            self._checkpoint_id, self._created_at = barrier.checkpoint_id, barrier.created_at
            self._events = []
        if barrier.checkpoint_id == self._checkpoint_id:
            self._events.append(TraceEvent(now, kind, channel))

    def note(self, kind: TraceEventKind, channel: int = NO_CHANNEL, bytes: int = 0) -> None:
        """Something has happened for the checkpoint under way."""
        self._events.append(TraceEvent(self._monotonic(), kind, channel, bytes))

    def sent(self, at: float, overtaken_bytes: int) -> None:
        """Barriers went into the output queues, past so much data; the synchronous part began at `at`."""
        self._events.append(TraceEvent(at, "sent", NO_CHANNEL, overtaken_bytes))

    def whole(self, captured: Iterable[ChannelData]) -> SubtaskTrace:
        """Nothing is missing of the subtask's part: the trace so far."""
        self.note("whole")
        events, left_out = within(self._events, self._events_max)
        return SubtaskTrace(
            self._id.vertex,
            self._id.index,
            self._name,
            self._created_at,
            self._senders,
            tuple(events),
            tuple(
                ChannelReport(c.link, c.sender, c.receiver, c.side, c.bytes, c.records)
                for c in captured
            ),
            left_out,
        )


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
