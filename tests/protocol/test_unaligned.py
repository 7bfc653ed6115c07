"""The unaligned mode in the barrier frame: what it orders at each event."""

from __future__ import annotations

from dataclasses import replace

from minirt.modes.unaligned import Unaligned
from minirt.protocol.barriers import (
    TRIGGER_CHANNEL,
    AbortSnapshot,
    Barrier,
    BarrierHandler,
    FinishSnapshot,
    StartCapture,
    StopCapture,
    TakeSnapshot,
    UnblockChannels,
)


def barrier(checkpoint_id: int) -> Barrier:
    return Barrier(checkpoint_id, Unaligned.name, created_at=100.0)


def overtaking(checkpoint_id: int) -> TakeSnapshot:
    return TakeSnapshot(replace(barrier(checkpoint_id), overtook=True))


def handler(channels: int) -> BarrierHandler:
    return BarrierHandler(range(channels), {Unaligned.name: Unaligned()})


def test_first_arrival_takes_the_snapshot_and_captures_the_other_channels() -> None:
    barriers = handler(3)
    assert barriers.on_arrived(1, barrier(1), 101.0) == [
        overtaking(1),
        StartCapture(frozenset({0, 2})),
    ]
    assert barriers.on_arrived(0, barrier(1), 102.0) == [StopCapture(0)]
    assert barriers.on_arrived(2, barrier(1), 104.0) == [
        StopCapture(2),
        FinishSnapshot(1, start_delay_s=1.0, alignment_s=3.0),
        UnblockChannels(),
    ]


def test_single_channel_is_captured_not_at_all() -> None:
    assert handler(1).on_arrived(0, barrier(1), 101.0) == [
        overtaking(1),
        StartCapture(frozenset()),
        FinishSnapshot(1, start_delay_s=1.0, alignment_s=0.0),
        UnblockChannels(),
    ]


def test_trigger_at_a_source_takes_and_finishes_at_once() -> None:
    barriers = BarrierHandler([TRIGGER_CHANNEL], {Unaligned.name: Unaligned()})
    commands = barriers.on_arrived(TRIGGER_CHANNEL, barrier(1), 100.0)
    assert commands[0] == overtaking(1)
    assert FinishSnapshot(1, start_delay_s=0.0, alignment_s=0.0) in commands
    assert barriers.on_reached(TRIGGER_CHANNEL, barrier(1), 100.0) == []


def test_barrier_that_is_reached_after_it_was_handled_on_arrival_is_ignored() -> None:
    barriers = handler(2)
    barriers.on_arrived(0, barrier(1), 101.0)
    assert barriers.on_reached(0, barrier(1), 101.0) == []
    barriers.on_arrived(1, barrier(1), 101.0)
    assert barriers.on_reached(1, barrier(1), 101.0) == []
    assert barriers.on_arrived(0, barrier(2), 102.0)[0] == overtaking(2)


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
        overtaking(2),
        StartCapture(frozenset({1})),
    ]


def test_channel_that_ends_owes_no_barrier() -> None:
    barriers = handler(2)
    barriers.on_arrived(0, barrier(1), 101.0)
    assert barriers.on_channel_ended(1, 103.0) == [
        FinishSnapshot(1, start_delay_s=1.0, alignment_s=2.0),
        UnblockChannels(),
    ]
