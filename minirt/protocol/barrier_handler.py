"""The frame that all checkpoint modes share: barriers of one subtask in, commands out.

Theory of operation. A checkpoint cuts the stream of every channel at its barrier. For each channel
a subtask sees two events: *arrived* (the barrier was enqueued, data may lie ahead of it) and
*reached* (everything ahead of it has been consumed); for each checkpoint there may be a third, a
*timer*. The frame owns what is the same for all modes: which checkpoints are under way, which barriers
are stale, that a newer checkpoint ends older ones, that an abort ends it, that an ended
channel owes no barrier, that channels are blocked until the snapshot at most, and that a snapshot is
finished once all barriers are here and those sent on need not be watched any more. A mode only says
what to do at the three events; its answers are commands, which the subtask carries out in order,
before it touches the next record.

Several checkpoints may be under way at once, if their modes leave barriers in their place
(`MayOverlap`). Each has an alignment of its own. As their barriers come in the same order in every channel,
the snapshots are taken in that order as well; a channel that one of them has opened stays blocked if
another one waits at a barrier of it. A barrier says which older checkpoints may still be under way: all
others are over. The first barrier of a checkpoint that comes behind one of a newer one is stale: somebody
upstream has left it out, since it was given up.

The rows of `LIFECYCLE` are the whole life of a checkpoint in a subtask. A test leads
the frame through all of them and looks for others; the diagram in docs/architecture.md shows them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

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
from minirt.protocol.ended import EndedCheckpoints

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
    """The checkpoints of one subtask. Times are seconds of a monotonic clock.

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
        self._under_way: dict[int, Alignment] = {}
        """By id, the oldest first."""
        self._ended = EndedCheckpoints()

    @property
    def current(self) -> Alignment | None:
        """The oldest that is under way: the only one, where barriers overtake data."""
        return next(iter(self._under_way.values()), None)

    def is_over(self, checkpoint_id: int) -> bool:
        """Whether nothing that comes of this checkpoint means anything any more."""
        return checkpoint_id in self._ended

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
        alignment = self._under_way.get(barrier.checkpoint_id)
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
        alignment = self._under_way.get(checkpoint_id)
        if alignment is None:
            return []
        alignment.moment = Moment(now, processed_bytes)
        alignment.capture_bytes = capture_bytes
        commands = self._ask(alignment, self._mode(alignment).on_timer(alignment))
        return commands + self._settle(alignment)

    def on_outputs_passed(self, checkpoint_id: int) -> list[Command]:
        """The barriers that a mode has watched are on their way."""
        alignment = self._under_way.get(checkpoint_id)
        if alignment is None:
            return []
        alignment.outputs_watched = False
        return self._settle(alignment)

    def on_abort(self, checkpoint_id: int, spared: Collection[int] = ()) -> list[Command]:
        """The coordinator gave the checkpoint up, and older ones but for the `spared`.

        Their barriers may still be under way.
        """
        self._ended.add(checkpoint_id, spared)
        return self._abort_ended()

    def on_channel_ended(self, channel: int, now: float, processed_bytes: int = 0) -> list[Command]:
        """Nothing more comes from this channel, barriers included: it owes none any more.

        A bounded source does not end its channels, as barriers follow the end of its data; a channel
        that goes away for good does.
        """
        self._open_channels.discard(channel)
        moment = Moment(now, processed_bytes)
        commands: list[Command] = []
        for alignment in [each for each in self._under_way.values() if channel in each.channels]:
            alignment.moment = moment
            alignment.arrived.add(channel)
            alignment.reached.add(channel)
            ordered = self._mode(alignment).on_reached(alignment, channel)
            without = [each for each in ordered if each != BlockChannel(channel)]
            commands += self._ask(alignment, without) + self._settle(alignment)
        return commands

    def _admit(self, barrier: Barrier, moment: Moment) -> tuple[list[Command], Alignment | None]:
        """The alignment that the barrier belongs to, begun if need be; None if it is stale."""
        checkpoint_id = barrier.checkpoint_id
        alignment = self._under_way.get(checkpoint_id)
        if alignment is not None:
            alignment.moment = moment
            return [], alignment
        if checkpoint_id in self._ended or any(id > checkpoint_id for id in self._under_way):
            return [], None
        oldest_id = checkpoint_id if barrier.oldest_id is None else barrier.oldest_id
        self._ended.add(oldest_id - 1)
        commands = self._abort_ended()
        channels = frozenset(self._open_channels)
        alignment = Alignment(barrier, channels, self._uncapturable & channels, moment)
        self._under_way[checkpoint_id] = alignment
        return commands, alignment

    def _abort_ended(self) -> list[Command]:
        commands: list[Command] = []
        for checkpoint_id in [id for id in self._under_way if id in self._ended]:
            del self._under_way[checkpoint_id]
            commands += [AbortSnapshot(checkpoint_id), *self._unblock()]
        return commands

    def _unblock(self) -> list[Command]:
        """Open all channels but those in which another checkpoint waits."""
        waiting = {channel for each in self._under_way.values() for channel in each.blocked}
        return [UnblockChannels(), *map(BlockChannel, sorted(waiting))]

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
        checkpoint_id = alignment.barrier.checkpoint_id
        del self._under_way[checkpoint_id]
        self._ended.add(checkpoint_id, self._under_way)
        return [_finish(alignment)]

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
                        self._check_alone(alignment)
                        self._check_capture(alignment, capture)
                    if capture is not None and overtake:
                        switch = Switch("inputs and outputs", alignment.age_s, reason)
                        alignment.switches.append(switch)
                case WatchOutputs():
                    self._check_alone(alignment)
                    alignment.outputs_watched = True
                case OvertakeOutputs(_, reason):
                    if not alignment.outputs_watched:
                        raise self._error(
                            alignment, "overtakes for {} at outputs that it does not watch"
                        )
                    alignment.outputs_watched = False
                    alignment.switches.append(Switch("outputs", alignment.age_s, reason))
                case BlockChannel(channel):
                    alignment.blocked.add(channel)
        if not alignment.snapshot_taken or taken_before:
            return commands
        alignment.blocked.clear()
        return [*commands, *self._unblock()]

    def _check_alone(self, alignment: Alignment) -> None:
        if len(self._under_way) > 1:
            raise self._error(alignment, "overtakes for {}, with others under way")

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
