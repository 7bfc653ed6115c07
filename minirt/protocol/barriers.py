"""The frame that all checkpoint modes share: barriers of one subtask in, commands out.

Theory of operation. A checkpoint cuts the stream of every channel at its barrier. For each channel
a subtask sees two events: *arrived* (the barrier was enqueued, data may lie ahead of it) and
*reached* (everything ahead of it has been consumed); for each checkpoint there may be a third, a
*timer*. The frame owns what is the same for all modes: which checkpoint is current, which barriers
are stale, that a newer checkpoint subsumes an older one, that an abort ends it, and that an ended
channel owes no barrier. A mode only says what to do at the three events; its answers are commands,
which the subtask carries out in order, before it touches the next record.

The rows of `LIFECYCLE` are the whole life of a checkpoint in a subtask. The diagram in
docs/architecture.md is generated from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

from minirt.errors import ProtocolError

TRIGGER_CHANNEL = 0
"""The only channel of a source subtask: its barriers are the coordinator's triggers."""

LIFECYCLE = (
    ("none", "first barrier", "collecting"),
    ("collecting", "barrier", "collecting"),
    ("collecting", "timer", "collecting"),
    ("collecting", "last barrier", "none"),
    ("collecting", "newer barrier", "collecting"),
    ("collecting", "abort", "none"),
    ("none", "stale barrier", "none"),
)
"""State, event, next state of a checkpoint in a subtask."""


@dataclass(frozen=True, slots=True)
class Barrier:
    """The cut of one checkpoint in a channel. The mode belongs to the checkpoint and travels here.

    `created_at` is the trigger time at the coordinator in seconds since 1970. `overtook` tells
    whether the sender has sent it ahead of data that was queued before it.
    """

    checkpoint_id: int
    mode: str
    created_at: float
    overtook: bool = False


@dataclass(slots=True)
class Alignment:
    """One checkpoint in one subtask: who still owes a barrier. Read by modes, written by the frame."""

    barrier: Barrier
    channels: frozenset[int]
    started_at: float
    arrived: set[int] = field(default_factory=set)
    reached: set[int] = field(default_factory=set)
    snapshot_taken: bool = False

    @property
    def all_arrived(self) -> bool:
        return self.arrived >= self.channels

    @property
    def all_reached(self) -> bool:
        return self.reached >= self.channels


# Commands: what the subtask must do, in order.


@dataclass(frozen=True, slots=True)
class BlockChannel:
    """Take no frame from this channel until further notice."""

    channel: int


@dataclass(frozen=True, slots=True)
class UnblockChannels:
    """Read from all channels again."""


@dataclass(frozen=True, slots=True)
class ScheduleTimer:
    """Call `on_timer` for this checkpoint at `at`, in seconds since 1970."""

    checkpoint_id: int
    at: float


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    """Forward `barrier` to all outputs and snapshot the operators, as one step.

    If the barrier overtakes, what it overtakes in output and input queues is captured in that step.
    """

    barrier: Barrier


@dataclass(frozen=True, slots=True)
class StartCapture:
    """Let the data that arrives in these channels from now on join the snapshot as well."""

    channels: frozenset[int]


@dataclass(frozen=True, slots=True)
class StopCapture:
    """This channel's barrier is here: what arrives behind it does not belong to the snapshot."""

    channel: int


@dataclass(frozen=True, slots=True)
class FinishSnapshot:
    """All barriers are here: write the snapshot and acknowledge it."""

    checkpoint_id: int
    start_delay_s: float
    alignment_s: float


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
    | FinishSnapshot
    | AbortSnapshot
)


