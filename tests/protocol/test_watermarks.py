"""The valve that combines the watermarks of channels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.protocol.watermarks import MAX_WATERMARK, NO_CHANGE, WatermarkChange, WatermarkValve

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
