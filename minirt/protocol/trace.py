"""What a checkpoint did, event by event: what a picture of it is drawn from.

Each subtask notes its events by the clock of its process. Its part of the trace says how far that clock is
ahead of the coordinator's, so that events of several processes can be laid on one axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

from minirt.protocol.manifest import CheckpointKind
from minirt.protocol.reports import ChannelReport

TraceEventKind = Literal[
    "triggered",
    "arrived",
    "reached",
    "ended",
    "timer",
    "blocked",
    "unblocked",
    "sent",
    "snapshot",
    "overtook",
    "passed",
    "whole",
    "upload",
    "stored",
]
"""What can happen in a subtask, in about this order.

* triggered: the coordinator's order came to a source; arrived: a barrier was enqueued at the input;
  reached: all ahead of it was processed; ended: a channel that owes no barrier any more; timer: of the mode
* blocked, unblocked: a channel is not read, all are read again
* sent: barriers went into all output queues, past `bytes` of data; the synchronous part begins
* snapshot: it ends; overtook: barriers in output queues moved past `bytes` of data; passed: they have left
* whole: nothing is missing of the subtask's part; upload: it begins to be stored; stored: it is durable

Of a checkpoint that is made of local snapshots: sent and snapshot are of the subtask's own, which it took
before the checkpoint was begun; arrived: the mark of the sender's has come, before or after that;
triggered: the coordinator's order came to store what is in transit.
"""

TRACE_EVENT_KINDS: tuple[TraceEventKind, ...] = get_args(TraceEventKind)

NO_CHANNEL = -1
"""The channel of an event that concerns the subtask as a whole."""


class TraceEvent(NamedTuple):
    """Something that happened in a subtask, at a time of the monotonic clock of its process.

    `channel` is a place in `SubtaskTrace.senders`.
    """

    at: float
    kind: TraceEventKind
    channel: int = NO_CHANNEL
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class TraceSender:
    """Who sends through an input channel: a subtask of a vertex, over a link."""

    vertex: int
    subtask: int
    link: str


@dataclass(frozen=True, slots=True)
class SubtaskTrace:
    """The events of one checkpoint in one subtask, in the order in which they happened."""

    vertex: int
    subtask: int
    name: str
    created_at: float
    """When the checkpoint was triggered, as its barriers told, by the clock of the process."""
    senders: tuple[TraceSender, ...]
    """By input channel. Those of a source's triggers and of restored records have no sender."""
    events: tuple[TraceEvent, ...]
    captured: tuple[ChannelReport, ...] = ()
    """The in-flight data that joined the snapshot."""
    channels_left_out: int = 0
    """Of how many channels there are no events, as they would be too many: those that came early."""
    clock_ahead_s: float | None = None
    """How far the clock of the process is ahead of the coordinator's; None if nobody has measured it."""
    clock_error_s: float | None = None
    """By how much that may be wrong."""
    local: int | None = None
    """The number of the local snapshot that it is about; None of a checkpoint with barriers."""
    acknowledged_at: float | None = None
    """When the coordinator heard that it was stored, by the clock of the coordinator."""

    def and_then(self, *events: TraceEvent) -> SubtaskTrace:
        """With what happened next."""
        return replace(self, events=(*self.events, *events))


@dataclass(frozen=True, slots=True)
class CheckpointTrace:
    """One completed checkpoint. Times are by the monotonic clock of the coordinator, but for the date
    `triggered_at`, in seconds since 1970."""

    job: str
    checkpoint_id: int
    generation: int
    mode: str
    kind: CheckpointKind
    triggered_at: float
    created_at: float
    completed_at: float
    """When it was known that the manifest is stored."""
    committed_at: float | None
    """When the output of its sinks was known to be visible; None if that has failed."""
    subtasks: tuple[SubtaskTrace, ...]
    """In the order of the job's graph."""

    def elapsed(self, part: SubtaskTrace, at: float) -> float:
        """Seconds from the trigger to a time of the subtask's process.

        Where nobody has measured the clocks, what the barriers told counts.
        """
        if part.clock_ahead_s is None:
            return at - part.created_at
        return at - part.clock_ahead_s - self.created_at

    @property
    def duration_s(self) -> float:
        return self.completed_at - self.created_at


class OpenTraces:
    """Traces of completed checkpoints whose output is not known to be committed. There are few of them:
    who hears that a commit has failed takes its trace."""

    def __init__(self) -> None:
        self._open: dict[int, CheckpointTrace] = {}

    def add(self, trace: CheckpointTrace) -> None:
        """The checkpoint is complete."""
        self._open[trace.checkpoint_id] = trace

    def committed(self, checkpoint_id: int, now: float) -> Sequence[CheckpointTrace]:
        """A commit publishes what earlier checkpoints hold as well."""
        return [replace(trace, committed_at=now) for trace in self.take(checkpoint_id)]

    def take(self, checkpoint_id: int) -> Sequence[CheckpointTrace]:
        """Those up to a checkpoint, as they are."""
        due = sorted(id for id in self._open if id <= checkpoint_id)
        return [self._open.pop(id) for id in due]
