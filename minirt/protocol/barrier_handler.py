"""The frame that all checkpoint modes share: barriers of one subtask in, commands out.

Theory of operation. A checkpoint cuts the stream of every channel at its barrier. For each channel
a subtask sees two events: *arrived* (the barrier was enqueued, data may lie ahead of it) and
*reached* (everything ahead of it has been consumed); for each checkpoint there may be a third, a
*timer*. The frame owns what is the same for all modes: which checkpoint is current, which barriers
are stale, that a newer checkpoint subsumes an older one, that an abort ends it, that an ended
channel owes no barrier, that channels are blocked until the snapshot at most, and that a snapshot is
finished once all barriers are here and those sent on need not be watched any more. A mode only says
what to do at the three events; its answers are commands, which the subtask carries out in order,
before it touches the next record.

The rows of `LIFECYCLE` are the whole life of a checkpoint in a subtask. A test leads
the frame through all of them and looks for others; the diagram in docs/architecture.md shows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from minirt.errors import ProtocolError
from minirt.protocol.barriers import (
    AbortSnapshot,
    Alignment,
    Barrier,
    BlockChannel,
    CheckpointMode,
    Command,
    FinishSnapshot,
    Moment,
    OvertakeOutputs,
    Switch,
    TakeSnapshot,
    UnblockChannels,
    WatchOutputs,
)

LIFECYCLE = (
    ("none", "first barrier", "collecting"),
    ("none", "first barrier, the only one", "none"),
    ("none", "stale barrier", "none"),
    ("collecting", "barrier", "collecting"),
    ("collecting", "stale barrier", "collecting"),
    ("collecting", "timer", "collecting"),
    ("collecting", "timer, all barriers here", "none"),
    ("collecting", "last barrier", "none"),
    ("collecting", "last barrier, own ones watched", "sending"),
    ("collecting", "newer barrier", "collecting"),
    ("collecting", "newer barrier, the only one", "none"),
    ("collecting", "abort", "none"),
    ("sending", "timer", "sending"),
    ("sending", "own barriers sent", "none"),
    ("sending", "own barriers overtake", "none"),
    ("sending", "newer barrier", "collecting"),
    ("sending", "abort", "none"),
)
"""State, event, next state of a checkpoint in a subtask. A channel that ends counts as its barrier."""


class BarrierHandler:
    """The checkpoints of one subtask, one at a time. Times are seconds of a monotonic clock.

    An event may come with `processed_bytes`: how much the subtask has taken in since it started.
    """

    def __init__(
        self,
        channels: Iterable[int],
        modes: Mapping[str, CheckpointMode],
        uncapturable: Iterable[int] = (),
    ) -> None:
        self._open_channels = set(channels)
        self._modes = modes
        self._uncapturable = frozenset(uncapturable)
        self._current: Alignment | None = None
        self._closed_id = 0
        """The newest checkpoint that is over; barriers up to it are stale."""

    @property
    def current(self) -> Alignment | None:
        return self._current

    def on_arrived(
        self, channel: int, barrier: Barrier, now: float, processed_bytes: int = 0
    ) -> list[Command]:
        commands, alignment = self._admit(barrier, Moment(now, processed_bytes))
        if alignment is None:
            return commands
        if channel in alignment.arrived:
            raise ProtocolError(f"second barrier {barrier.checkpoint_id} in channel {channel}")
        alignment.arrived.add(channel)
        commands += self._ask(alignment, self._mode(alignment).on_arrived(alignment, channel))
        return commands + self._settle(alignment)

    def on_reached(
        self, channel: int, barrier: Barrier, now: float, processed_bytes: int = 0
    ) -> list[Command]:
        alignment = self._alignment_of(barrier.checkpoint_id)
        if alignment is None:
            return []
        alignment.moment = Moment(now, processed_bytes)
        alignment.reached.add(channel)
        commands = self._ask(alignment, self._mode(alignment).on_reached(alignment, channel))
        return commands + self._settle(alignment)

    def on_timer(
        self, checkpoint_id: int, now: float, processed_bytes: int = 0, capture_bytes: int = 0
    ) -> list[Command]:
        """`capture_bytes` is what barriers would overtake if they did so now."""
        alignment = self._alignment_of(checkpoint_id)
        if alignment is None:
            return []
        alignment.moment = Moment(now, processed_bytes)
        alignment.capture_bytes = capture_bytes
        commands = self._ask(alignment, self._mode(alignment).on_timer(alignment))
        return commands + self._settle(alignment)

    def on_outputs_passed(self, checkpoint_id: int) -> list[Command]:
        """The barriers that a mode has watched are on their way."""
        alignment = self._alignment_of(checkpoint_id)
        if alignment is None:
            return []
        alignment.outputs_watched = False
        return self._settle(alignment)

    def on_abort(self, checkpoint_id: int) -> list[Command]:
        """The coordinator gave the checkpoint up; its barriers may still be under way."""
        self._closed_id = max(self._closed_id, checkpoint_id)
        alignment = self._current
        if alignment is None or alignment.barrier.checkpoint_id > checkpoint_id:
            return []
        return self._abort(alignment)

    def on_channel_ended(self, channel: int, now: float, processed_bytes: int = 0) -> list[Command]:
        """Nothing more comes from this channel, barriers included: it owes none any more.

        A bounded source does not end its channels, as barriers follow the end of its data; a channel
        that goes away for good does.
        """
        self._open_channels.discard(channel)
        alignment = self._current
        if alignment is None or channel not in alignment.channels:
            return []
        alignment.moment = Moment(now, processed_bytes)
        alignment.arrived.add(channel)
        alignment.reached.add(channel)
        ordered = self._mode(alignment).on_reached(alignment, channel)
        commands = self._ask(alignment, [each for each in ordered if each != BlockChannel(channel)])
        return commands + self._settle(alignment)

    def _alignment_of(self, checkpoint_id: int) -> Alignment | None:
        alignment = self._current
        if alignment is None or alignment.barrier.checkpoint_id != checkpoint_id:
            return None
        return alignment

    def _admit(self, barrier: Barrier, moment: Moment) -> tuple[list[Command], Alignment | None]:
        """The alignment that the barrier belongs to, begun if need be; None if it is stale."""
        alignment = self._current
        if alignment is not None and alignment.barrier.checkpoint_id == barrier.checkpoint_id:
            alignment.moment = moment
            return [], alignment
        if barrier.checkpoint_id <= self._closed_id:
            return [], None
        commands: list[Command] = []
        if alignment is not None:
            if alignment.barrier.checkpoint_id > barrier.checkpoint_id:
                return [], None
            commands = self._abort(alignment)
        channels = frozenset(self._open_channels)
        self._current = Alignment(barrier, channels, self._uncapturable & channels, moment)
        return commands, self._current

    def _abort(self, alignment: Alignment) -> list[Command]:
        self._close(alignment)
        return [AbortSnapshot(alignment.barrier.checkpoint_id), UnblockChannels()]

    def _settle(self, alignment: Alignment) -> list[Command]:
        """What follows from the event whatever the mode."""
        if alignment.all_reached and not alignment.snapshot_taken:
            raise self._error(alignment, "saw all barriers of {} but ordered no snapshot")
        if alignment.began is None and (alignment.reached or alignment.snapshot_taken):
            alignment.began = alignment.moment
        if not (alignment.snapshot_taken and alignment.all_arrived):
            return []
        if alignment.ended is None:
            alignment.ended = alignment.moment
        if alignment.outputs_watched:
            return []
        self._close(alignment)
        return [_finish(alignment)]

    def _close(self, alignment: Alignment) -> None:
        # An abort may have closed newer ones already.
        self._closed_id = max(self._closed_id, alignment.barrier.checkpoint_id)
        self._current = None

    def _ask(self, alignment: Alignment, commands: list[Command]) -> list[Command]:
        """Note what the mode ordered, and open the channels once it ordered the snapshot."""
        taken_before = alignment.snapshot_taken
        for command in commands:
            match command:
                case TakeSnapshot(_, capture, reason, overtake):
                    if alignment.snapshot_taken:
                        raise self._error(alignment, "ordered a second snapshot for {}")
                    alignment.snapshot_taken = True
                    if capture is not None:
                        self._check_capture(alignment, capture)
                    if capture is not None and overtake:
                        switch = Switch("inputs and outputs", alignment.age_s, reason)
                        alignment.switches.append(switch)
                case WatchOutputs():
                    alignment.outputs_watched = True
                case OvertakeOutputs(_, reason):
                    if not alignment.outputs_watched:
                        raise self._error(
                            alignment, "overtakes for {} at outputs that it does not watch"
                        )
                    alignment.outputs_watched = False
                    alignment.switches.append(Switch("outputs", alignment.age_s, reason))
        opened = alignment.snapshot_taken and not taken_before
        return [*commands, UnblockChannels()] if opened else commands

    def _check_capture(self, alignment: Alignment, capture: frozenset[int]) -> None:
        if not alignment.may_capture or capture & alignment.uncapturable:
            raise self._error(alignment, "captures for {} what a channel forbids to capture")

    def _error(self, alignment: Alignment, what: str) -> ProtocolError:
        checkpoint = f"checkpoint {alignment.barrier.checkpoint_id}"
        return ProtocolError(f"mode {alignment.barrier.mode!r} {what.format(checkpoint)}")

    def _mode(self, alignment: Alignment) -> CheckpointMode:
        return self._modes[alignment.barrier.mode]


def _finish(alignment: Alignment) -> FinishSnapshot:
    began, ended = alignment.began, alignment.ended
    assert began is not None
    assert ended is not None
    return FinishSnapshot(
        alignment.barrier.checkpoint_id,
        start_delay_s=max(0.0, began.at - alignment.barrier.created_at),
        alignment_s=max(0.0, ended.at - began.at),
        processed_bytes=ended.processed_bytes - began.processed_bytes,
        switches=tuple(alignment.switches),
    )
