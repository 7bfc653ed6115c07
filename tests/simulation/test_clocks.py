"""Workers that come back alone and go by the clock: it shows them once more what it did."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

import minirt as rt
from minirt.api.stream import Stream
from minirt.protocol.service_order import Read
from minirt.runtime.input.logged_clock import LoggedClock
from minirt.testing import TransactionalSink
from tests.campaigns import MIXED, sampled, seeds
from tests.simulation.test_replays import Again, wrong_in
from tests.simulation.test_service_order import Times, by_remainder, run, updates_wrong_in

Patch = pytest.MonkeyPatch

SEEDS = 100
_INTERVAL = "300ms"


class Wait(rt.KeyedProcess):
    """Numbers the records of a key, some at once and some later, as the clock will have it."""

    held = rt.ListState()
    count = rt.ValueState(0)

    def process(self, record: Any, ctx: rt.KeyedContext) -> Iterable[Any]:
        if ctx.processing_time % 3:
            yield self._numbered(record)
            return
        self.held.add(record)
        ctx.set_processing_timer(ctx.processing_time + 1 + 20 * (record[2] % 4))

    def on_timer(self, timestamp: int, ctx: rt.KeyedContext) -> Iterable[Any]:
        held = self.held.get()
        self.held.clear()
        turn = ctx.processing_time % max(1, len(held))
        for record in (*held[turn:], *held[:turn]):
            yield self._numbered(record)

    def _numbered(self, record: Any) -> Any:
        self.count.value += 1
        return record, self.count.value


class Clocked(Wait):
    """The same with timers of event time, in which the clock is read."""

    def process(self, record: Any, ctx: rt.KeyedContext) -> Iterable[Any]:
        if ctx.processing_time % 3:
            yield self._numbered(record)
            return
        self.held.add(record)
        ctx.set_timer(ctx.timestamp)  # type: ignore[arg-type]


def by_timers(random: Random, source: Stream[Any], sink: rt.Sink) -> None:
    process = random.choice((Wait(), Clocked()))
    counted: Any = source.key_by(by_remainder).process(process, uid="count")
    again = counted.key_by(lambda each: each[0][2]).process(Again(), uid="again")
    again.sink(sink, uid="out")


def by_interval(random: Random, source: Stream[Any], sink: rt.Sink) -> None:
    rows = source.map(lambda record: {"key": by_remainder(record)}, uid="rows").key_by("key")
    _counted(rows.aggregate(rt.Count(), emit="20ms", uid="every"), sink)


def by_trigger(random: Random, source: Stream[Any], sink: rt.Sink) -> None:
    rows = source.map(lambda record: {"key": by_remainder(record)}, uid="rows").key_by("key")
    window = rt.GlobalWindow(rt.AfterTime("20ms", clock="processing"))
    _counted(rows.window(window).aggregate(rt.Count(), uid="every"), sink)


def _counted(counts: Any, sink: rt.Sink) -> None:
    pairs = counts.map(lambda row: (row["key"], row["count"]), uid="pairs")
    pairs.key_by(lambda pair: pair[1]).process(Times(), uid="again").sink(sink, uid="out")


@dataclass(frozen=True)
class Kind:
    stages: Callable[[Random, Stream[Any], rt.Sink], None]
    judge: Callable[[TransactionalSink], list[str]]

    def wrong(self, seed: int) -> tuple[int, list[str]]:
        # So much is done between two snapshots that there is enough to do again.
        result, wrong = run(seed, stages=self.stages, judge=self.judge, interval=_INTERVAL)
        return result.comebacks, wrong


KINDS = {
    "timers": Kind(by_timers, wrong_in),
    "interval": Kind(by_interval, updates_wrong_in),
    "trigger": Kind(by_trigger, updates_wrong_in),
}


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_and_nothing_comes_twice(kind: str) -> None:
    comebacks = 0
    for seed in range(MIXED, MIXED + sampled(6, 4)):
        back, wrong = KINDS[kind].wrong(seed)
        assert wrong == [], seed
        comebacks += back
    assert comebacks > 1


def test_a_clock_that_shows_the_time_of_now(monkeypatch: Patch) -> None:
    def next(clock: LoggedClock) -> int:
        if clock._again and isinstance(clock._again[0], Read):
            clock._again.popleft()
        return int(clock._wall() * 1000)

    monkeypatch.setattr(LoggedClock, "_next", next)
    noticed = any(KINDS["timers"].wrong(seed)[1] for seed in seeds(SEEDS, 72))
    assert noticed, f"nobody noticed in {SEEDS} runs"
