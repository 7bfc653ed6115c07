"""What a checkpoint waited for: the chain of waits and work without which it would have been shorter.

It is found from the end: the checkpoint waited for the last acknowledgement, that for the upload, that for
the last barrier or the snapshot, the snapshot for the barrier or order that caused it, the barrier for the
subtask that sent it, and so on to the coordinator's order to a source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from minirt.pictures.timeline import Lane, Timeline
from minirt.protocol.trace import TraceEvent, TraceEventKind

StepKind = Literal[
    "order",
    "output queue",
    "input queue",
    "timeout",
    "sync",
    "last barrier",
    "last mark",
    "own barriers",
    "uploader",
    "async",
    "answer",
    "manifest",
]

_CAUSES: tuple[TraceEventKind, ...] = ("triggered", "arrived", "reached", "ended", "timer")
_MAKES_WHOLE: tuple[TraceEventKind, ...] = (
    *("snapshot", "arrived", "reached", "ended", "passed", "overtook"),
)


@dataclass(frozen=True, slots=True)
class Step:
    """A part of the path, in seconds since the trigger. `lane` is where it is spent, None with the
    coordinator; `sender` is the lane whose barrier it is about."""

    kind: StepKind
    lane: int | None
    start: float
    end: float
    sender: int | None = None

    @property
    def duration(self) -> float:
        return self.end - self.start


def critical_path(timeline: Timeline) -> tuple[Step, ...]:
    """The steps from the trigger to the completion, each beginning where the one before ends.

    Of one that is made of local snapshots, those from the coordinator's order to store what is in transit:
    nobody has waited for the snapshots.
    """
    lanes = timeline.lanes
    if not lanes:
        return ()
    last = max(range(len(lanes)), key=lambda lane: lanes[lane].acknowledged)
    path = _Path(timeline.completed)
    path.step("manifest", None, lanes[last].acknowledged)
    path.step("answer", last, lanes[last].at("stored"))
    path.step("async", last, lanes[last].at("upload"))
    path.step("uploader", last, lanes[last].at("whole"))
    if timeline.is_line:
        _before_slices(path, timeline, last)
    else:
        _before_whole(path, lanes, last)
    return path.forwards()


class _Path:
    """Grows from the end to the beginning, without gaps: no step begins after it has ended."""

    def __init__(self, end: float) -> None:
        self._at = end
        self._steps: list[Step] = []

    def step(
        self, kind: StepKind, lane: int | None, start: float, sender: int | None = None
    ) -> None:
        start = min(start, self._at)
        self._steps.append(Step(kind, lane, start, self._at, sender))
        self._at = start

    def forwards(self) -> tuple[Step, ...]:
        """From the trigger on. A step that took no time says nothing."""
        return tuple(step for step in reversed(self._steps) if step.duration > 0)


def _before_whole(path: _Path, lanes: Sequence[Lane], lane: int) -> None:
    """What a subtask's part waited for before it was whole: the snapshot, or a barrier behind it."""
    one = lanes[lane]
    event = _before(one, "whole", _MAKES_WHOLE)
    if event is not None and event.kind in ("arrived", "reached", "ended"):
        channel = one.channel(event.channel)
        if channel is not None and channel.sender is not None and channel.arrived is not None:
            path.step("last barrier", lane, channel.arrived, channel.sender)
            path.step("output queue", lane, lanes[channel.sender].at("sent"), channel.sender)
            _before_sent(path, lanes, channel.sender)
            return
    if event is not None and event.kind in ("passed", "overtook"):
        kind: StepKind = "own barriers" if event.kind == "passed" else "timeout"
        path.step(kind, lane, one.at("snapshot"))
    path.step("sync", lane, one.at("sent"))
    _before_sent(path, lanes, lane)


def _before_slices(path: _Path, timeline: Timeline, lane: int) -> None:
    """What the slices of a subtask waited for: the order, or a mark that came behind it."""
    one = timeline.lanes[lane]
    ordered = one.at("triggered", timeline.triggered)
    mark = _before(one, "whole", ("arrived",))
    channel = None if mark is None or mark.at < ordered else one.channel(mark.channel)
    if channel is not None:
        path.step("last mark", lane, ordered, channel.sender)
    path.step("order", lane, timeline.triggered)


def _before_sent(path: _Path, lanes: Sequence[Lane], lane: int) -> None:
    """What caused a snapshot, back to the coordinator."""
    seen = set()
    while lane not in seen:
        seen.add(lane)
        one = lanes[lane]
        cause = _before(one, "sent", _CAUSES)
        if cause is not None and cause.kind == "timer":
            cause = _first_barrier(one)
            path.step("timeout", lane, 0.0 if cause is None else cause.at)
        if cause is None or cause.kind == "triggered":
            break
        channel = one.channel(cause.channel)
        if channel is None or channel.sender is None:
            break
        if cause.kind != "arrived" and channel.arrived is not None:
            path.step("input queue", lane, channel.arrived, channel.sender)
        sender = lanes[channel.sender]
        path.step("output queue", lane, sender.at("sent"), channel.sender)
        lane = channel.sender
    path.step("order", lane, 0.0)


def _before(
    lane: Lane, kind: TraceEventKind, causes: Sequence[TraceEventKind]
) -> TraceEvent | None:
    """The last event of these kinds before the first one of that kind."""
    found = None
    for event in lane.events:
        if event.kind == kind:
            break
        if event.kind in causes:
            found = event
    return found


def _first_barrier(lane: Lane) -> TraceEvent | None:
    return next((event for event in lane.events if event.kind == "arrived"), None)
