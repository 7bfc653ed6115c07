<<<<<<< HEAD
"""The barrier frame with the modes that wait for barriers: the exact commands at each event."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar
=======
"""The frame of all modes, by exact lists of commands. Names such as H8 refer to Flink's own scenarios."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
>>>>>>> sim

import pytest

from minirt.errors import ProtocolError
from minirt.modes.aligned import Aligned
from minirt.modes.at_least_once import AtLeastOnce
from minirt.protocol.barriers import (
<<<<<<< HEAD
=======
    LIFECYCLE,
>>>>>>> sim
    TRIGGER_CHANNEL,
    AbortSnapshot,
    Alignment,
    Barrier,
    BarrierHandler,
    BlockChannel,
    CheckpointMode,
    Command,
    FinishSnapshot,
    ScheduleTimer,
    TakeSnapshot,
    UnblockChannels,
)

<<<<<<< HEAD
CREATED_AT = 100.0


def barrier(checkpoint_id: int, mode: str = "aligned") -> Barrier:
    return Barrier(checkpoint_id, mode, CREATED_AT)


def handler(channels: int, mode: CheckpointMode | None = None) -> BarrierHandler:
    known: list[CheckpointMode] = [Aligned(), AtLeastOnce()] if mode is None else [mode]
    return BarrierHandler(range(channels), {mode.name: mode for mode in known})


def arrive_and_reach(
    barriers: BarrierHandler, channel: int, barrier: Barrier, now: float = CREATED_AT
) -> list[Command]:
    """The barrier of a channel with nothing queued ahead of it."""
    arrived = barriers.on_arrived(channel, barrier, now)
    return arrived + barriers.on_reached(channel, barrier, now)


def complete(
    checkpoint_id: int, start_delay_s: float = 0.0, alignment_s: float = 0.0, mode: str = "aligned"
) -> list[Command]:
    return [
        TakeSnapshot(barrier(checkpoint_id, mode)),
        FinishSnapshot(checkpoint_id, start_delay_s, alignment_s),
        UnblockChannels(),
    ]


ABORTED_1: list[Command] = [AbortSnapshot(1), UnblockChannels()]


# One channel, several channels.


@pytest.mark.parametrize("mode", ["aligned", "at_least_once"])
def test_single_channel_completes_each_barrier_when_it_is_reached(mode: str) -> None:
    barriers = handler(1)
    for checkpoint_id in (1, 2, 3, 7):
        sent = barrier(checkpoint_id, mode)
        assert barriers.on_arrived(0, sent, CREATED_AT) == []
        assert barriers.on_reached(0, sent, CREATED_AT) == complete(checkpoint_id, mode=mode)
        assert barriers.current is None


def test_trigger_at_a_source_completes_at_once() -> None:
    barriers = BarrierHandler([TRIGGER_CHANNEL], {"aligned": Aligned()})
    assert arrive_and_reach(barriers, TRIGGER_CHANNEL, barrier(1)) == complete(1)


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0)])
def test_aligned_blocks_each_channel_at_its_barrier_until_the_last(
    order: tuple[int, int, int],
) -> None:
    first, second, last = order
    barriers = handler(3)
    for checkpoint_id in (1, 2):
        sent = barrier(checkpoint_id)
        assert arrive_and_reach(barriers, first, sent) == [BlockChannel(first)]
        assert arrive_and_reach(barriers, second, sent) == [BlockChannel(second)]
        assert arrive_and_reach(barriers, last, sent) == complete(checkpoint_id)


def test_aligned_orders_nothing_while_data_lies_ahead_of_the_barriers() -> None:
    barriers = handler(3)
    assert barriers.on_arrived(0, barrier(1), CREATED_AT) == []
    assert barriers.on_arrived(2, barrier(1), CREATED_AT) == []
    assert barriers.on_reached(2, barrier(1), CREATED_AT) == [BlockChannel(2)]
    assert barriers.on_arrived(1, barrier(1), CREATED_AT) == []
    assert barriers.on_reached(0, barrier(1), CREATED_AT) == [BlockChannel(0)]
    assert barriers.on_reached(1, barrier(1), CREATED_AT) == complete(1)


