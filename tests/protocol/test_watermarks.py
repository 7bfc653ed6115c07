<<<<<<< HEAD
"""The watermark of several channels: the least of the active ones, and never back."""

from __future__ import annotations

=======
"""The valve that combines the watermarks of channels."""

from __future__ import annotations

import pytest
>>>>>>> sim
from hypothesis import given
from hypothesis import strategies as st

from minirt.protocol.watermarks import MAX_WATERMARK, NO_CHANGE, WatermarkChange, WatermarkValve

<<<<<<< HEAD

def test_single_channel_passes_its_watermarks_through() -> None:
    valve = WatermarkValve(1)
    assert valve.watermark is None
    assert valve.on_watermark(0, 5) == WatermarkChange(5)
    assert valve.on_watermark(0, MAX_WATERMARK) == WatermarkChange(MAX_WATERMARK)
    assert valve.watermark == MAX_WATERMARK


def test_nothing_is_emitted_before_every_active_channel_has_a_watermark() -> None:
    valve = WatermarkValve(3)
    assert valve.on_watermark(0, 5) == NO_CHANGE
    assert valve.on_watermark(2, 9) == NO_CHANGE
    assert valve.watermark is None
    assert valve.on_watermark(1, 7) == WatermarkChange(5)


def test_least_of_the_channels_is_emitted_and_only_when_it_grows() -> None:
    valve = WatermarkValve(2)
    valve.on_watermark(0, 5)
    assert valve.on_watermark(1, 3) == WatermarkChange(3)
    assert valve.on_watermark(0, 8) == NO_CHANGE
    assert valve.on_watermark(1, 6) == WatermarkChange(6)
    assert valve.on_watermark(1, 6) == NO_CHANGE
    assert valve.on_watermark(1, 20) == WatermarkChange(8)


def test_watermark_that_goes_back_is_ignored() -> None:
    valve = WatermarkValve(1)
    valve.on_watermark(0, 5)
    assert valve.on_watermark(0, 4) == NO_CHANGE
    assert valve.watermark == 5
    assert valve.on_watermark(0, 6) == WatermarkChange(6)


def test_watermarks_before_the_epoch_are_watermarks() -> None:
    valve = WatermarkValve(2)
    valve.on_watermark(0, 0)
    assert valve.on_watermark(1, -5) == WatermarkChange(-5)
    assert valve.on_watermark(1, 0) == WatermarkChange(0)


def test_channel_that_turns_idle_holds_the_others_up_no_longer() -> None:
    valve = WatermarkValve(2)
    valve.on_watermark(0, 9)
    valve.on_watermark(1, 3)
    assert valve.on_idle(1) == WatermarkChange(9)
    assert valve.on_watermark(0, 12) == WatermarkChange(12)


def test_idle_channel_without_watermark_counts_as_absent() -> None:
    valve = WatermarkValve(2)
    valve.on_watermark(0, 9)
    assert valve.on_idle(1) == WatermarkChange(9)


def test_channel_that_returns_behind_the_others_takes_nothing_back_but_holds_them_up() -> None:
    valve = WatermarkValve(2)
    valve.on_watermark(0, 9)
    valve.on_watermark(1, 3)
    valve.on_idle(1)
    assert valve.on_active(1) == NO_CHANGE
    assert valve.watermark == 9
    assert valve.on_watermark(0, 15) == NO_CHANGE
    assert valve.on_watermark(1, 11) == WatermarkChange(11)


def test_channel_that_returns_without_watermark_holds_the_others_up() -> None:
    valve = WatermarkValve(2)
    valve.on_idle(1)
    assert valve.on_watermark(0, 5) == WatermarkChange(5)
    assert valve.on_active(1) == NO_CHANGE
    assert valve.on_watermark(0, 7) == NO_CHANGE
    assert valve.on_watermark(1, 6) == WatermarkChange(6)


def test_all_idle_is_told_once_and_so_is_the_first_that_returns() -> None:
    valve = WatermarkValve(2)
    assert valve.on_idle(0) == NO_CHANGE
    assert valve.on_idle(1) == WatermarkChange(idle=True)
    assert valve.on_idle(1) == NO_CHANGE
    assert valve.on_active(0) == WatermarkChange(idle=False)
    assert valve.on_active(1) == NO_CHANGE


def test_all_idle_emits_no_watermark_and_keeps_the_last() -> None:
    valve = WatermarkValve(2)
    valve.on_watermark(0, 5)
    valve.on_watermark(1, 3)
    valve.on_idle(0)
    assert valve.on_idle(1) == WatermarkChange(idle=True)
    assert valve.watermark == 3


def test_return_from_all_idle_brings_the_watermark_that_came_meanwhile() -> None:
    valve = WatermarkValve(1)
    valve.on_idle(0)
    assert valve.on_watermark(0, 7) == NO_CHANGE
    assert valve.on_active(0) == WatermarkChange(7, idle=False)


Event = tuple[str, int, int]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["watermark", "idle", "active"]), st.integers(0, 2), st.integers(-5, 20)
        )
    )
)
def test_emitted_watermark_is_the_greatest_least_so_far(events: list[Event]) -> None:
    valve = WatermarkValve(3)
    watermarks: list[int | None] = [None] * 3
    active = [True] * 3
    emitted: int | None = None
    idle = False
    for kind, channel, watermark in events:
        if kind == "watermark":
            change = valve.on_watermark(channel, watermark)
            known = watermarks[channel]
            watermarks[channel] = watermark if known is None else max(known, watermark)
        else:
            change = valve.on_idle(channel) if kind == "idle" else valve.on_active(channel)
            active[channel] = kind == "active"
        counted = [w for w, is_active in zip(watermarks, active, strict=True) if is_active]
        complete = [w for w in counted if w is not None]
        least = min(complete) if complete and len(complete) == len(counted) else None
        grown = least is not None and (emitted is None or least > emitted)
        turned = (not counted) != idle
        assert change == WatermarkChange(least if grown else None, not counted if turned else None)
        emitted, idle = (least if grown else emitted), not counted
        assert valve.watermark == emitted
