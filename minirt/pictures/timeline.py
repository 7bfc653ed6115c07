"""A traced checkpoint on one time axis: a lane for each subtask, in seconds since the trigger.

The axis of one that is made of local snapshots begins with the oldest of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from minirt.protocol.trace import (
    NO_CHANNEL,
    CheckpointTrace,
    SubtaskTrace,
    TraceEvent,
    TraceEventKind,
)

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class ChannelTimes:
    """The barrier of one input channel. What did not happen, or before the snapshot was whole, is None."""

    channel: int
    sender: int | None
    """The lane that sends, None if there is no trace of it."""
    link: str
    sent: float | None
    arrived: float | None
    reached: float | None
    blocked: Interval | None
    captured_in_bytes: int
    """What joined the snapshot from its input queue."""
    captured_out_bytes: int
    """What the barrier overtook in the output queue of its sender."""

    @property
    def last(self) -> float:
        """When anything happened to it last."""
        return max((at for at in (self.arrived, self.reached) if at is not None), default=0.0)


@dataclass(frozen=True, slots=True)
class Lane:
    """One subtask. `events` are in the order in which they happened there."""

    name: str
    vertex: int
    subtask: int
    events: tuple[TraceEvent, ...]
    channels: tuple[ChannelTimes, ...]
    acknowledged: float
    captured_bytes: int
    channels_left_out: int
    clock_error_s: float | None
    local: int | None = None
    """The number of its local snapshot, if the checkpoint is made of such ones: then barriers are marks."""

    def at(self, kind: TraceEventKind, default: float = 0.0) -> float:
        """When that happened first."""
        return next((event.at for event in self.events if event.kind == kind), default)

    @property
    def began(self) -> float:
        """The first barrier, or the trigger."""
        return self.events[0].at if self.events else 0.0

    @property
    def overtook(self) -> bool:
        """Whether its barriers overtook data, or its snapshot holds any."""
        return self.captured_bytes > 0

    def channel(self, place: int) -> ChannelTimes | None:
        """What happened to a channel."""
        return next((one for one in self.channels if one.channel == place), None)


@dataclass(frozen=True, slots=True)
class Timeline:
    """A checkpoint. `lanes` are in the order of the job's graph."""

    job: str
    checkpoint_id: int
    mode: str
    kind: str
    lanes: tuple[Lane, ...]
    completed: float
    committed: float | None
    triggered: float = 0.0
    """When it was begun."""

    @property
    def is_line(self) -> bool:
        """Whether it is made of local snapshots."""
        return any(lane.local is not None for lane in self.lanes)

    @property
    def took(self) -> float:
        """Seconds from its beginning to its completion."""
        return self.completed - self.triggered

    @property
    def end(self) -> float:
        """The last thing there is to draw."""
        return max(self.completed, self.committed or 0.0)


def timeline(trace: CheckpointTrace) -> Timeline:
    """The trace on one axis. Clocks are never quite alike: events of one subtask keep their order."""
    places = {(part.vertex, part.subtask): lane for lane, part in enumerate(trace.subtasks)}
    firsts = [trace.elapsed(p, p.events[0].at) for p in trace.subtasks if p.local and p.events]
    triggered = max(0.0, -min(firsts, default=0.0))
    events = [_events(trace, part, triggered) for part in trace.subtasks]
    sent = [next((e.at for e in each if e.kind == "sent"), None) for each in events]
    overtaken = {
        (c.link, c.sender, c.receiver): c.bytes
        for part in trace.subtasks
        for c in part.captured
        if c.side == "out"
    }
    lanes = tuple(
        _lane(trace, part, each, places, sent, overtaken, triggered)
        for part, each in zip(trace.subtasks, events, strict=True)
    )
    committed = trace.committed_at
    return Timeline(
        trace.job,
        trace.checkpoint_id,
        trace.mode,
        trace.kind,
        lanes,
        trace.duration_s + triggered,
        None if committed is None else committed - trace.created_at + triggered,
        triggered,
    )


def _events(trace: CheckpointTrace, part: SubtaskTrace, triggered: float) -> tuple[TraceEvent, ...]:
    at, placed = 0.0, []
    for event in part.events:
        at = max(at, trace.elapsed(part, event.at) + triggered)
        placed.append(event._replace(at=at))
    return tuple(placed)


def _lane(
    trace: CheckpointTrace,
    part: SubtaskTrace,
    events: Sequence[TraceEvent],
    places: Mapping[tuple[int, int], int],
    sent: Sequence[float | None],
    overtaken: Mapping[tuple[str, int, int], int],
    triggered: float,
) -> Lane:
    captured_in = {(c.link, c.sender): c.bytes for c in part.captured if c.side == "in"}
    by_channel: dict[int, list[TraceEvent]] = {}
    for event in events:
        if event.channel != NO_CHANNEL:
            by_channel.setdefault(event.channel, []).append(event)
    unblocked = [event.at for event in events if event.kind == "unblocked"]
    channels = []
    for channel, own in sorted(by_channel.items()):
        if channel >= len(part.senders):
            continue  # The triggers of a source, or restored records.
        sender = part.senders[channel]
        lane = places.get((sender.vertex, sender.subtask))
        times = {event.kind: event.at for event in own}
        channels.append(
            ChannelTimes(
                channel,
                lane,
                sender.link,
                None if lane is None else sent[lane],
                times.get("arrived"),
                times.get("reached", times.get("ended")),
                _blocked(times.get("blocked"), unblocked, events),
                captured_in.get((sender.link, sender.subtask), 0),
                overtaken.get((sender.link, sender.subtask, part.subtask), 0),
            )
        )
    last = events[-1].at if events else 0.0
    heard = part.acknowledged_at
    acknowledged = last if heard is None else max(last, heard - trace.created_at + triggered)
    return Lane(
        part.name,
        part.vertex,
        part.subtask,
        tuple(events),
        tuple(channels),
        acknowledged,
        sum(channel.bytes for channel in part.captured),
        part.channels_left_out,
        part.clock_error_s,
        part.local,
    )


def _blocked(
    since: float | None, unblocked: Sequence[float], events: Sequence[TraceEvent]
) -> Interval | None:
    if since is None:
        return None
    return since, next((at for at in unblocked if at >= since), events[-1].at)