def test_at_least_once_never_blocks_and_takes_the_snapshot_at_the_last_barrier() -> None:
    barriers, sent = handler(3), barrier(1, "at_least_once")
    assert arrive_and_reach(barriers, 2, sent) == []
    assert arrive_and_reach(barriers, 0, sent) == []
    assert arrive_and_reach(barriers, 1, sent) == complete(1, mode="at_least_once")


def test_each_checkpoint_is_taken_in_the_mode_that_its_barrier_names() -> None:
    barriers = handler(2)
    assert arrive_and_reach(barriers, 0, barrier(1)) == [BlockChannel(0)]
    assert arrive_and_reach(barriers, 1, barrier(1)) == complete(1)
    assert arrive_and_reach(barriers, 0, barrier(2, "at_least_once")) == []
    completed = complete(2, mode="at_least_once")
    assert arrive_and_reach(barriers, 1, barrier(2, "at_least_once")) == completed


def test_snapshot_carries_that_a_barrier_overtook_whichever_brought_it() -> None:
    barriers = handler(2)
    arrive_and_reach(barriers, 0, barrier(1))
    jumped = replace(barrier(1), overtook=True)
    assert arrive_and_reach(barriers, 1, jumped)[0] == TakeSnapshot(jumped)


def test_many_channels_snapshot_each_of_many_checkpoints_once_in_order() -> None:
    channels, checkpoints = 123, 123
    barriers = handler(channels)
    commands: list[Command] = []
    for checkpoint_id in range(1, checkpoints + 1):
        sent = barrier(checkpoint_id, "aligned" if checkpoint_id % 2 else "at_least_once")
        for place in range(channels):
            commands += arrive_and_reach(barriers, (place * 7 + checkpoint_id) % channels, sent)
    expected = list(range(1, checkpoints + 1))
    taken = [c.barrier.checkpoint_id for c in commands if isinstance(c, TakeSnapshot)]
    finished = [c.checkpoint_id for c in commands if isinstance(c, FinishSnapshot)]
    assert (taken, finished) == (expected, expected)
    blocked = sum(isinstance(command, BlockChannel) for command in commands)
    assert blocked == (channels - 1) * len(range(1, checkpoints + 1, 2))


# Stale and newer barriers.


def test_barrier_of_a_finished_checkpoint_is_ignored() -> None:
    barriers = handler(1)
    arrive_and_reach(barriers, 0, barrier(2))
    assert arrive_and_reach(barriers, 0, barrier(2)) == []
    assert arrive_and_reach(barriers, 0, barrier(1)) == []
    assert barriers.current is None


def test_barrier_older_than_the_current_is_ignored_and_blocks_nothing() -> None:
    barriers = handler(2)
    arrive_and_reach(barriers, 0, barrier(10))
    assert arrive_and_reach(barriers, 1, barrier(5)) == []
    assert arrive_and_reach(barriers, 1, barrier(10)) == complete(10)


def test_newer_barrier_ends_the_pending_checkpoint_before_its_own_commands() -> None:
    barriers = handler(3)
    assert arrive_and_reach(barriers, 0, barrier(1)) == [BlockChannel(0)]
    assert arrive_and_reach(barriers, 1, barrier(2)) == [*ABORTED_1, BlockChannel(1)]
    assert arrive_and_reach(barriers, 2, barrier(1)) == []
    assert arrive_and_reach(barriers, 0, barrier(2)) == [BlockChannel(0)]
    assert arrive_and_reach(barriers, 2, barrier(2)) == complete(2)


def test_newer_barrier_that_is_only_queued_frees_the_channels_already() -> None:
    barriers = handler(2)
    arrive_and_reach(barriers, 0, barrier(1))
    assert barriers.on_arrived(0, barrier(2), CREATED_AT) == ABORTED_1
    assert barriers.on_arrived(1, barrier(1), CREATED_AT) == []
    assert barriers.on_reached(1, barrier(1), CREATED_AT) == []


