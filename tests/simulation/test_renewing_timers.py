"""Timers that set themselves again: they come to an end with the input, the same however often it fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

import minirt as rt
from minirt.modes import MODES
from minirt.state.timers import Timers
from minirt.testing import TransactionalSink, simulate
from minirt.testing.conformance.sources import (
    OUT_OF_ORDER_MS,
    NumberedSource,
    event_time,
    numbered,
)
from tests.campaigns import sampled, seeds

SPLITS, COUNT, KEYS = 3, 12, 5
FAR = 10**14
"""Later than whatever a simulation lives to see."""

EXACTLY_ONCE = sorted(name for name, mode in MODES.items() if mode.exactly_once)
RUNS, SEEDS = sampled(4), 60


def key_of(record: Any) -> int:
    return (record[1] + record[2]) % KEYS


class Renewing(rt.KeyedProcess):
    """Each timer sets the next one of its clock."""

    begun = rt.ValueState(False)

    def process(self, record: Any, ctx: rt.KeyedContext) -> None:
        if not self.begun.value:
            ctx.set_timer(FAR)
            ctx.set_processing_timer(FAR)
        self.begun.value = True

    def on_timer(self, timestamp: int, ctx: rt.KeyedContext) -> Iterable[Any]:
        yield ctx.key, ctx.domain, timestamp
        if ctx.domain == "event":
            ctx.set_timer(2 * timestamp)
        else:
            ctx.set_processing_timer(2 * timestamp)


class Mixed(Renewing):
    """Each timer sets the next one, of both clocks."""

    def on_timer(self, timestamp: int, ctx: rt.KeyedContext) -> Iterable[Any]:
        yield ctx.key, ctx.domain, timestamp
        ctx.set_timer(timestamp + 1)
        ctx.set_processing_timer(timestamp + 1)


ALL_KEYS = {key_of(record) for record in numbered("n", SPLITS, COUNT)}


def at_the_end(*fired: tuple[str, int]) -> Counter[Any]:
    return Counter((key, *one) for key in ALL_KEYS for one in fired)


def wrong(rows: Iterable[Any]) -> list[str]:
    """Timers of event time fire twice. Those of the clock fire once more than the clock has come to."""
    got = Counter(rows)
    events = Counter({row: count for row, count in got.items() if row[1] == "event"})
    problems = [] if events == at_the_end(("event", FAR), ("event", 2 * FAR)) else [str(events)]
    for key in ALL_KEYS:
        times = sorted(at for k, domain, at in got.elements() if (k, domain) == (key, "processing"))
        if not times or times != [FAR << place for place in range(len(times))]:
            problems.append(f"{key}: {times}")
    return problems


def form(sink: TransactionalSink, parallelism: int) -> rt.Environment:
    env = rt.Environment(parallelism=parallelism, max_parallelism=8)
    marks = rt.Watermarks.bounded(OUT_OF_ORDER_MS / 1000, timestamp=event_time)
    records = env.source(NumberedSource("n", SPLITS, COUNT), uid="n", watermarks=marks)
    records.key_by(key_of).process(Renewing(), uid="renewing").sink(sink, uid="out")
    return env


def run(seed: int, mode: str) -> list[str]:
    sink = TransactionalSink()
    result = simulate(
        form(sink, 1 + seed % 3),
        seed=seed,
        checkpointing=rt.Checkpointing("simulated://", interval="20ms", mode=mode),
        rescaled=[form(sink, 1 + seed // 3 % 3)],
    )
    return [*result.problems, *wrong(sink.rows)]


@pytest.mark.parametrize("mode", EXACTLY_ONCE)
def test_they_fire_as_often_whatever_fails_meanwhile(mode: str) -> None:
    for seed in range(RUNS):
        assert run(seed, mode) == [], f"seed {seed}"


@pytest.mark.parametrize(
    "runner", ["inline", pytest.param("processes", marks=pytest.mark.processes)]
)
def test_they_end_in_both_runners(runner: Any) -> None:
    env, sink = rt.Environment(parallelism=2), rt.CollectSink()
    records = env.source(rt.CollectionSource(numbered("n", SPLITS, COUNT)))
    records.key_by(key_of).process(Renewing()).sink(sink, uid="one")
    mixed = rt.CollectSink()
    records.key_by(key_of).process(Mixed()).sink(mixed, uid="mixed")
    env.execute(runner=runner)
    clock = ("processing", FAR)
    assert Counter(sink.rows) == at_the_end(("event", FAR), ("event", 2 * FAR), clock)
    again = ("event", FAR + 1)
    """Set by the timer of event time, and once it has fired, by that of the clock."""
    assert Counter(mixed.rows) == at_the_end(("event", FAR), again, again, clock)


def test_rounds_that_are_not_stored_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    place_of = Timers._place_of
    monkeypatch.setattr(Timers, "_place_of", lambda self, name: (place_of(self, name)[0], 0))
    if not any(run(seed, mode) for seed in seeds(SEEDS, 9) for mode in EXACTLY_ONCE):
        pytest.fail(f"nobody noticed in {SEEDS} runs of each mode")
