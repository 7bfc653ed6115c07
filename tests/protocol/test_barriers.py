"""The frame of all modes, by exact lists of commands. Names such as H8 refer to Flink's own scenarios."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from minirt.errors import ProtocolError
from minirt.modes.aligned import Aligned
from minirt.modes.at_least_once import AtLeastOnce
from minirt.protocol.barriers import (
    LIFECYCLE,
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

    def on_arrived(self, alignment: Alignment, channel: int) -> list[Command]:
        return list(self.arrived)

    def on_reached(self, alignment: Alignment, channel: int) -> list[Command]:
        return list(self.reached)

    def on_timer(self, alignment: Alignment) -> list[Command]:
        return list(self.timer)


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