def test_alignment_of_a_subsuming_checkpoint_is_measured_from_its_own_first_barrier() -> None:
    barriers = handler(2)
    arrive_and_reach(barriers, 0, barrier(1), 101.0)
    arrive_and_reach(barriers, 0, barrier(2), 105.0)
    commands = arrive_and_reach(barriers, 1, barrier(2), 107.0)
    assert commands == complete(2, start_delay_s=5.0, alignment_s=2.0)


# Aborts.


def test_barriers_of_a_checkpoint_aborted_before_its_first_barrier_are_ignored() -> None:
    barriers = handler(2)
    assert barriers.on_abort(1) == []
    assert arrive_and_reach(barriers, 0, barrier(1)) == []
    assert arrive_and_reach(barriers, 1, barrier(1)) == []
    assert arrive_and_reach(barriers, 0, barrier(2)) == [BlockChannel(0)]


def test_abort_in_the_middle_unblocks_and_later_barriers_are_stale() -> None:
    barriers = handler(3)
    arrive_and_reach(barriers, 0, barrier(1))
    barriers.on_arrived(1, barrier(1), CREATED_AT)
    assert barriers.on_abort(1) == ABORTED_1
    assert barriers.on_reached(1, barrier(1), CREATED_AT) == []
    assert arrive_and_reach(barriers, 2, barrier(1)) == []
    assert barriers.on_abort(1) == []


def test_abort_after_the_end_of_a_checkpoint_changes_nothing() -> None:
    barriers = handler(1)
    arrive_and_reach(barriers, 0, barrier(1))
    assert barriers.on_abort(1) == []
    assert arrive_and_reach(barriers, 0, barrier(2)) == complete(2)


def test_late_abort_of_an_older_checkpoint_leaves_the_current_alone() -> None:
    barriers = handler(2)
    arrive_and_reach(barriers, 0, barrier(2))
    assert barriers.on_abort(1) == []
    assert arrive_and_reach(barriers, 1, barrier(2)) == complete(2)


def test_late_abort_of_an_older_checkpoint_does_not_bring_finished_ones_back() -> None:
    barriers = handler(1)
    arrive_and_reach(barriers, 0, barrier(2))
    barriers.on_abort(1)
    assert arrive_and_reach(barriers, 0, barrier(2)) == []


def test_abort_of_a_newer_checkpoint_ends_the_current_one_and_both_are_stale() -> None:
    barriers = handler(2)
    arrive_and_reach(barriers, 0, barrier(1))
    assert barriers.on_abort(3) == ABORTED_1
    for checkpoint_id in (1, 2, 3):
        assert arrive_and_reach(barriers, 1, barrier(checkpoint_id)) == []
    assert arrive_and_reach(barriers, 1, barrier(4)) == [BlockChannel(1)]


# Channels that end.


def test_channel_that_ended_before_the_checkpoint_owes_no_barrier() -> None:
    barriers = handler(3)
    assert barriers.on_channel_ended(1, CREATED_AT) == []
    assert arrive_and_reach(barriers, 0, barrier(1)) == [BlockChannel(0)]
    assert arrive_and_reach(barriers, 2, barrier(1)) == complete(1)


@pytest.mark.parametrize("mode", ["aligned", "at_least_once"])
def test_end_of_the_last_missing_channel_completes_the_checkpoint(mode: str) -> None:
    barriers = handler(2)
    arrive_and_reach(barriers, 0, barrier(1, mode), 101.0)
    assert barriers.on_channel_ended(1, 104.0) == complete(1, 1.0, 3.0, mode)


def test_channel_that_ends_among_several_missing_leaves_the_checkpoint_pending() -> None:
    barriers = handler(3)
    arrive_and_reach(barriers, 0, barrier(1))
    commands = barriers.on_channel_ended(1, CREATED_AT)
    assert set(commands) <= {BlockChannel(1)}
    assert arrive_and_reach(barriers, 2, barrier(1)) == complete(1)


