"""What subtasks and checkpoint modes say to each other: barriers, alignments and commands.

`minirt.protocol.barrier_handler` tells how they work together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

TRIGGER_CHANNEL = 0
"""The only channel of a source subtask: its barriers are the coordinator's triggers."""


@dataclass(frozen=True, slots=True)
class Barrier:
    """The cut of one checkpoint in a channel. The mode belongs to the checkpoint and travels here.

    `created_at` is when the coordinator triggered the checkpoint, by the monotonic clock of the process
    that holds the barrier: what carries it to another process says how old it is. At a `savepoint`, sinks
    hold no output back, since another job may go on from there.
    """

    checkpoint_id: int
    mode: str
    created_at: float
    savepoint: bool = False
    oldest_id: int | None = None
    """The oldest checkpoint that was under way when this one was triggered, None if it was alone: all that
    are older are over."""


@dataclass(frozen=True, slots=True)
class Switch:
    """Barriers overtook data: where, how long after the checkpoint's creation, and why."""

    where: Literal["inputs and outputs", "outputs"]
    after_s: float
    reason: str


class Moment(NamedTuple):
    """A time, and how many bytes the subtask had taken in by then."""

    at: float
    processed_bytes: int


@dataclass(slots=True)
class Alignment:
    """One checkpoint in one subtask: who still owes a barrier. Read by modes, written by the frame.

    `uncapturable` are the channels whose data must not join a snapshot.
    """

    barrier: Barrier
    channels: frozenset[int]
    uncapturable: frozenset[int]
    moment: Moment
    """When the event happened that is being handled."""
    arrived: set[int] = field(default_factory=set)
    reached: set[int] = field(default_factory=set)
    snapshot_taken: bool = False
    outputs_watched: bool = False
    """Whether barriers of this subtask still have to leave their output queues."""
    capture_bytes: int = 0
    """At a timer: what barriers would overtake if they did so now, in all queues of the subtask."""
    began: Moment | None = None
    """When the first barrier was processed: reached, or handled by overtaking."""
    ended: Moment | None = None
    """When the last barrier was processed."""
    switches: list[Switch] = field(default_factory=list)
    blocked: set[int] = field(default_factory=set)
    """The channels that wait for its snapshot."""

    @property
    def now(self) -> float:
        """When the event happened, by the monotonic clock of the process."""
        return self.moment.at

    @property
    def age_s(self) -> float:
        """How long ago the checkpoint was created."""
        return max(0.0, self.moment.at - self.barrier.created_at)

    @property
    def all_arrived(self) -> bool:
        return len(self.arrived) >= len(self.channels) and self.arrived >= self.channels

    @property
    def all_reached(self) -> bool:
        return len(self.reached) >= len(self.channels) and self.reached >= self.channels

    @property
    def may_capture(self) -> bool:
        """Whether an unaligned snapshot could be taken now, as no channel forbids it."""
        return self.reached >= self.uncapturable


# Commands: what the subtask must do, in order.


@dataclass(frozen=True, slots=True)
class BlockChannel:
    """Take no frame from this channel until the snapshot is taken or given up."""

    channel: int


@dataclass(frozen=True, slots=True)
class UnblockChannels:
    """Read from all channels again."""


@dataclass(frozen=True, slots=True)
class ScheduleTimer:
    """Call `on_timer` for this checkpoint at `at`, by the monotonic clock; at once if that is over."""

    checkpoint_id: int
    at: float


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    """Forward `barrier` to all outputs and snapshot the operators, as one step.

    With `capture`, what is queued ahead of the barrier in those input channels joins the snapshot in that
    step. So does the data ahead of it in the output queues, which it overtakes, unless not `overtake`:
    then it lies behind that data. The `reason` says why it overtakes. Without `capture` it overtakes
    nothing, and all data ahead of it was consumed.
    """

    barrier: Barrier
    capture: frozenset[int] | None = None
    reason: str = ""
    overtake: bool = True


@dataclass(frozen=True, slots=True)
class StartCapture:
    """Let the data that arrives in these channels from now on join the snapshot as well."""

    channels: frozenset[int]


@dataclass(frozen=True, slots=True)
class StopCapture:
    """This channel's barrier is here: what arrives behind it does not belong to the snapshot."""

    channel: int


@dataclass(frozen=True, slots=True)
class WatchOutputs:
    """Call `on_outputs_passed` once the barriers sent on have left all queues where they may overtake."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class OvertakeOutputs:
    """Move the barriers that are still queued to the head of their output queues. What they overtake
    joins the snapshot, which was taken without overtaking."""

    checkpoint_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class FinishSnapshot:
    """The snapshot is whole: write and acknowledge it. `processed_bytes` came in during alignment."""

    checkpoint_id: int
    start_delay_s: float
    alignment_s: float
    processed_bytes: int = 0
    switches: tuple[Switch, ...] = ()


@dataclass(frozen=True, slots=True)
class AbortSnapshot:
    """Forget what was taken for this checkpoint; sink output that it held goes into the next one."""

    checkpoint_id: int


Command = (
    BlockChannel
    | UnblockChannels
    | ScheduleTimer
    | TakeSnapshot
    | StartCapture
    | StopCapture
    | WatchOutputs
    | OvertakeOutputs
    | FinishSnapshot
    | AbortSnapshot
)


def unaligned_snapshot(
    alignment: Alignment, reason: str = "", overtake: bool = True
) -> list[Command]:
    """Orders a snapshot that captures what is ahead of barriers; nothing while a channel forbids it.

    A reached channel has no data ahead of its barrier: what lies in its queue is behind it.
    """
    if not alignment.may_capture:
        return []
    ahead = alignment.channels - alignment.reached
    missing = alignment.channels - alignment.arrived
    return [TakeSnapshot(alignment.barrier, ahead, reason, overtake), StartCapture(missing)]


class CheckpointMode(Protocol):
    """What one mode orders at each event of a checkpoint.

    A mode keeps no state: what it may know is in the alignment, which already includes the event.
    It must order TakeSnapshot exactly once for each checkpoint that sees all its barriers; the
    frame adds UnblockChannels to it, and FinishSnapshot when nothing is left to wait for.
    """

    name: ClassVar[str]
    """The name under which jobs ask for it."""

    exactly_once: ClassVar[bool]
    """Whether a restored job sees each record's effect on state once (else at least once)."""

    def on_arrived(self, alignment: Alignment, channel: int) -> list[Command]:
        """The channel's barrier was enqueued; data may lie ahead of it."""

    def on_reached(self, alignment: Alignment, channel: int) -> list[Command]:
        """Everything ahead of the channel's barrier has been consumed."""

    def on_timer(self, alignment: Alignment) -> list[Command]:
        """A time that the mode asked for with ScheduleTimer has come."""


@runtime_checkable
class HoldsSources(Protocol):
    """What a mode has besides if sources are to wait behind their barrier until a checkpoint is over."""

    def holds_sources(self, checkpoint_id: int) -> bool:
        """Whether they wait for this one to complete, or to fail. The coordinator asks."""


@runtime_checkable
class MayOverlap(Protocol):
    """What a mode has besides if several of its checkpoints may be under way at once.

    Its barriers must stay in their place: then those of a later checkpoint lie behind those of an earlier
    one in every channel, and each snapshot is whole once it is taken.
    """

    may_overlap: ClassVar[bool]


def may_overlap(mode: object) -> bool:
    """Whether several checkpoints of this mode may be under way at once."""
    return isinstance(mode, MayOverlap) and mode.may_overlap
