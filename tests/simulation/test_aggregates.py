"""Every aggregate, over values of many types, in every mode: each row is of the right records."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import minirt as rt
from minirt.modes import MODES
from minirt.operators.aggregate import AggregateOperator
from minirt.state import segments
from minirt.state.accumulators import _Means
from minirt.state.array_table import ArrayTable
from minirt.testing import TransactionalSink, simulate
from minirt.testing.conformance.sources import NumberedSource, numbered
from minirt.testing.options import drawn_options
from tests.campaigns import MIXED, modes, sampled, seeds

SPLITS, COUNT, PARTS = 3, 20, 3
RUNS, SEEDS = sampled(2), 100
ROUND_S = 0.002
EMITS: dict[str, Any] = {"updates": "updates", "interval": "3ms", "end": "end"}
DAY = dt.date(2024, 1, 1)

Row = dict[str, Any]


def as_columns(record: tuple[str, int, int]) -> Row:
    """All records of a key are of one split, so their order is known. One split has no name."""
    _, split, number = record
    return {
        "split": f"split {split}" if split else None,
        "day": DAY + dt.timedelta(days=number % PARTS),
        "whole": 1 << number,
        "part": (number * 7 % 10) / 8,
        "sparse": number if number % 3 else None,
        "text": f"text {number * 7 % 10}",
        "flag": number % 5 == 0,
        "at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=number * 11 % 30),
    }


class Texts(rt.Fold):
    """The distinct texts, sorted."""

    def of(self, values: pa.Array) -> Any:
        return set(values.to_pylist())

    def merge(self, earlier: Any, later: Any) -> Any:
        earlier |= later
        return earlier

    def result(self, remembered: Any) -> Any:
        return ",".join(sorted(remembered))


AGGREGATES = (
    rt.Count("n"),
    rt.Count("present", "sparse"),
    rt.Sum("whole", "sum"),
    rt.Sum("flag", "flags"),
    rt.Mean("part", "mean"),
    rt.Min("at", "earliest"),
    rt.Max("text", "greatest"),
    rt.Min("flag", "all"),
    rt.First("sparse", "first"),
    rt.Last("text", "last"),
    rt.Last("flag", "last_flag"),
    Texts("text", "texts", pa.string()),
)
REPEATABLE = ("earliest", "greatest", "all", "texts")
"""Results that are the same however often a record comes."""


def expected(rows: Sequence[Row]) -> Row:
    present = [row["sparse"] for row in rows if row["sparse"] is not None]
    return {
        "split": rows[0]["split"],
        "day": rows[0]["day"],
        "n": len(rows),
        "present": len(present),
        "sum": sum(row["whole"] for row in rows),
        "flags": sum(row["flag"] for row in rows),
        "mean": sum(row["part"] for row in rows) / len(rows),
        "earliest": min(row["at"] for row in rows),
        "greatest": max(row["text"] for row in rows),
        "all": min(row["flag"] for row in rows),
        "first": present[0] if present else None,
        "last": rows[-1]["text"],
        "last_flag": rows[-1]["flag"],
        "texts": ",".join(sorted({row["text"] for row in rows})),
    }


def by_key(rows: Sequence[Row]) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["split"], row["day"]].append(row)
    return found


INPUT = by_key([as_columns(record) for record in numbered("n", SPLITS, COUNT)])


def run(seed: int, mode: str, *, once: bool = True) -> list[str]:
    """The problems of one seed, which draws parallelisms as well."""
    sinks = {emit: TransactionalSink() for emit in EMITS}

    def form(parallelism: int) -> rt.Environment:
        env = rt.Environment(parallelism=parallelism, max_parallelism=8)
        records = env.source(NumberedSource("n", SPLITS, COUNT), uid="n").map(as_columns)
        for name, sink in sinks.items():
            keyed = records.key_by("split", "day")
            keyed.aggregate(*AGGREGATES, emit=EMITS[name], uid=name).sink(sink, uid=f"{name}-out")
        return env

    drawn = drawn_options(Random(seed), ROUND_S)
    result = simulate(
        form(1 + seed % 3),
        seed=seed,
        checkpointing=rt.Checkpointing("simulated://", interval="20ms", mode=mode),
        options=replace(drawn, limits=replace(drawn.limits, inline_snapshot_bytes=0)),
        rescaled=[form(1 + seed // 3 % 3)],
    )
    check = wrong if once else wrong_at_least_once
    problems = [] if not once else list(result.problems)
    return problems + [f"{n}: {p}" for n, s in sinks.items() for p in check(n, s.rows)]


def wrong(emit: str, rows: Sequence[Row]) -> list[str]:
    """Each row must be of the first records of its key, each of more than the one before."""
    found, problems = by_key(rows), []
    for key, records in INPUT.items():
        counts = [row["n"] for row in found[key]]
        if counts != sorted(set(counts)) or counts[-1:] != [len(records)]:
            problems.append(f"{key}: counts {counts}")
        elif emit == "end" and len(counts) > 1:
            problems.append(f"{key}: several results at the end")
        problems += [f"{key}: {row}" for row in found[key] if row != expected(records[: row["n"]])]
    return problems


def wrong_at_least_once(emit: str, rows: Sequence[Row]) -> list[str]:
    found = by_key(rows)
    problems = []
    for key, records in INPUT.items():
        last, whole = found[key][-1:], expected(records)
        if not last or any(last[0][name] != whole[name] for name in REPEATABLE):
            problems.append(f"{key}: ends with {last}")
        elif last[0]["n"] < len(records):
            problems.append(f"{key}: records are missing, {last}")
    return problems


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small state be stored in many segments, and copied late."""
    monkeypatch.setattr(segments, "STRETCH_MIN", 1)


@pytest.mark.parametrize("mode", modes())
def test_results_are_of_the_records_of_their_key(mode: str) -> None:
    for seed in range(MIXED, MIXED + RUNS):
        assert run(seed, mode, once=MODES[mode].exactly_once) == [], f"seed {seed}"


def assert_noticed(first: int = 0) -> None:
    if not any(run(seed, "unaligned") for seed in seeds(SEEDS, first)):
        pytest.fail(f"nobody noticed in {SEEDS} runs")


def test_a_mean_that_forgets_its_count(monkeypatch: pytest.MonkeyPatch) -> None:
    load = _Means.load

    def forget(self: Any, slots: Any, stored: Any) -> None:
        load(self, slots, [stored[0], pa.array([1] * len(slots))])

    monkeypatch.setattr(_Means, "load", forget)
    assert_noticed(first=5)


def test_results_that_are_no_longer_pending_after_a_restore(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    restore = ArrayTable.restore

    def nothing_pending(self: ArrayTable, *args: Any) -> None:
        restore(self, *args)
        self._pending[:] = False

    monkeypatch.setattr(ArrayTable, "restore", nothing_pending)
    assert_noticed(first=36)


def test_results_that_the_end_of_input_does_not_bring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AggregateOperator, "on_watermark", lambda self, watermark: ())
    assert_noticed()
