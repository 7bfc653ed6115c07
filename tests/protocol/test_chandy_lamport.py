"""Chandy-Lamport in the barrier frame: what it orders at each event."""

from __future__ import annotations

from collections.abc import Iterable

from minirt.modes.chandy_lamport import ChandyLamport
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
    TakeSnapshot,
    UnblockChannels,
)


def barrier(checkpoint_id: int) -> Barrier:
    return Barrier(checkpoint_id, ChandyLamport.name, created_at=100.0)


def handler(channels: int, uncapturable: Iterable[int] = ()) -> BarrierHandler:
    modes = {ChandyLamport.name: ChandyLamport()}
    return BarrierHandler(range(channels), modes, uncapturable)


def snapshot(checkpoint_id: int, ahead: set[int], missing: set[int]) -> list[Command]:
    """What takes the snapshot: channels are captured, and no output is overtaken."""
    return [
        TakeSnapshot(barrier(checkpoint_id), frozenset(ahead), overtake=False),
        StartCapture(frozenset(missing)),
        UnblockChannels(),
    ]


def test_a_barrier_that_has_arrived_waits_for_the_data_ahead_of_it() -> None:
    barriers = handler(2)
    assert barriers.on_arrived(0, barrier(1), 101.0) == []
    assert barriers.on_arrived(1, barrier(1), 102.0) == []


def test_the_first_one_reached_takes_the_snapshot_and_captures_the_other_channels() -> None:
    barriers = handler(3)
    barriers.on_arrived(0, barrier(1), 101.0)
    barriers.on_arrived(1, barrier(1), 102.0)
    assert barriers.on_reached(1, barrier(1), 103.0) == snapshot(1, {0, 2}, {2})
    assert barriers.on_reached(0, barrier(1), 104.0) == []
    assert barriers.on_arrived(2, barrier(1), 105.0) == [
        StopCapture(2),
        FinishSnapshot(1, start_delay_s=3.0, alignment_s=2.0),
    ]


def test_a_source_has_its_only_barrier_at_once() -> None:
    barriers = handler(1)
    assert barriers.on_arrived(TRIGGER_CHANNEL, barrier(1), 100.0) == []
    assert barriers.on_reached(TRIGGER_CHANNEL, barrier(1), 100.0) == [
        *snapshot(1, set(), set()),
        FinishSnapshot(1, start_delay_s=0.0, alignment_s=0.0),
    ]


def test_channels_that_may_not_be_captured_are_reached_first_and_the_others_wait() -> None:
    barriers = handler(2, uncapturable=[1])
    barriers.on_arrived(0, barrier(1), 101.0)
    assert barriers.on_reached(0, barrier(1), 102.0) == [BlockChannel(0)]
    barriers.on_arrived(1, barrier(1), 103.0)
    assert barriers.on_reached(1, barrier(1), 104.0) == [
        *snapshot(1, set(), set()),
        FinishSnapshot(1, start_delay_s=2.0, alignment_s=2.0),
    ]


def test_a_newer_barrier_ends_an_older_checkpoint() -> None:
    barriers = handler(2)
    barriers.on_arrived(0, barrier(1), 101.0)
    barriers.on_reached(0, barrier(1), 102.0)
    assert barriers.on_arrived(0, barrier(2), 103.0) == [AbortSnapshot(1), UnblockChannels()]
    assert barriers.on_reached(0, barrier(2), 104.0) == snapshot(2, {1}, {1})