def test_end_of_a_channel_does_not_hurry_barriers_that_are_queued_elsewhere() -> None:
    barriers = handler(2)
    barriers.on_arrived(0, barrier(1), CREATED_AT)
    barriers.on_channel_ended(1, CREATED_AT)
    assert barriers.on_reached(0, barrier(1), CREATED_AT) == complete(1)


# Durations.


def test_start_delay_runs_to_the_first_barrier_and_alignment_from_there_to_the_last() -> None:
    barriers = handler(2)
    barriers.on_arrived(0, barrier(1), 101.5)
    barriers.on_reached(0, barrier(1), 102.0)
    barriers.on_arrived(1, barrier(1), 103.0)
    assert barriers.on_reached(1, barrier(1), 107.5) == complete(1, 1.5, 6.0)


def test_durations_are_never_negative_when_clocks_disagree() -> None:
    barriers = handler(2)
    arrive_and_reach(barriers, 0, barrier(1), 99.0)
    assert arrive_and_reach(barriers, 1, barrier(1), 98.0) == complete(1, 0.0, 0.0)


# Timers and what a mode must not do.


class Scripted:
    """Orders what it is told to."""

    name: ClassVar[str] = "scripted"
    exactly_once: ClassVar[bool] = True

    def __init__(
        self, arrived: list[Command], reached: list[Command], timer: list[Command]
    ) -> None:
        self.arrived, self.reached, self.timer = arrived, reached, timer
=======
MODES: dict[str, CheckpointMode] = {"aligned": Aligned(), "at_least_once": AtLeastOnce()}


class Handler:
    """A handler of channels 0, 1, ...; the clock stands at 100 unless told."""

    def __init__(self, channels: int, mode: str = "aligned") -> None:
        self.handler = BarrierHandler(range(channels), MODES)
        self.mode = mode

    def barrier(self, id: int) -> Barrier:
        return Barrier(id, self.mode, created_at=100.0)

    def arrive(self, channel: int, id: int, now: float = 100.0) -> list[Command]:
        return self.handler.on_arrived(channel, self.barrier(id), now)

    def reach(self, channel: int, id: int, now: float = 100.0) -> list[Command]:
        return self.handler.on_reached(channel, self.barrier(id), now)

    def both(self, channel: int, id: int, now: float = 100.0) -> list[Command]:
        """Nothing lay ahead of the barrier: it is reached as it arrives."""
        return self.arrive(channel, id, now) + self.reach(channel, id, now)

    def end(self, channel: int, now: float = 100.0) -> list[Command]:
        return self.handler.on_channel_ended(channel, now)

    def abort(self, id: int) -> list[Command]:
        return self.handler.on_abort(id)

    # What is expected.

    def take(self, id: int) -> TakeSnapshot:
        return TakeSnapshot(self.barrier(id))

    def completed(self, id: int, delay: float = 0.0, alignment: float = 0.0) -> list[Command]:
        """What the last barrier brings."""
        return [self.take(id), FinishSnapshot(id, delay, alignment), UnblockChannels()]


def aborted(id: int) -> list[Command]:
    return [AbortSnapshot(id), UnblockChannels()]


both_modes = pytest.mark.parametrize("mode", ["aligned", "at_least_once"])


# One channel


@both_modes
def test_h2_with_a_single_channel_each_barrier_triggers_at_once(mode: str) -> None:
    handler = Handler(1, mode)
    for id in (1, 2, 3, 7):
        assert handler.both(0, id) == handler.completed(id)
        assert handler.handler.current is None


@both_modes
def test_h14_a_trigger_at_a_source_completes_its_snapshot(mode: str) -> None:
    handler = Handler(1, mode)
    assert handler.both(TRIGGER_CHANNEL, 1) == handler.completed(1)


