"""The mode aligned with timeout in the barrier frame: what it orders at each event, by a manual clock."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from minirt.errors import ConfigurationError
from minirt.modes.aligned_with_timeout import AlignedWithTimeout
from minirt.protocol.barrier_handler import BarrierHandler
from minirt.protocol.barriers import (
    TRIGGER_CHANNEL,
    AbortSnapshot,
    Barrier,
    BlockChannel,
    Command,
    FinishSnapshot,
    OvertakeOutputs,
    ScheduleTimer,
    StartCapture,
    StopCapture,
    Switch,
    TakeSnapshot,
    UnblockChannels,
    WatchOutputs,
)

CREATED_AT = 100.0
DEADLINE = 110.0


def barrier(checkpoint_id: int, created_at: float = CREATED_AT) -> Barrier:
    return Barrier(checkpoint_id, AlignedWithTimeout.name, created_at)


def handler(
    channels: int,
    timeout: float | None = 10,
    switch_below: int | None = None,
    uncapturable: Iterable[int] = (),
) -> BarrierHandler:
    mode = AlignedWithTimeout(timeout=timeout, switch_below=switch_below)
    return BarrierHandler(range(channels), {mode.name: mode}, uncapturable)


def arrive_and_reach(
    barriers: BarrierHandler, channel: int, barrier: Barrier, now: float
) -> list[Command]:
    """The barrier of a channel with nothing queued ahead of it."""
    arrived = barriers.on_arrived(channel, barrier, now)
    return arrived + barriers.on_reached(channel, barrier, now)


def aged(age_s: float) -> str:
    return f"age {age_s:.3f} s passed the timeout 10 s"


def overtaking(ahead: set[int], missing: set[int], reason: str, id: int = 1) -> list[Command]:
    """What takes an unaligned snapshot."""
    return [
        TakeSnapshot(barrier(id), frozenset(ahead), reason),
        StartCapture(frozenset(missing)),
        UnblockChannels(),
    ]


def finish(
    start_delay_s: float, alignment_s: float, *switches: Switch, checkpoint_id: int = 1
) -> FinishSnapshot:
    return FinishSnapshot(checkpoint_id, start_delay_s, alignment_s, switches=switches)


def switched(age_s: float) -> Switch:
    return Switch("inputs and outputs", age_s, aged(age_s))


TIMER = ScheduleTimer(1, DEADLINE)
ALIGNED: list[Command] = [TakeSnapshot(barrier(1)), WatchOutputs(1), UnblockChannels()]


# In time: as aligned.


def test_before_the_timeout_channels_wait_at_their_barriers_for_the_last() -> None:
    barriers = handler(3)
    assert barriers.on_arrived(0, barrier(1), 101.0) == [TIMER]
    assert barriers.on_reached(0, barrier(1), 102.0) == [BlockChannel(0)]
    assert arrive_and_reach(barriers, 1, barrier(1), 103.0) == [BlockChannel(1)]
    assert arrive_and_reach(barriers, 2, barrier(1), 104.0) == ALIGNED
    assert barriers.on_outputs_passed(1) == [finish(2.0, 2.0)]


def test_several_barriers_in_a_row_in_one_channel_take_one_aligned_snapshot_each() -> None:
    barriers = handler(1)
    for id in (1, 2, 3):
        assert barriers.on_arrived(0, barrier(id), 101.0) == [ScheduleTimer(id, DEADLINE)]
        taken = [TakeSnapshot(barrier(id)), WatchOutputs(id), UnblockChannels()]
        assert barriers.on_reached(0, barrier(id), 101.0) == taken
        assert barriers.on_outputs_passed(id) == [finish(1.0, 0.0, checkpoint_id=id)]


# Late: the switch at the inputs.


def test_timeout_while_barriers_are_only_queued_lets_all_of_them_overtake() -> None:
    barriers = handler(3)
    barriers.on_arrived(0, barrier(1), 101.0)
    assert barriers.on_arrived(1, barrier(1), 102.0) == []
    assert barriers.on_timer(1, 110.0) == overtaking({0, 1, 2}, {2}, aged(10.0))
    # They are reached later, when what they have overtaken was consumed: one snapshot only.
    assert barriers.on_reached(0, barrier(1), 111.0) == []
    assert barriers.on_reached(1, barrier(1), 112.0) == []
    assert barriers.on_arrived(2, barrier(1), 113.0) == [
        StopCapture(2),
        finish(10.0, 3.0, switched(10.0)),
    ]


def test_timeout_after_a_barrier_was_reached_captures_the_other_channels_and_frees_it() -> None:
    barriers = handler(3)
    arrive_and_reach(barriers, 0, barrier(1), 104.0)
    barriers.on_arrived(1, barrier(1), 105.0)
    assert barriers.on_timer(1, 110.5) == overtaking({1, 2}, {2}, aged(10.5))
    done = finish(4.0, 7.0, switched(10.5))
    assert barriers.on_arrived(2, barrier(1), 111.0) == [StopCapture(2), done]


def test_timeout_when_all_have_arrived_finishes_at_once() -> None:
    barriers = handler(2)
    arrive_and_reach(barriers, 0, barrier(1), 104.0)
    barriers.on_arrived(1, barrier(1), 105.0)
    assert barriers.on_timer(1, 110.0) == [
        *overtaking({1}, set(), aged(10.0)),
        finish(4.0, 6.0, switched(10.0)),
    ]


def test_first_barrier_that_comes_after_the_timeout_overtakes_and_asks_for_no_timer() -> None:
    barriers = handler(2)
    assert barriers.on_arrived(0, barrier(1), 117.0) == overtaking({0, 1}, {1}, aged(17.0))
    assert barriers.on_reached(0, barrier(1), 118.0) == []
    done = finish(17.0, 2.0, switched(17.0))
    assert barriers.on_arrived(1, barrier(1), 119.0) == [StopCapture(1), done]


def test_barrier_that_arrives_after_the_timeout_switches_although_the_timer_is_late() -> None:
    barriers = handler(3)
    arrive_and_reach(barriers, 0, barrier(1), 104.0)
    assert barriers.on_arrived(1, barrier(1), 112.0) == overtaking({1, 2}, {2}, aged(12.0))
    assert barriers.on_timer(1, 112.5) == []
    done = finish(4.0, 9.0, switched(12.0))
    assert barriers.on_arrived(2, barrier(1), 113.0) == [StopCapture(2), done]


def test_barrier_that_is_reached_after_the_timeout_switches_although_the_timer_is_late() -> None:
    barriers = handler(2)
    barriers.on_arrived(0, barrier(1), 104.0)
    assert barriers.on_reached(0, barrier(1), 111.0) == overtaking({1}, {1}, aged(11.0))
    assert barriers.on_timer(1, 111.0) == []


def test_timer_at_its_own_time_is_late_whatever_the_rounding() -> None:
    for place in range(100):
        created_at = 1_700_000_000 + place * 0.1
        barriers = handler(2, timeout=0.1)
        (timer,) = barriers.on_arrived(0, barrier(1, created_at), created_at)
        assert isinstance(timer, ScheduleTimer)
        assert isinstance(barriers.on_timer(1, timer.at)[0], TakeSnapshot)


def test_trigger_of_a_source_after_the_timeout_overtakes_its_output_at_once() -> None:
    barriers = handler(TRIGGER_CHANNEL + 1)
    commands = barriers.on_arrived(TRIGGER_CHANNEL, barrier(1), 111.0)
    assert commands == [
        *overtaking({TRIGGER_CHANNEL}, set(), aged(11.0)),
        finish(11.0, 0.0, switched(11.0)),
    ]
    assert barriers.on_reached(TRIGGER_CHANNEL, barrier(1), 111.0) == []


# Late: the switch at the outputs.


def test_own_barriers_that_are_still_queued_at_the_timeout_overtake_there() -> None:
    barriers = handler(1)
    assert arrive_and_reach(barriers, 0, barrier(1), 101.0) == [TIMER, *ALIGNED]
    assert barriers.on_timer(1, 110.0) == [
        OvertakeOutputs(1, aged(10.0)),
        finish(1.0, 0.0, Switch("outputs", 10.0, aged(10.0))),
    ]
    assert barriers.on_timer(1, 111.0) == []
    assert barriers.on_outputs_passed(1) == []


def test_own_barriers_that_pass_in_time_leave_the_snapshot_aligned() -> None:
    barriers = handler(1)
    arrive_and_reach(barriers, 0, barrier(1), 101.0)
    assert barriers.on_outputs_passed(1) == [finish(1.0, 0.0)]
    assert barriers.on_timer(1, 110.0) == []


# A timer must be dead.


def test_timer_of_a_checkpoint_that_is_over_does_nothing() -> None:
    barriers = handler(1)
    arrive_and_reach(barriers, 0, barrier(1), 101.0)
    barriers.on_outputs_passed(1)
    assert barriers.on_timer(1, 110.0) == []
    assert arrive_and_reach(barriers, 0, barrier(2), 108.0)[1:] == [
        TakeSnapshot(barrier(2)),
        WatchOutputs(2),
        UnblockChannels(),
    ]
    assert barriers.on_timer(1, 110.0) == []


@pytest.mark.parametrize("sending", [False, True])
def test_timer_after_an_abort_does_nothing(sending: bool) -> None:
    barriers = handler(1 if sending else 2)
    arrive_and_reach(barriers, 0, barrier(1), 101.0)
    assert barriers.on_abort(1) == [AbortSnapshot(1), UnblockChannels()]
    assert barriers.on_timer(1, 110.0) == []
    assert barriers.on_outputs_passed(1) == []


@pytest.mark.parametrize("sending", [False, True])
def test_newer_barrier_ends_the_checkpoint_with_its_timer_and_watch(sending: bool) -> None:
    barriers = handler(1 if sending else 2)
    arrive_and_reach(barriers, 0, barrier(1), 101.0)
    newer = barrier(2, created_at=105.0)
    assert barriers.on_arrived(0, newer, 106.0) == [
        AbortSnapshot(1),
        UnblockChannels(),
        ScheduleTimer(2, 115.0),
    ]
    assert barriers.on_outputs_passed(1) == []
    assert barriers.on_timer(1, 110.0) == []


# From one checkpoint to the next, and with other subtasks.


def test_checkpoint_after_one_that_switched_is_aligned_again() -> None:
    barriers = handler(2)
    barriers.on_arrived(0, barrier(1), 111.0)
    barriers.on_arrived(1, barrier(1), 112.0)
    newer = barrier(2, created_at=120.0)
    assert barriers.on_arrived(0, newer, 121.0) == [ScheduleTimer(2, 130.0)]
    assert barriers.on_reached(0, newer, 121.0) == [BlockChannel(0)]
    taken = [TakeSnapshot(newer), WatchOutputs(2), UnblockChannels()]
    assert arrive_and_reach(barriers, 1, newer, 122.0) == taken


def test_whether_a_barrier_overtook_on_its_way_here_changes_nothing() -> None:
    """The sender of channel 1 has switched for its size; this subtask is in time, and stays aligned."""
    upstream, barriers = handler(1, switch_below=100), handler(2)
    upstream.on_arrived(0, barrier(1), 101.0)
    sent = upstream.on_timer(1, 101.0, capture_bytes=50)[0]
    assert isinstance(sent, TakeSnapshot)
    assert sent.capture == {0}
    assert arrive_and_reach(barriers, 0, barrier(1), 102.0) == [TIMER, BlockChannel(0)]
    assert arrive_and_reach(barriers, 1, sent.barrier, 103.0) == ALIGNED


def test_end_of_the_last_missing_channel_before_the_timeout_takes_an_aligned_snapshot() -> None:
    barriers = handler(2)
    arrive_and_reach(barriers, 0, barrier(1), 101.0)
    assert barriers.on_channel_ended(1, 102.0) == ALIGNED


def test_end_of_a_channel_after_the_timeout_switches() -> None:
    barriers = handler(3)
    barriers.on_arrived(0, barrier(1), 101.0)
    assert barriers.on_channel_ended(1, 111.0) == overtaking({0, 2}, {2}, aged(11.0))


def test_channel_that_ends_between_arrival_and_barrier_elsewhere_is_not_waited_for() -> None:
    barriers = handler(3)
    barriers.on_arrived(0, barrier(1), 101.0)
    assert barriers.on_channel_ended(2, 102.0) == []
    assert barriers.on_reached(0, barrier(1), 103.0) == [BlockChannel(0)]
    assert arrive_and_reach(barriers, 1, barrier(1), 104.0) == ALIGNED


# By size.


def look(barriers: BarrierHandler, now: float, size: int) -> list[Command]:
    return barriers.on_timer(1, now, capture_bytes=size)


def sized(size: int) -> str:
    return f"size {size} B <= switch_below 100 B"


def test_size_is_looked_at_from_the_last_arrival_on_until_it_is_small() -> None:
    barriers = handler(2, timeout=None, switch_below=100)
    assert arrive_and_reach(barriers, 0, barrier(1), 101.0) == [BlockChannel(0)]
    assert barriers.on_arrived(1, barrier(1), 102.0) == [ScheduleTimer(1, 102.0)]
    assert look(barriers, 102.0, 101) == [ScheduleTimer(1, 102.125)]
    assert look(barriers, 102.5, 100) == [
        *overtaking({1}, set(), sized(100)),
        finish(1.0, 1.5, Switch("inputs and outputs", 2.5, sized(100))),
    ]


def test_a_young_checkpoint_is_looked_at_often() -> None:
    barriers = handler(1, timeout=None, switch_below=100)
    barriers.on_arrived(0, barrier(1), 100.0)
    assert look(barriers, 100.1, 500) == [ScheduleTimer(1, pytest.approx(100.11))]


def test_size_does_not_count_before_all_have_arrived() -> None:
    barriers = handler(2, switch_below=100)
    assert barriers.on_arrived(0, barrier(1), 101.0) == [TIMER]
    assert look(barriers, 110.0, 0) == overtaking({0, 1}, {1}, aged(10.0))


def test_small_output_is_overtaken_before_the_timeout() -> None:
    barriers = handler(1, switch_below=100)
    assert barriers.on_arrived(0, barrier(1), 101.0) == [TIMER, ScheduleTimer(1, 101.0)]
    assert look(barriers, 101.0, 500) == [ScheduleTimer(1, 101.0625)]
    assert barriers.on_reached(0, barrier(1), 102.0) == ALIGNED
    assert look(barriers, 102.0, 300) == [ScheduleTimer(1, 102.125)]
    switch = Switch("outputs", 3.0, sized(80))
    assert look(barriers, 103.0, 80) == [OvertakeOutputs(1, sized(80)), finish(2.0, 0.0, switch)]


def test_nobody_looks_at_the_size_of_a_checkpoint_that_is_over() -> None:
    barriers = handler(1, switch_below=100)
    arrive_and_reach(barriers, 0, barrier(1), 101.0)
    barriers.on_outputs_passed(1)
    assert look(barriers, 101.0, 500) == []


# Channels that forbid to capture their data.


def test_timeout_waits_for_the_barriers_of_uncapturable_channels() -> None:
    barriers = handler(3, uncapturable=[1])
    barriers.on_arrived(0, barrier(1), 101.0)
    barriers.on_arrived(1, barrier(1), 101.0)
    assert barriers.on_timer(1, 110.0) == []
    assert barriers.on_arrived(2, barrier(1), 111.0) == []
    assert barriers.on_reached(0, barrier(1), 112.0) == [BlockChannel(0)]
    assert barriers.on_reached(1, barrier(1), 113.0) == [
        *overtaking({2}, set(), aged(13.0)),
        finish(12.0, 1.0, switched(13.0)),
    ]


def test_last_barrier_of_an_uncapturable_channel_after_the_timeout_overtakes_at_outputs_only() -> (
    None
):
    barriers = handler(1, uncapturable=[0])
    barriers.on_arrived(0, barrier(1), 101.0)
    barriers.on_timer(1, 110.0)
    assert barriers.on_reached(0, barrier(1), 112.0) == [
        *overtaking(set(), set(), aged(12.0)),
        finish(12.0, 0.0, switched(12.0)),
    ]


def test_size_is_looked_at_again_while_an_uncapturable_channel_is_not_reached() -> None:
    barriers = handler(2, timeout=None, switch_below=100, uncapturable=[0])
    barriers.on_arrived(0, barrier(1), 101.0)
    barriers.on_arrived(1, barrier(1), 101.0)
    assert look(barriers, 101.0, 0) == [ScheduleTimer(1, 101.0625)]
    assert barriers.on_reached(0, barrier(1), 101.0) == [BlockChannel(0)]
    assert look(barriers, 101.0625, 0)[0] == TakeSnapshot(barrier(1), frozenset({1}), sized(0))


# Options.


def test_options_take_units() -> None:
    mode = AlignedWithTimeout(timeout="200ms", switch_below="64KiB")
    assert (mode.timeout_s, mode.switch_below_bytes) == (0.2, 65536)
    assert AlignedWithTimeout().timeout_s == 1.0
    assert AlignedWithTimeout(timeout=None, switch_below=1).timeout_s is None


@pytest.mark.parametrize(
    ("timeout", "switch_below", "message"),
    [
        (None, None, 'never overtakes: that is mode "aligned"'),
        (0, None, 'timeout must be positive; mode "unaligned" overtakes at once'),
        (-1, None, "timeout must be finite and not negative"),
        ("soon", None, "timeout: cannot read 'soon'"),
        (1, 0, "switch_below must be at least 1 byte"),
        (1, -5, "switch_below must not be negative"),
        (1, "many", "switch_below: cannot read 'many'"),
    ],
)
def test_options_that_cannot_work_are_refused(
    timeout: object, switch_below: object, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        AlignedWithTimeout(timeout=timeout, switch_below=switch_below)  # type: ignore[arg-type]