class CheckpointMode(Protocol):
    """What one mode orders at each event of a checkpoint.

    A mode keeps no state: what it may know is in the alignment, which already includes the event.
    It must order TakeSnapshot exactly once for each checkpoint that sees all its barriers; the
    frame adds FinishSnapshot after the last one.
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


class BarrierHandler:
    """The checkpoints of one subtask, one at a time. Times are seconds since 1970."""

    def __init__(self, channels: Iterable[int], modes: Mapping[str, CheckpointMode]) -> None:
        self._open_channels = set(channels)
        self._modes = modes
        self._current: Alignment | None = None
        self._closed_id = 0
        """The newest checkpoint that is over; barriers up to it are stale."""

    @property
    def current(self) -> Alignment | None:
        return self._current

    def on_arrived(self, channel: int, barrier: Barrier, now: float) -> list[Command]:
        commands, alignment = self._admit(barrier, now)
        if alignment is None:
            return commands
        if channel in alignment.arrived:
            raise ProtocolError(f"second barrier {barrier.checkpoint_id} in channel {channel}")
        alignment.arrived.add(channel)
        if barrier.overtook and not alignment.barrier.overtook:
            alignment.barrier = replace(alignment.barrier, overtook=True)
        commands += self._ask(alignment, self._mode(alignment).on_arrived(alignment, channel))
        return commands + self._settle(alignment, now)

    def on_reached(self, channel: int, barrier: Barrier, now: float) -> list[Command]:
        alignment = self._current
        if alignment is None or alignment.barrier.checkpoint_id != barrier.checkpoint_id:
            return []
        alignment.reached.add(channel)
        commands = self._ask(alignment, self._mode(alignment).on_reached(alignment, channel))
        return commands + self._settle(alignment, now)

    def on_timer(self, checkpoint_id: int, now: float) -> list[Command]:
        alignment = self._current
        if alignment is None or alignment.barrier.checkpoint_id != checkpoint_id:
            return []
        commands = self._ask(alignment, self._mode(alignment).on_timer(alignment))
        return commands + self._settle(alignment, now)

    def on_abort(self, checkpoint_id: int) -> list[Command]:
        """The coordinator gave the checkpoint up; its barriers may still be under way."""
        self._closed_id = max(self._closed_id, checkpoint_id)
        alignment = self._current
        if alignment is None or alignment.barrier.checkpoint_id > checkpoint_id:
            return []
        return self._abort(alignment)

    def on_channel_ended(self, channel: int, now: float) -> list[Command]:
        """Nothing more comes from this channel, barriers included: it owes none any more.

        A bounded source does not end its channels, as barriers follow the end of its data; a channel
        that goes away for good does.
        """
        self._open_channels.discard(channel)
        alignment = self._current
        if alignment is None or channel not in alignment.channels:
            return []
        alignment.arrived.add(channel)
        alignment.reached.add(channel)
        commands = self._ask(alignment, self._mode(alignment).on_reached(alignment, channel))
        return commands + self._settle(alignment, now)

    def _admit(self, barrier: Barrier, now: float) -> tuple[list[Command], Alignment | None]:
        """The alignment that the barrier belongs to, begun if need be; None if it is stale."""
        alignment = self._current
        if alignment is not None and alignment.barrier.checkpoint_id == barrier.checkpoint_id:
            return [], alignment
        if barrier.checkpoint_id <= self._closed_id:
            return [], None
        commands: list[Command] = []
        if alignment is not None:
            if alignment.barrier.checkpoint_id > barrier.checkpoint_id:
                return [], None
            commands = self._abort(alignment)
        self._current = Alignment(barrier, frozenset(self._open_channels), started_at=now)
        return commands, self._current

    def _abort(self, alignment: Alignment) -> list[Command]:
        self._close(alignment)
        return [AbortSnapshot(alignment.barrier.checkpoint_id), UnblockChannels()]

    def _settle(self, alignment: Alignment, now: float) -> list[Command]:
        if alignment.all_reached and not alignment.snapshot_taken:
            raise ProtocolError(
                f"mode {alignment.barrier.mode!r} saw all barriers of checkpoint "
                f"{alignment.barrier.checkpoint_id} but ordered no snapshot"
            )
        if not (alignment.all_arrived and alignment.snapshot_taken):
            return []
        self._close(alignment)
        created_at = alignment.barrier.created_at
        return [
            FinishSnapshot(
                alignment.barrier.checkpoint_id,
                start_delay_s=max(0.0, alignment.started_at - created_at),
                alignment_s=max(0.0, now - alignment.started_at),
            ),
            UnblockChannels(),
        ]

    def _close(self, alignment: Alignment) -> None:
        # An abort may have closed newer ones already.
        self._closed_id = max(self._closed_id, alignment.barrier.checkpoint_id)
        self._current = None

    def _ask(self, alignment: Alignment, commands: list[Command]) -> list[Command]:
        taken = sum(isinstance(command, TakeSnapshot) for command in commands)
        if taken + alignment.snapshot_taken > 1:
            raise ProtocolError(
                f"mode {alignment.barrier.mode!r} ordered a second snapshot for checkpoint "
                f"{alignment.barrier.checkpoint_id}"
            )
        alignment.snapshot_taken |= bool(taken)
        return commands

    def _mode(self, alignment: Alignment) -> CheckpointMode:
        return self._modes[alignment.barrier.mode]