@both_modes
def test_a_barrier_that_has_arrived_takes_no_effect_before_it_is_reached(mode: str) -> None:
    handler = Handler(1, mode)
    assert handler.arrive(0, 1) == []
    assert handler.reach(0, 1) == handler.completed(1)


# Several channels


def test_h3_aligned_blocks_each_channel_until_the_last_barrier() -> None:
    handler = Handler(3)
    assert handler.both(1, 1) == [BlockChannel(1)]
    assert handler.both(0, 1) == [BlockChannel(0)]
    assert handler.both(2, 1) == handler.completed(1)


def test_h3_at_least_once_blocks_nothing() -> None:
    handler = Handler(3, "at_least_once")
    assert handler.both(1, 1) == []
    assert handler.both(0, 1) == []
    assert handler.both(2, 1) == handler.completed(1)


def test_barriers_may_all_arrive_before_the_first_is_reached() -> None:
    handler = Handler(3)
    assert [handler.arrive(channel, 1) for channel in range(3)] == [[], [], []]
    assert handler.reach(2, 1) == [BlockChannel(2)]
    assert handler.reach(0, 1) == [BlockChannel(0)]
    assert handler.reach(1, 1) == handler.completed(1)


def test_the_next_checkpoint_may_arrive_behind_one_that_is_collected() -> None:
    """A blocked channel holds its next barrier back; a channel that is not blocked may bring it."""
    handler = Handler(2)
    assert handler.both(0, 1) == [BlockChannel(0)]
    assert handler.arrive(1, 1) == []
    assert handler.reach(1, 1) == handler.completed(1)
    assert handler.both(1, 2) == [BlockChannel(1)]
    assert handler.both(0, 2) == handler.completed(2)


@both_modes
def test_h9_123_channels_bring_123_checkpoints_each_once_and_in_order(mode: str) -> None:
    handler = Handler(123, mode)
    for id in range(1, 124):
        commands: list[Command] = []
        for step in range(123):
            commands += handler.both((step * 7 + id) % 123, id)
        last = (122 * 7 + id) % 123
        blocked = [BlockChannel((step * 7 + id) % 123) for step in range(122)]
        expected: list[Command] = [*blocked] if mode == "aligned" else []
        assert commands == expected + handler.completed(id)
        assert BlockChannel(last) not in commands


# Stale and newer barriers


@pytest.mark.parametrize(("mode", "block"), [("aligned", [BlockChannel(0)]), ("at_least_once", [])])
def test_h8_a_newer_barrier_subsumes_the_pending_checkpoint(mode: str, block: list[Any]) -> None:
    handler = Handler(2, mode)
    assert handler.both(0, 1) == block
    assert handler.arrive(1, 2) == aborted(1)
    assert handler.reach(1, 2) == ([BlockChannel(1)] if block else [])
    assert handler.both(0, 2) == handler.completed(2)


@both_modes
def test_h8_a_barrier_older_than_the_pending_one_is_ignored(mode: str) -> None:
    handler = Handler(2, mode)
    handler.both(0, 10)
    assert handler.both(1, 5) == []
    assert handler.both(1, 10) == handler.completed(10)


@both_modes
def test_a_barrier_of_a_subsumed_checkpoint_is_ignored(mode: str) -> None:
    handler = Handler(2, mode)
    handler.both(0, 1)
    handler.both(1, 2)
    assert handler.both(1, 1) == []
    assert handler.both(0, 2) == handler.completed(2)


@both_modes
def test_a_barrier_of_a_completed_checkpoint_is_ignored(mode: str) -> None:
    handler = Handler(1, mode)
    handler.both(0, 3)
    assert handler.both(0, 2) == []
    assert handler.both(0, 3) == []


@both_modes
def test_ids_may_have_gaps(mode: str) -> None:
    handler = Handler(2, mode)
    handler.both(0, 4)
    assert handler.both(1, 4) == handler.completed(4)
    handler.both(0, 9)
    assert handler.both(1, 9) == handler.completed(9)


