"""Keys that are times in the nights in which clocks change: the same in rows and columns, also restored.

Operators on rows also take times that clocks skip; those on columns refuse them by name.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import minirt as rt
from minirt.data import civil_time, keys
from minirt.testing import TransactionalSink, simulate
from minirt.testing.conformance.sources import NumberedSource, numbered
from tests.campaigns import sampled, seeds

SPLITS, COUNT = 3, 30
ZONE = ZoneInfo("Europe/Berlin")
NIGHTS = [dt.datetime(2024, 10, 27, 1, 30), dt.datetime(2024, 3, 31, 1, 30)]
RUNS, SEEDS = sampled(4), 40


def civil(record: tuple[str, int, int]) -> dict[str, Any]:
    """A time that may come twice, or never, with either fold."""
    _, split, number = record
    drawn = Random(f"{split} {number}")
    time = drawn.choice(NIGHTS) + dt.timedelta(minutes=30 * drawn.randint(0, 4))
    return {"at": time.replace(tzinfo=ZONE, fold=drawn.randint(0, 1)), "n": 1}


def instant(time: dt.datetime) -> float:
    return time.timestamp()


def added(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {"at": other["at"], "n": one["n"] + other["n"]}


class Counting(rt.KeyedProcess):
    count = rt.ValueState(0)

    def process(self, record: Any, ctx: rt.KeyedContext) -> Iterable[Any]:
        self.count.value += 1
        ctx.set_timer(10**15)
        yield {"at": ctx.key, "n": self.count.value}

    def on_timer(self, timestamp: int, ctx: rt.KeyedContext) -> Iterable[Any]:
        yield {"at": ctx.key, "n": self.count.value, "last": True}


def exists(record: dict[str, Any]) -> bool:
    """Columns refuse a time that clocks skip: it would come out of them as another one."""
    return not civil_time._does_not_exist(record["at"])


def expected(kept: Callable[[dict[str, Any]], bool] = lambda record: True) -> Counter[float]:
    records = map(civil, numbered("n", SPLITS, COUNT))
    return Counter(instant(record["at"]) for record in records if kept(record))


def run(seed: int) -> list[str]:
    sinks = {name: TransactionalSink() for name in ("reduce", "process", "aggregate")}

    def form(parallelism: int) -> rt.Environment:
        env = rt.Environment(parallelism=parallelism, max_parallelism=16)
        marks = rt.Watermarks.bounded("1s", timestamp=lambda record: record[2])
        records = env.source(NumberedSource("n", SPLITS, COUNT), uid="n", watermarks=marks)
        timed = records.map(civil)
        keyed = timed.key_by("at")
        results = {
            "reduce": keyed.reduce(added, uid="reduce"),
            "process": keyed.process(Counting(), uid="process"),
            "aggregate": timed.filter(exists)
            .key_by("at")
            .aggregate(rt.Count("n"), uid="aggregate"),
        }
        for name, stream in results.items():
            stream.sink(sinks[name], uid=f"{name}-out")
        return env

    result = simulate(
        form(1 + seed % 3),
        seed=seed,
        checkpointing=rt.Checkpointing("simulated://", interval="20ms", mode="unaligned"),
        rescaled=[form(1 + seed // 3 % 3)],
    )
    problems = list(result.problems)
    for name, sink in sinks.items():
        most: Counter[float] = Counter()
        for row in sink.rows:
            most[instant(row["at"])] = max(most[instant(row["at"])], row["n"])
        if most != (expected(exists) if name == "aggregate" else expected()):
            problems.append(f"{name}: {sorted(most.items())}")
    last = Counter(instant(row["at"]) for row in sinks["process"].rows if "last" in row)
    return problems + [f"timers {last}"] * (last != Counter(expected().keys()))


def test_operators_on_rows_and_on_columns_have_the_same_keys() -> None:
    for seed in range(RUNS):
        assert run(seed) == [], f"seed {seed}"


def test_an_aggregate_names_the_time_that_clocks_skip() -> None:
    skipped = dt.datetime(2024, 3, 31, 2, 30, tzinfo=ZONE)
    env = rt.Environment()
    rows = env.source(
        rt.CollectionSource([{"at": skipped}, {"at": NIGHTS[0].replace(tzinfo=ZONE)}])
    )
    rows.key_by("at").aggregate(rt.Count("n"), uid="counts").sink(rt.CollectSink(), uid="out")
    named = r"counts.*column 'at'.*2024, 3, 31, 2, 30.*clocks.*skip"
    with pytest.raises(rt.JobFailedError, match=named):
        env.execute(runner="inline")


def test_keys_that_python_takes_for_one_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "told_apart", lambda time: time)
    assert any(run(seed) for seed in seeds(SEEDS))


def test_a_router_that_takes_one_key_for_another_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keys, "_depends_on_fold", lambda key: False)
    assert any(run(seed) for seed in seeds(SEEDS))


def test_the_nights_hold_times_that_come_twice_and_times_that_do_not_exist() -> None:
    times = [civil(record)["at"] for record in numbered("n", SPLITS, COUNT)]
    assert {civil_time._does_not_exist(time) for time in times} == {True, False}
    assert len({time.replace(tzinfo=None) for time in times}) < len(set(map(instant, times)))
