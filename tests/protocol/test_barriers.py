"""The barrier frame with the modes that wait for barriers: the exact commands at each event."""

from __future__ import annotations

from typing import ClassVar

import pytest

from minirt.errors import ProtocolError
from minirt.modes.aligned import Aligned
from minirt.modes.at_least_once import AtLeastOnce
from minirt.protocol.barrier_handler import BarrierHandler
from minirt.protocol.barriers import (
    TRIGGER_CHANNEL,
    AbortSnapshot,
    Alignment,
    Barrier,
    BlockChannel,
    CheckpointMode,
    Command,
    FinishSnapshot,
    OvertakeOutputs,
    ScheduleTimer,
    Switch,
    TakeSnapshot,
    UnblockChannels,
    WatchOutputs,
)

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
        UnblockChannels(),
        FinishSnapshot(checkpoint_id, start_delay_s, alignment_s),
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


def test_start_delay_runs_to_the_first_barrier_reached_and_alignment_from_there_to_the_last() -> (
    None
):
    barriers = handler(2)
    barriers.on_arrived(0, barrier(1), 101.5)
    barriers.on_reached(0, barrier(1), 102.0)
    barriers.on_arrived(1, barrier(1), 103.0)
    assert barriers.on_reached(1, barrier(1), 107.5) == complete(1, 2.0, 5.5)


@pytest.mark.parametrize("mode", ["aligned", "at_least_once"])
def test_bytes_count_as_processed_from_the_first_barrier_reached_to_the_last(mode: str) -> None:
    barriers, sent = handler(2), barrier(1, mode)
    barriers.on_arrived(0, sent, CREATED_AT, 1000)
    barriers.on_arrived(1, sent, CREATED_AT, 1010)
    barriers.on_reached(0, sent, CREATED_AT, 1200)
    *_, finish = barriers.on_reached(1, sent, CREATED_AT, 1500)
    assert finish == FinishSnapshot(1, 0.0, 0.0, processed_bytes=300)


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

    def on_arrived(self, alignment: Alignment, channel: int) -> list[Command]:
        return list(self.arrived)

    def on_reached(self, alignment: Alignment, channel: int) -> list[Command]:
        return list(self.reached)

    def on_timer(self, alignment: Alignment) -> list[Command]:
        return list(self.timer)


SENT = barrier(1, "scripted")
TAKE = TakeSnapshot(SENT)


def test_timer_of_the_current_checkpoint_asks_the_mode_and_others_are_dead() -> None:
    barriers = handler(2, Scripted([ScheduleTimer(1, 105.0)], [], [TAKE]))
    assert barriers.on_timer(1, 105.0) == []
    assert barriers.on_arrived(0, SENT, CREATED_AT) == [ScheduleTimer(1, 105.0)]
    assert barriers.on_timer(2, 105.0) == []
    assert barriers.on_timer(1, 105.0) == [TAKE, UnblockChannels()]
    barriers.on_abort(1)
    assert barriers.on_timer(1, 106.0) == []


def test_timer_that_takes_the_snapshot_after_all_arrived_finishes_it() -> None:
    barriers = handler(1, Scripted([], [], [TAKE]))
    barriers.on_arrived(0, SENT, CREATED_AT)
    finish = FinishSnapshot(1, 5.0, 0.0)
    assert barriers.on_timer(1, 105.0) == [TAKE, UnblockChannels(), finish]


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


WATCH = WatchOutputs(1)
OVERTAKE = OvertakeOutputs(1, "in a hurry")


def test_snapshot_is_not_finished_while_its_own_barriers_are_watched() -> None:
    barriers = handler(1, Scripted([], [TAKE, WATCH], []))
    barriers.on_arrived(0, SENT, 101.0)
    assert barriers.on_reached(0, SENT, 102.0, 10) == [TAKE, WATCH, UnblockChannels()]
    assert barriers.on_timer(1, 103.0, 99) == []
    assert barriers.on_outputs_passed(2) == []
    # Neither waiting nor what is processed meanwhile counts as alignment.
    assert barriers.on_outputs_passed(1) == [FinishSnapshot(1, 2.0, 0.0)]
    assert barriers.on_outputs_passed(1) == []


def test_snapshot_whose_own_barriers_pass_before_the_last_one_arrives_waits_for_that_only() -> None:
    barriers = handler(2, Scripted([], [], [TAKE, WATCH]))
    barriers.on_arrived(0, SENT, CREATED_AT)
    barriers.on_timer(1, CREATED_AT)
    assert barriers.on_outputs_passed(1) == []
    assert barriers.on_arrived(1, SENT, 103.0) == [FinishSnapshot(1, 0.0, 3.0)]


def test_barriers_that_overtake_at_outputs_finish_the_snapshot_and_say_when_and_why() -> None:
    barriers = handler(1, Scripted([], [TAKE, WATCH], [OVERTAKE]))
    arrive_and_reach(barriers, 0, SENT)
    finish = FinishSnapshot(1, 0.0, 0.0, switches=(Switch("outputs", 2.5, "in a hurry"),))
    assert barriers.on_timer(1, 102.5) == [OVERTAKE, finish]
    assert barriers.on_outputs_passed(1) == []


def test_abort_ends_the_watching_of_outputs() -> None:
    barriers = handler(1, Scripted([], [TAKE, WATCH], []))
    arrive_and_reach(barriers, 0, SENT)
    assert barriers.on_abort(1) == ABORTED_1
    assert barriers.on_outputs_passed(1) == []


def test_mode_that_overtakes_at_outputs_unasked_is_a_protocol_error() -> None:
    barriers = handler(2, Scripted([TAKE], [], [OVERTAKE]))
    barriers.on_arrived(0, SENT, CREATED_AT)
    with pytest.raises(ProtocolError, match="for checkpoint 1 at outputs that it does not watch"):
        barriers.on_timer(1, CREATED_AT)


@pytest.mark.parametrize("capture", [{0}, {1}, set()])
def test_mode_that_captures_what_a_channel_forbids_is_a_protocol_error(capture: set[int]) -> None:
    mode = Scripted([TakeSnapshot(SENT, frozenset(capture), "")], [], [])
    barriers = BarrierHandler([0, 1], {mode.name: mode}, uncapturable=[1])
    with pytest.raises(ProtocolError, match="for checkpoint 1 what a channel forbids to capture"):
        barriers.on_arrived(0, SENT, CREATED_AT)
