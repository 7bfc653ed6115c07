"""The watermark of several channels: the least of the active ones, and never back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from minirt.protocol.watermarks import MAX_WATERMARK, NO_CHANGE, WatermarkChange, WatermarkValve


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


@given(st.data())
def test_it_does_not_matter_in_which_order_channels_fall_silent_or_end(data: st.DataObject) -> None:
    """The greatest watermark is reached once nobody is left who could hold it back."""
    brought = data.draw(st.lists(st.none() | st.integers(-5, 20), min_size=2, max_size=4))
    ends = data.draw(st.lists(st.booleans(), min_size=len(brought), max_size=len(brought)))
    ends[data.draw(st.sampled_from(range(len(brought))))] = (
        False  # All that have ended are the end.
    )
    events = [("watermark", place) for place, one in enumerate(brought) if one is not None]
    events += [("leave", place) for place in range(len(brought))]
    order = data.draw(st.permutations(events))
    # A watermark comes ahead of the end of its channel. It may come to one that is silent.
    order.sort(key=lambda event: event[0] == "leave" and ends[event[1]])
    valve = WatermarkValve(len(brought))
    for kind, place in order:
        mark = brought[place]
        if kind == "leave":
            valve.on_end(place) if ends[place] else valve.on_idle(place)
        elif mark is not None:
            valve.on_watermark(place, mark)
    assert valve.watermark == max((one for one in brought if one is not None), default=None)
    assert valve.idle


def test_it_does_not_depend_on_who_is_idle_first_how_far_event_time_comes() -> None:
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1]):
        valve = WatermarkValve(3)
        valve.on_watermark(0, 7)
        valve.on_watermark(1, 7)
        told = [valve.on_idle(channel) for channel in order]
        assert valve.watermark == 7, order
        assert [change.idle for change in told] == [None, None, True]


def test_a_channel_that_ends_without_a_watermark_lets_go_what_idle_ones_have_brought() -> None:
    valve = WatermarkValve(2)
    valve.on_watermark(0, 7)
    assert valve.on_idle(0) == NO_CHANGE
    assert valve.on_end(1) == WatermarkChange(7, idle=True)


def test_a_watermark_of_an_idle_channel_counts_where_nobody_is_active() -> None:
    valve = WatermarkValve(1)
    valve.on_idle(0)
    assert valve.on_watermark(0, 7) == WatermarkChange(7)
    assert valve.on_active(0) == WatermarkChange(idle=False)


def test_channel_that_has_ended_holds_the_others_up_no_longer() -> None:
    valve = WatermarkValve(3)
    valve.on_watermark(0, 9)
    valve.on_watermark(1, 3)
    assert valve.on_end(2) == WatermarkChange(3)
    assert valve.on_end(1) == WatermarkChange(9)
    assert valve.on_watermark(0, 12) == WatermarkChange(12)


def test_channel_that_returns_after_others_have_ended_still_moves_event_time() -> None:
    valve = WatermarkValve(2)
    valve.on_watermark(0, 5)
    valve.on_watermark(1, 3)
    valve.on_idle(1)
    assert valve.on_end(0) == WatermarkChange(idle=True)
    assert valve.on_watermark(1, 8) == WatermarkChange(8)
    assert valve.on_active(1) == WatermarkChange(idle=False)


Event = tuple[str, int, int]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["watermark", "idle", "active", "end"]),
            st.integers(0, 2),
            st.integers(-5, 20),
        )
    )
)
def test_emitted_is_the_least_active_watermark_or_without_any_the_greatest(
    events: list[Event],
) -> None:
    valve = WatermarkValve(3)
    watermarks: list[int | None] = [None] * 3
    active = [True] * 3
    ended = [False] * 3
    emitted: int | None = None
    idle = False
    for kind, channel, watermark in events:
        if kind == "watermark":
            change = valve.on_watermark(channel, watermark)
            known = watermarks[channel]
            watermarks[channel] = watermark if known is None else max(known, watermark)
        elif kind == "end":
            change = valve.on_end(channel)
            ended[channel] = True
        else:
            change = valve.on_idle(channel) if kind == "idle" else valve.on_active(channel)
            active[channel] = kind == "active"
        counted = [
            w for w, on, over in zip(watermarks, active, ended, strict=True) if on and not over
        ]
        turned = (not counted) != idle
        asked = counted
        if not counted:
            asked = [max((w for w in watermarks if w is not None), default=None)]
        complete = [w for w in asked if w is not None]
        least = min(complete) if complete and len(complete) == len(asked) else None
        grown = least is not None and (emitted is None or least > emitted)
        assert change == WatermarkChange(least if grown else None, not counted if turned else None)
        emitted, idle = (least if grown else emitted), not counted
        assert valve.watermark == emitted


def test_a_restored_valve_goes_on_from_where_it_was() -> None:
    before = WatermarkValve(2)
    before.on_watermark(0, 9)
    before.on_watermark(1, 5)
    after = WatermarkValve(2)
    after.restore(before.watermark, before.channels)
    assert after.on_watermark(1, 4) == NO_CHANGE
    assert after.on_watermark(1, 7) == WatermarkChange(7)
    assert after.watermark == 7


def test_a_restored_channel_without_a_watermark_holds_back() -> None:
    valve = WatermarkValve(2)
    valve.restore(5, [9, None])
    assert valve.on_watermark(0, 10) == NO_CHANGE
    assert valve.on_watermark(1, 8) == WatermarkChange(8)