def test_a_second_barrier_of_one_checkpoint_in_a_channel_is_a_bug() -> None:
    handler = Handler(2)
    handler.arrive(0, 1)
    with pytest.raises(ProtocolError, match="second barrier 1 in channel 0"):
        handler.arrive(0, 1)


# Aborts


@both_modes
def test_h7_an_abort_in_the_middle_unblocks_and_late_barriers_are_ignored(mode: str) -> None:
    handler = Handler(3, mode)
    handler.both(0, 1)
    assert handler.abort(1) == aborted(1)
    assert handler.both(1, 1) == []
    assert handler.both(2, 1) == []
    handler.both(0, 2)
    handler.both(1, 2)
    assert handler.both(2, 2) == handler.completed(2)


@both_modes
def test_h7_a_checkpoint_aborted_before_its_first_barrier_never_starts(mode: str) -> None:
    handler = Handler(1, mode)
    assert handler.abort(1) == []
    assert handler.both(0, 1) == []
    assert handler.both(0, 2) == handler.completed(2)


@both_modes
def test_h7_an_abort_may_come_twice_or_too_late(mode: str) -> None:
    handler = Handler(2, mode)
    handler.both(0, 1)
    assert handler.abort(1) == aborted(1)
    assert handler.abort(1) == []
    handler.both(0, 2)
    handler.both(1, 2)
    assert handler.abort(2) == []


@both_modes
def test_h7_an_abort_of_a_newer_checkpoint_ends_the_pending_one(mode: str) -> None:
    handler = Handler(2, mode)
    handler.both(0, 1)
    assert handler.abort(3) == aborted(1)
    assert handler.both(0, 2) == handler.both(1, 3) == []
    handler.both(0, 4)
    assert handler.both(1, 4) == handler.completed(4)


@both_modes
def test_an_abort_of_an_older_checkpoint_leaves_the_pending_one(mode: str) -> None:
    handler = Handler(2, mode)
    handler.both(0, 5)
    assert handler.abort(4) == []
    assert handler.both(1, 5) == handler.completed(5)


def test_a_barrier_that_arrived_before_the_abort_is_reached_without_effect() -> None:
    handler = Handler(2)
    handler.arrive(0, 1)
    assert handler.abort(1) == aborted(1)
    assert handler.reach(0, 1) == []


# Ended channels


@both_modes
def test_h5_a_channel_that_has_ended_owes_no_barrier(mode: str) -> None:
    handler = Handler(3, mode)
    assert handler.end(1) == []
    handler.both(0, 1)
    assert handler.both(2, 1) == handler.completed(1)


@both_modes
def test_h6_the_end_of_the_last_missing_channel_completes_the_checkpoint(mode: str) -> None:
    handler = Handler(2, mode)
    handler.both(0, 1)
    assert handler.end(1) == handler.completed(1)


def test_h6_the_end_of_one_of_several_missing_channels_completes_nothing() -> None:
    handler = Handler(3)
    handler.both(0, 1)
    assert handler.end(1) == [BlockChannel(1)]
    assert handler.both(2, 1) == handler.completed(1)


@both_modes
def test_h18_a_barrier_arrives_then_another_channel_ends_then_it_is_reached(mode: str) -> None:
    handler = Handler(2, mode)
    handler.arrive(0, 1)
    handler.end(1)
    assert handler.reach(0, 1) == handler.completed(1)


@both_modes
def test_a_channel_may_end_behind_its_barrier(mode: str) -> None:
    """Aligned blocks there, so that the end is seen only once the checkpoint is over."""
    handler = Handler(2, mode)
    handler.both(0, 1)
    if mode == "at_least_once":
        assert handler.end(0) == []
    assert handler.both(1, 1) == handler.completed(1)


@both_modes
def test_the_last_channel_left_decides_alone(mode: str) -> None:
    handler = Handler(3, mode)
    handler.end(0)
    handler.end(2)
    assert handler.both(1, 1) == handler.completed(1)
    assert handler.both(1, 2) == handler.completed(2)


