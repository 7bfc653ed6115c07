"""HourlyStats with keyed state of its own, and a context that only remembers timers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from minirt_connectors.flights.hourly import HOUR_MS
from minirt_connectors.flights.hourly_stats import HourlyStats

TEN = 1_357_034_400_000


@dataclass
class Context:
    """As much of a KeyedContext as the process uses."""

    timestamp: int | None = None
    key: tuple[str, str] = ("EWR", "UA")
    timers: list[int] = field(default_factory=list)

    def set_timer(self, at: int) -> None:
        self.timers.append(at)


@pytest.fixture
def stats() -> HourlyStats:
    process = HourlyStats()
    process.hours = {}  # type: ignore[assignment]
    return process


def fly(process: HourlyStats, ctx: Context, at: int, delay: int | None) -> None:
    ctx.timestamp = at
    process.process({"dep_delay": delay, "distance": 10}, ctx)  # type: ignore[arg-type]


def fire(process: HourlyStats, ctx: Context, at: int) -> list[dict[str, Any]]:
    return list(process.on_timer(at, ctx))  # type: ignore[arg-type]


def test_each_hour_gets_one_timer_at_its_last_moment(stats: HourlyStats) -> None:
    ctx = Context()
    fly(stats, ctx, TEN, 1)
    fly(stats, ctx, TEN + HOUR_MS - 1, 2)
    fly(stats, ctx, TEN + HOUR_MS, 3)
    assert ctx.timers == [TEN + HOUR_MS - 1, TEN + 2 * HOUR_MS - 1]


def test_a_timer_emits_its_hour_only_and_forgets_it(stats: HourlyStats) -> None:
    ctx = Context()
    fly(stats, ctx, TEN, 5)
    fly(stats, ctx, TEN + 1, None)
    fly(stats, ctx, TEN + HOUR_MS, 3)
    (row,) = fire(stats, ctx, ctx.timers[0])
    assert (row["origin"], row["carrier"], row["hour"].timestamp()) == ("EWR", "UA", TEN / 1000)
    assert (row["flights"], row["departed"], row["delay_sum"], row["distance"]) == (2, 1, 5, 20)
    assert list(stats.hours) == [TEN + HOUR_MS]


def test_a_late_flight_is_not_dropped_silently(stats: HourlyStats) -> None:
    ctx = Context()
    fly(stats, ctx, TEN, 5)
    fire(stats, ctx, ctx.timers.pop())
    fly(stats, ctx, TEN + 2, 6)
    (row,) = fire(stats, ctx, ctx.timers[0])
    assert row["flights"] == 1