=======
IDLE = WatermarkChange(idle=True)


def to(watermark: int, idle: bool | None = None) -> WatermarkChange:
    return WatermarkChange(watermark, idle)


def test_one_channel_passes_its_watermarks_on() -> None:
    valve = WatermarkValve(1)
    assert valve.watermark is None
    assert [valve.on_watermark(0, time) for time in (5, 6)] == [to(5), to(6)]
    assert valve.watermark == 6


def test_nothing_comes_before_every_channel_has_a_watermark() -> None:
    valve = WatermarkValve(3)
    assert valve.on_watermark(0, 10) == NO_CHANGE
    assert valve.on_watermark(2, 7) == NO_CHANGE
    assert valve.on_watermark(1, 12) == to(7)


def test_the_least_channel_decides() -> None:
    valve = WatermarkValve(2)
    valve.on_watermark(0, 10)
    assert valve.on_watermark(1, 3) == to(3)
    assert valve.on_watermark(0, 20) == NO_CHANGE
    assert valve.on_watermark(1, 15) == to(15)
    assert valve.on_watermark(1, 30) == to(20)


def test_a_watermark_that_does_not_advance_changes_nothing() -> None:
    valve = WatermarkValve(1)
    valve.on_watermark(0, 10)
    assert [valve.on_watermark(0, time) for time in (10, 9, -1)] == [NO_CHANGE] * 3
    assert valve.watermark == 10


def test_the_end_of_input_is_the_last_watermark() -> None:
    valve = WatermarkValve(2)
    valve.on_watermark(0, MAX_WATERMARK)
    assert valve.on_watermark(1, 5) == to(5)
    assert valve.on_watermark(1, MAX_WATERMARK) == to(MAX_WATERMARK)


def test_an_idle_channel_holds_nothing_up() -> None:
    valve = WatermarkValve(2)
    valve.on_watermark(0, 10)
    assert valve.on_idle(1) == to(10)
    assert valve.on_watermark(0, 11) == to(11)


def test_all_channels_idle_is_idle_and_one_active_ends_it() -> None:
    valve = WatermarkValve(2)
    assert valve.on_idle(0) == NO_CHANGE
    assert valve.on_idle(1) == IDLE
    assert valve.on_idle(1) == NO_CHANGE
    assert valve.on_active(1) == WatermarkChange(idle=False)
    assert valve.on_watermark(1, 4) == to(4)


def test_a_channel_that_is_active_again_holds_back_but_takes_nothing_back() -> None:
    valve = WatermarkValve(2)
    valve.on_watermark(0, 10)
    valve.on_watermark(1, 5)
    assert valve.on_idle(1) == to(10)
    assert valve.on_active(1) == NO_CHANGE
    assert valve.watermark == 10
    assert valve.on_watermark(0, 20) == NO_CHANGE
    assert valve.on_watermark(1, 15) == to(15)


def test_an_idle_channel_may_bring_watermarks_that_count_once_it_is_active() -> None:
    valve = WatermarkValve(2)
    valve.on_idle(1)
    assert valve.on_watermark(0, 10) == to(10)
    assert valve.on_watermark(1, 30) == NO_CHANGE
    assert valve.on_watermark(0, 40) == to(40)
    valve.on_active(1)
    assert valve.on_watermark(1, 50) == NO_CHANGE
    assert valve.on_watermark(0, 45) == to(45)
    assert valve.on_watermark(0, 60) == to(50)


def test_when_all_turn_idle_the_watermark_stays() -> None:
    valve = WatermarkValve(2)
    valve.on_watermark(0, 10)
    valve.on_watermark(1, 5)
    assert valve.on_idle(0) == NO_CHANGE
    assert valve.on_idle(1) == IDLE
    assert valve.watermark == 5


@given(
    channels=st.integers(1, 4),
    events=st.lists(
        st.tuples(
            st.sampled_from(["watermark", "idle", "active"]), st.integers(0, 3), st.integers(0, 20)
        )
    ),
)
def test_watermarks_never_go_back_and_never_pass_an_active_channel(
    channels: int, events: list[tuple[str, int, int]]
) -> None:
    valve = WatermarkValve(channels)
    newest: dict[int, int] = {}
    active = set(range(channels))
    emitted = -1
    for kind, number, time in events:
        channel = number % channels
        if kind == "watermark":
            newest[channel] = max(time, newest.get(channel, time))
            change = valve.on_watermark(channel, time)
        elif kind == "idle":
            active.discard(channel)
            change = valve.on_idle(channel)
        else:
            active.add(channel)
            change = valve.on_active(channel)
        if change.watermark is None:
            continue
        assert change.watermark > emitted
        assert active
        assert change.watermark == min(newest[channel] for channel in active)
        emitted = change.watermark
        assert valve.watermark == emitted


@pytest.mark.parametrize("channels", [1, 5])
def test_a_valve_that_is_told_nothing_says_nothing(channels: int) -> None:
    assert WatermarkValve(channels).watermark is None
>>>>>>> sim