# Figures


@both_modes
def test_h19_start_delay_and_alignment_are_measured(mode: str) -> None:
    handler = Handler(2, mode)
    handler.both(0, 1, now=100.25)
    assert handler.both(1, 1, now=101.0) == handler.completed(1, delay=0.25, alignment=0.75)


def test_h7_alignment_is_measured_from_the_barrier_that_subsumed() -> None:
    handler = Handler(2)
    handler.both(0, 1, now=100.0)
    handler.both(1, 2, now=105.0)
    commands = handler.both(0, 2, now=107.0)
    assert commands == handler.completed(2, delay=5.0, alignment=2.0)


def test_clocks_that_disagree_give_no_negative_figures() -> None:
    handler = Handler(2)
    handler.both(0, 1, now=90.0)
    assert handler.both(1, 1, now=80.0) == handler.completed(1)


# What modes may order


@dataclass(frozen=True)
class Scripted:
    """A mode that orders what it is told to."""

    name = "scripted"
    exactly_once = True
    arrived: tuple[Command, ...] = ()
    reached: tuple[Command, ...] = ()
    timer: tuple[Command, ...] = ()
>>>>>>> sim

    def on_arrived(self, alignment: Alignment, channel: int) -> list[Command]:
        return list(self.arrived)

    def on_reached(self, alignment: Alignment, channel: int) -> list[Command]:
        return list(self.reached)

    def on_timer(self, alignment: Alignment) -> list[Command]:
        return list(self.timer)


<<<<<<< HEAD
SENT = barrier(1, "scripted")
TAKE = TakeSnapshot(SENT)


def test_timer_of_the_current_checkpoint_asks_the_mode_and_others_are_dead() -> None:
    barriers = handler(2, Scripted([ScheduleTimer(1, 105.0)], [], [TAKE]))
    assert barriers.on_timer(1, 105.0) == []
    assert barriers.on_arrived(0, SENT, CREATED_AT) == [ScheduleTimer(1, 105.0)]
    assert barriers.on_timer(2, 105.0) == []
    assert barriers.on_timer(1, 105.0) == [TAKE]
    barriers.on_abort(1)
    assert barriers.on_timer(1, 106.0) == []


def test_timer_that_takes_the_snapshot_after_all_arrived_finishes_it() -> None:
    barriers = handler(1, Scripted([], [], [TAKE]))
    barriers.on_arrived(0, SENT, CREATED_AT)
    finish = FinishSnapshot(1, 0.0, 5.0)
    assert barriers.on_timer(1, 105.0) == [TAKE, finish, UnblockChannels()]


def test_mode_that_orders_no_snapshot_is_a_protocol_error() -> None:
    barriers = handler(2, Scripted([], [], []))
    arrive_and_reach(barriers, 0, SENT)
    barriers.on_arrived(1, SENT, CREATED_AT)
    with pytest.raises(ProtocolError, match=r"'scripted'.*checkpoint 1 but ordered no snapshot"):
        barriers.on_reached(1, SENT, CREATED_AT)


def test_mode_that_orders_two_snapshots_is_a_protocol_error() -> None:
    barriers = handler(2, Scripted([TAKE], [], []))
    barriers.on_arrived(0, SENT, CREATED_AT)
    with pytest.raises(ProtocolError, match="second snapshot for checkpoint 1"):
        barriers.on_arrived(1, SENT, CREATED_AT)


def test_mode_that_orders_two_snapshots_at_once_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="second snapshot for checkpoint 1"):
        handler(2, Scripted([TAKE, TAKE], [], [])).on_arrived(0, SENT, CREATED_AT)


def test_second_barrier_of_a_checkpoint_in_a_channel_is_a_protocol_error() -> None:
    barriers = handler(2)
    barriers.on_arrived(1, barrier(1), CREATED_AT)
    with pytest.raises(ProtocolError, match="second barrier 1 in channel 1"):
        barriers.on_arrived(1, barrier(1), CREATED_AT)
