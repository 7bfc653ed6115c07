"""The unaligned mode in the barrier frame: what it orders at each event."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from minirt.modes.unaligned import Unaligned
from minirt.protocol.barrier_handler import BarrierHandler
from minirt.protocol.barriers import (
    TRIGGER_CHANNEL,
    AbortSnapshot,
    Barrier,
    BlockChannel,
    Command,
    FinishSnapshot,
    StartCapture,
    StopCapture,
    Switch,
    TakeSnapshot,
    UnblockChannels,
)

FIRST = "first barrier of an unaligned checkpoint"
LATE = "last barrier of the channels that may not be captured"


def barrier(checkpoint_id: int) -> Barrier:
    return Barrier(checkpoint_id, Unaligned.name, created_at=100.0)


def handler(channels: int, uncapturable: Iterable[int] = ()) -> BarrierHandler:
    return BarrierHandler(range(channels), {Unaligned.name: Unaligned()}, uncapturable)


def overtaking(
    checkpoint_id: int, ahead: set[int], missing: set[int], reason: str = FIRST
) -> list[Command]:
    """What takes the snapshot."""
    return [
        TakeSnapshot(barrier(checkpoint_id), frozenset(ahead), reason),
        StartCapture(frozenset(missing)),
        UnblockChannels(),
    ]


def finish(
    checkpoint_id: int,
    start_delay_s: float,
    alignment_s: float,
    processed_bytes: int = 0,
    reason: str = FIRST,
) -> FinishSnapshot:
    switch = Switch("inputs and outputs", start_delay_s, reason)
    return FinishSnapshot(checkpoint_id, start_delay_s, alignment_s, processed_bytes, (switch,))


def test_first_arrival_takes_the_snapshot_and_captures_the_other_channels() -> None:
    barriers = handler(3)
    assert barriers.on_arrived(1, barrier(1), 101.0) == overtaking(1, {0, 1, 2}, {0, 2})
    assert barriers.on_arrived(0, barrier(1), 102.0) == [StopCapture(0)]
    assert barriers.on_arrived(2, barrier(1), 104.0) == [StopCapture(2), finish(1, 1.0, 3.0)]


def test_bytes_count_as_processed_from_the_first_barrier_that_arrives_to_the_last() -> None:
    barriers = handler(2)
    barriers.on_arrived(0, barrier(1), 100.0, 1000)
    barriers.on_reached(0, barrier(1), 100.0, 1100)
    *_, finished = barriers.on_arrived(1, barrier(1), 100.0, 1700)
    assert finished == finish(1, 0.0, 0.0, processed_bytes=700)


def test_single_channel_finishes_at_its_barrier() -> None:
    commands = handler(1).on_arrived(0, barrier(1), 101.0)
    assert commands == [*overtaking(1, {0}, set()), finish(1, 1.0, 0.0)]


def test_trigger_at_a_source_takes_and_finishes_at_once() -> None:
    barriers = BarrierHandler([TRIGGER_CHANNEL], {Unaligned.name: Unaligned()})
    commands = barriers.on_arrived(TRIGGER_CHANNEL, barrier(1), 100.0)
    assert commands == [*overtaking(1, {TRIGGER_CHANNEL}, set()), finish(1, 0.0, 0.0)]
    assert barriers.on_reached(TRIGGER_CHANNEL, barrier(1), 100.0) == []


def test_several_barriers_in_a_row_in_one_channel_each_take_a_snapshot() -> None:
    barriers = handler(1)
    for checkpoint_id in (1, 2, 5):
        commands = barriers.on_arrived(0, barrier(checkpoint_id), 100.0)
        assert commands == [*overtaking(checkpoint_id, {0}, set()), finish(checkpoint_id, 0.0, 0.0)]


def test_barrier_that_is_reached_after_it_was_handled_on_arrival_is_ignored() -> None:
    barriers = handler(2)
    barriers.on_arrived(0, barrier(1), 101.0)
    assert barriers.on_reached(0, barrier(1), 101.0) == []
    barriers.on_arrived(1, barrier(1), 101.0)
    assert barriers.on_reached(1, barrier(1), 101.0) == []
    assert barriers.on_arrived(0, barrier(2), 102.0) == overtaking(2, {0, 1}, {1})


def test_abort_forgets_the_snapshot_and_later_barriers_are_stale() -> None:
    barriers = handler(2)
    barriers.on_arrived(0, barrier(1), 101.0)
    assert barriers.on_abort(1) == [AbortSnapshot(1), UnblockChannels()]
    assert barriers.on_arrived(1, barrier(1), 102.0) == []


def test_newer_barrier_ends_the_checkpoint_before_it() -> None:
    barriers = handler(2)
    barriers.on_arrived(0, barrier(1), 101.0)
    assert barriers.on_arrived(0, barrier(2), 102.0) == [
        AbortSnapshot(1),
        UnblockChannels(),
        *overtaking(2, {0, 1}, {1}),
    ]


def test_obsolete_barrier_is_ignored_while_a_newer_checkpoint_captures() -> None:
    barriers = handler(3)
    barriers.on_arrived(0, barrier(1), 101.0)
    barriers.on_arrived(0, barrier(2), 102.0)
    assert barriers.on_arrived(1, barrier(1), 103.0) == []
    assert barriers.on_arrived(1, barrier(2), 104.0) == [StopCapture(1)]
    assert barriers.on_arrived(2, barrier(1), 105.0) == []
    assert barriers.on_arrived(2, barrier(2), 106.0) == [StopCapture(2), finish(2, 2.0, 4.0)]


def test_channel_that_ends_owes_no_barrier() -> None:
    barriers = handler(2)
    barriers.on_arrived(0, barrier(1), 101.0)
    assert barriers.on_channel_ended(1, 103.0) == [finish(1, 1.0, 2.0)]


# Channels that forbid to capture their data.


def test_snapshot_waits_until_the_barriers_of_uncapturable_channels_are_reached() -> None:
    barriers = handler(4, uncapturable=[1, 2])
    assert barriers.on_arrived(0, barrier(1), 101.0) == []
    assert barriers.on_arrived(1, barrier(1), 101.0) == []
    assert barriers.on_reached(1, barrier(1), 102.0) == [BlockChannel(1)]
    assert barriers.on_arrived(2, barrier(1), 103.0) == []
    # Two have not been reached: 0, whose barrier is queued, and 3, whose barrier is missing.
    assert barriers.on_reached(2, barrier(1), 104.0) == overtaking(1, {0, 3}, {3}, LATE)
    assert barriers.on_reached(0, barrier(1), 105.0) == []
    switch = Switch("inputs and outputs", 4.0, LATE)
    done = FinishSnapshot(1, start_delay_s=2.0, alignment_s=4.0, switches=(switch,))
    assert barriers.on_arrived(3, barrier(1), 106.0) == [StopCapture(3), done]


def test_capturable_channel_that_is_reached_before_the_snapshot_is_blocked_and_not_captured() -> (
    None
):
    barriers = handler(3, uncapturable=[1])
    barriers.on_arrived(0, barrier(1), 101.0)
    assert barriers.on_reached(0, barrier(1), 101.0) == [BlockChannel(0)]
    barriers.on_arrived(1, barrier(1), 101.0)
    assert barriers.on_reached(1, barrier(1), 101.0) == overtaking(1, {2}, {2}, LATE)


def test_only_uncapturable_channels_align_all_of_them() -> None:
    barriers = handler(2, uncapturable=[0, 1])
    barriers.on_arrived(0, barrier(1), 101.0)
    barriers.on_arrived(1, barrier(1), 101.0)
    assert barriers.on_reached(1, barrier(1), 101.0) == [BlockChannel(1)]
    commands = barriers.on_reached(0, barrier(1), 101.0)
    assert commands == [*overtaking(1, set(), set(), LATE), finish(1, 1.0, 0.0, reason=LATE)]


@pytest.mark.parametrize("ended_first", [True, False])
def test_uncapturable_channel_that_ended_is_not_waited_for(ended_first: bool) -> None:
    barriers = handler(2, uncapturable=[1])
    if ended_first:
        assert barriers.on_channel_ended(1, 101.0) == []
        commands = barriers.on_arrived(0, barrier(1), 102.0)
        assert commands == [*overtaking(1, {0}, set()), finish(1, 2.0, 0.0)]
    else:
        assert barriers.on_arrived(0, barrier(1), 101.0) == []
        commands = barriers.on_channel_ended(1, 102.0)
        assert commands == [*overtaking(1, {0}, set(), LATE), finish(1, 2.0, 0.0, reason=LATE)]


def test_abort_frees_the_channels_that_waited_for_uncapturable_ones() -> None:
    barriers = handler(2, uncapturable=[1])
    barriers.on_arrived(0, barrier(1), 101.0)
    barriers.on_reached(0, barrier(1), 101.0)
    assert barriers.on_abort(1) == [AbortSnapshot(1), UnblockChannels()]
    assert barriers.on_arrived(1, barrier(1), 102.0) == []
