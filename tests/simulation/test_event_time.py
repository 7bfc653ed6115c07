"""What is late and what is over: the same after every restore, and never for records that are on time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

import minirt as rt
from minirt.runtime.input.splits import Silence
from minirt.state.event_times import EventTimes
from minirt.testing import SimulationResult, TransactionalSink, simulate
from minirt.testing.conformance.sources import NumberedSource
from tests.campaigns import sampled, seeds

SPLITS, COUNT, KEYS = 4, 30, 5
SPAN_MS = 4
RUNS, SEEDS = sampled(6), 150
MODES = ["unaligned", rt.AlignedWithTimeout("2ms")]


def key_of(record: Any) -> int:
    return (record[1] * 3 + record[2]) % KEYS


def often_late(record: Any) -> int:
    """Every third record is far behind those before it."""
    _, split, number = record
    return 100 + 2 * number + split % 2 - (30 if number % 3 == 1 else 0)


def run(seed: int, forms: Sequence[rt.Environment], mode: Any) -> SimulationResult:
    first, *rescaled = forms
    checkpointing = rt.Checkpointing("simulated://", interval="20ms", mode=mode)
    return simulate(first, seed=seed, checkpointing=checkpointing, rescaled=rescaled)


def widths(seed: int) -> list[int]:
    """A job at one parallelism and then at another."""
    return Random(seed).sample([1, 2, 3], 2)


# Records that come late.


def late_records(seed: int, mode: Any) -> list[str]:
    """The problems of one seed: each window is given out once, each record counts or is late."""
    sink, late_sink = TransactionalSink(), TransactionalSink()

    def form(parallelism: int) -> rt.Environment:
        env = rt.Environment(parallelism=parallelism, max_parallelism=8)
        marks = rt.Watermarks.bounded(0, timestamp=often_late)
        records = env.source(NumberedSource("n", SPLITS, COUNT), uid="n", watermarks=marks)
        columns = records.map(lambda r: {"k": key_of(r)}).key_by("k")
        windows = columns.window(rt.Tumbling(f"{SPAN_MS}ms")).aggregate(rt.Count(), uid="windows")
        windows.sink(sink, uid="out")
        windows.side_output("late").sink(late_sink, uid="late")
        return env

    result = run(seed, [form(width) for width in widths(seed)], mode)
    spans = [(row["k"], row["window_end"], row["count"]) for row in sink.rows]
    late = len(late_sink.rows)
    twice = [span for span, count in Counter((k, end) for k, end, _ in spans).items() if count > 1]
    counted = sum(count for _, _, count in spans)
    problems = [*result.problems, *(f"{span} was given out twice" for span in twice)]
    if counted + late != SPLITS * COUNT:
        problems.append(f"{counted} records counted and {late} late of {SPLITS * COUNT}")
    return problems


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_no_window_is_given_out_twice(mode: Any) -> None:
    for seed in range(RUNS):
        assert late_records(seed, mode) == [], f"seed {seed}"


def test_time_that_begins_anew_after_a_restore_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EventTimes, "restore", lambda self, section: None)
    assert any(late_records(seed, "unaligned") for seed in seeds(SEEDS))


# Records that are on time, of sources that are slow.


class InOrder(NumberedSource):
    """Splits that follow each other in event time, to be read one after another."""

    interleave = False


def time_in_order(record: tuple[str, int, int]) -> int:
    _, split, number = record
    return split * 1000 + number


def late_of_slow_source(seed: int) -> list[str]:
    sink, late_sink = TransactionalSink(), TransactionalSink()

    def form(parallelism: int) -> rt.Environment:
        env = rt.Environment(parallelism=parallelism, max_parallelism=8)
        marks = rt.Watermarks.monotonous(timestamp=time_in_order, idle_timeout="200ms")
        records = env.source(InOrder("n", SPLITS, COUNT), uid="n", watermarks=marks)
        columns = records.map(lambda r: {"k": key_of(r)}).key_by("k")
        windows = columns.window(rt.Tumbling("1ms")).aggregate(rt.Count(), uid="windows")
        windows.sink(sink, uid="out")
        windows.side_output("late").sink(late_sink, uid="late")
        return env

    result = run(seed, [form(width) for width in (2, 3)], "unaligned")
    counted = sum(row["count"] for row in sink.rows)
    problems = list(result.problems)
    if late_sink.rows or counted != SPLITS * COUNT:
        problems.append(f"{counted} records counted, {len(late_sink.rows)} late")
    return problems


def test_records_of_a_slow_source_are_on_time() -> None:
    for seed in range(RUNS):
        assert late_of_slow_source(seed) == [], f"seed {seed}"


def test_a_source_that_is_idle_while_it_is_busy_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Silence.asked_in_vain

    def whatever_passed(self: Any, began: float, ended: float) -> None:
        self.wait_max_s = 1e9
        asked(self, began, ended)

    monkeypatch.setattr(Silence, "asked_in_vain", whatever_passed)
    monkeypatch.setattr(Silence, "end", lambda self: None)
    assert any(late_of_slow_source(seed) for seed in seeds(SEEDS))
