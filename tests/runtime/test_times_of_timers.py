"""What timers give out has an event time that is right for the operators behind them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

import minirt as rt

T0 = 1_577_836_800_000
"""The first moment of 2020."""
LATEST_MS = 253_402_300_799_999


class Remind(rt.KeyedProcess):
    """Sets a timer of the clock that is due at once."""

    def process(self, record: Any, ctx: rt.KeyedContext) -> Iterable[Any]:
        ctx.set_processing_timer(ctx.processing_time)
        return []

    def on_timer(self, timestamp: int, ctx: rt.KeyedContext) -> Iterable[Any]:
        ctx.side("aside", {"told": ctx.timestamp})
        yield {"k": ctx.key, "told": ctx.timestamp}


class At(rt.KeyedProcess):
    def process(self, record: Any, ctx: rt.KeyedContext) -> Iterable[Any]:
        ctx.set_timer(record["timer"])
        return []

    def on_timer(self, timestamp: int, ctx: rt.KeyedContext) -> Iterable[Any]:
        yield {"k": ctx.key, "timer": timestamp}


class Stamp(rt.Process):
    def process(self, record: Any, ctx: Any) -> Iterable[Any]:
        yield record, ctx.timestamp


def marks() -> rt.Watermarks:
    return rt.Watermarks.bounded("1s", timestamp="at")


@pytest.mark.parametrize("timed", [True, False])
def test_a_timer_of_the_clock_has_the_event_time_that_was_reached(timed: bool) -> None:
    env = rt.Environment()
    records = [{"k": "a", "at": T0}, {"k": "b", "at": T0 + 5000}]
    source = env.source(
        rt.CollectionSource(records), uid="s", watermarks=marks() if timed else None
    )
    reminded = source.key_by("k").process(Remind(), uid="remind")
    aside, told = rt.CollectSink(), rt.CollectSink()
    reminded.side_output("aside").process(Stamp()).sink(aside, uid="aside")
    reminded.process(Stamp()).sink(told, uid="told")
    env.execute(runner="inline")
    stamps = [stamp for _, stamp in told.rows + aside.rows]
    assert len(stamps) == 4
    assert [record["told"] for record, _ in told.rows + aside.rows] == stamps
    if timed:
        assert all(T0 - 1000 <= stamp <= T0 + 5000 for stamp in stamps)
    else:
        assert stamps == [None] * 4


def test_what_a_timer_of_the_clock_gives_is_not_late_behind_it() -> None:
    env = rt.Environment()
    source = env.source(
        rt.CollectionSource([{"k": "a", "at": T0 + n} for n in range(100)]),
        uid="s",
        watermarks=rt.Watermarks.monotonous(timestamp="at", emit="per record"),
    )
    reminded = source.key_by("k").process(Remind(), uid="remind")
    counts = reminded.window_all(rt.Tumbling("10ms")).aggregate(rt.Count("n"), uid="counts")
    out, late = rt.CollectSink(), rt.CollectSink()
    counts.sink(out, uid="out")
    counts.side_output("late").sink(late, uid="late")
    env.execute(runner="inline")
    assert sum(row["n"] for row in out.rows) >= 1
    assert late.rows == []
    assert all(row["window_start"].year == 2020 for row in out.rows)


@pytest.mark.parametrize("timer", [2**63 - 1, 2**62, LATEST_MS + 1, LATEST_MS, 7])
def test_results_of_a_timer_for_the_end_of_input_are_in_a_window(timer: int) -> None:
    env = rt.Environment()
    source = env.source(
        rt.CollectionSource([{"k": "a", "at": 0, "timer": timer}]), uid="s", watermarks=marks()
    )
    fired = source.key_by("k").process(At(), uid="at")
    sums = fired.window_all(rt.Tumbling("1s")).aggregate(rt.Count("n"), uid="sums")
    out = rt.CollectSink()
    sums.select("n").sink(out, uid="out")
    stamps = rt.CollectSink()
    fired.process(Stamp()).sink(stamps, uid="stamps")
    env.execute(runner="inline")
    assert out.rows == [{"n": 1}]
    assert stamps.rows == [({"k": "a", "timer": timer}, min(timer, LATEST_MS))]


@pytest.mark.parametrize("timer", [2**63, 10**30, -(10**17)])
def test_a_timer_that_no_time_can_have_is_refused(timer: int) -> None:
    env = rt.Environment()
    source = env.source(
        rt.CollectionSource([{"k": "a", "at": 0, "timer": timer}]), uid="s", watermarks=marks()
    )
    source.key_by("k").process(At(), uid="at").sink(rt.CollectSink(), uid="out")
    with pytest.raises(rt.JobFailedError, match=f"uid at.*(?s:.*)timer cannot be set for {timer} "):
        env.execute(runner="inline")