=======
SCRIPTED = Barrier(1, "scripted", created_at=100.0)


def test_a_timer_reaches_the_mode_of_the_pending_checkpoint_only() -> None:
    mode = Scripted((ScheduleTimer(1, 101.0),), timer=(TakeSnapshot(SCRIPTED),))
    handler = BarrierHandler(range(2), {"scripted": mode})
    assert handler.on_arrived(0, SCRIPTED, 100.0) == [ScheduleTimer(1, 101.0)]
    assert handler.on_timer(2, 101.0) == []
    assert handler.on_timer(1, 101.0) == [TakeSnapshot(SCRIPTED)]
    # The snapshot was taken early; the rest only has to arrive.
    commands = handler.on_arrived(1, SCRIPTED, 102.0)
    assert commands == [ScheduleTimer(1, 101.0), FinishSnapshot(1, 0.0, 2.0), UnblockChannels()]


def test_h12_a_timer_after_the_end_or_the_abort_is_dead() -> None:
    mode = Scripted((TakeSnapshot(SCRIPTED),), timer=(TakeSnapshot(SCRIPTED),))
    handler = BarrierHandler(range(1), {"scripted": mode})
    handler.on_arrived(0, SCRIPTED, 100.0)
    assert handler.on_timer(1, 101.0) == []
    waiting = BarrierHandler(range(2), {"scripted": Scripted(timer=(TakeSnapshot(SCRIPTED),))})
    waiting.on_arrived(0, SCRIPTED, 100.0)
    waiting.on_abort(1)
    assert waiting.on_timer(1, 101.0) == []


def test_h13_a_barrier_that_overtook_marks_the_checkpoint() -> None:
    handler = BarrierHandler(range(2), {"scripted": Scripted()})
    overtaking = Barrier(1, "scripted", 100.0, overtook=True)
    handler.on_arrived(0, SCRIPTED, 100.0)
    handler.on_arrived(1, overtaking, 100.0)
    assert handler.current is not None
    assert handler.current.barrier == overtaking


def test_a_mode_that_orders_two_snapshots_is_a_bug() -> None:
    take = TakeSnapshot(SCRIPTED)
    handler = BarrierHandler(range(2), {"scripted": Scripted((take,))})
    handler.on_arrived(0, SCRIPTED, 100.0)
    with pytest.raises(ProtocolError, match="a second snapshot for checkpoint 1"):
        handler.on_arrived(1, SCRIPTED, 100.0)
    with pytest.raises(ProtocolError, match="a second snapshot"):
        BarrierHandler(range(2), {"scripted": Scripted((take, take))}).on_arrived(0, SCRIPTED, 1.0)


def test_a_mode_that_orders_no_snapshot_is_a_bug() -> None:
    handler = BarrierHandler(range(1), {"scripted": Scripted()})
    handler.on_arrived(0, SCRIPTED, 100.0)
    with pytest.raises(ProtocolError, match="ordered no snapshot"):
        handler.on_reached(0, SCRIPTED, 100.0)


# The table


def state_of(handler: Handler) -> str:
    return "none" if handler.handler.current is None else "collecting"


def test_the_table_of_a_checkpoints_life_says_what_happens() -> None:
    seen = set()

    def step(handler: Handler, event: str, action: Any) -> None:
        before = state_of(handler)
        action()
        seen.add((before, event, state_of(handler)))

    handler = Handler(3)
    step(handler, "first barrier", lambda: handler.both(0, 1))
    step(handler, "barrier", lambda: handler.both(1, 1))
    step(handler, "timer", lambda: handler.handler.on_timer(1, 100.0))
    step(handler, "last barrier", lambda: handler.both(2, 1))
    step(handler, "stale barrier", lambda: handler.both(2, 1))
    handler.both(0, 2)
    step(handler, "newer barrier", lambda: handler.both(1, 3))
    step(handler, "abort", lambda: handler.abort(3))
    assert seen == set(LIFECYCLE)
>>>>>>> sim
