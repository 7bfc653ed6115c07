"""A job with state in arrays, and what it must put out however often it is restored."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import minirt as rt
from minirt.testing import Faults, Requests, SimulationResult, TransactionalSink, simulate
from minirt.testing.conformance.sources import (
    OUT_OF_ORDER_MS,
    NumberedSource,
    event_time,
    numbered,
)
from minirt.testing.options import drawn_options

SPLITS, COUNT, KEYS = 3, 40, 17
WINDOW_MS = 20
ROUND = 3
ROUND_S = 0.002


def as_columns(record: tuple[str, int, int]) -> dict[str, Any]:
    """Each value is a power of a base of its own: a sum tells which records are in it."""
    _, split, number = record
    return {"k": f"key {(number * 5 + split) % KEYS}", "v": 1 << (number % 20 + 20 * split)}


class CountDown(rt.KeyedProcess):
    """Counts the records of a key, and forgets the key after each round."""

    count = rt.ValueState(0)

    def process(self, record: Any, ctx: rt.KeyedContext) -> Iterable[tuple[str, int]]:
        count = self.count.value
        yield record["k"], count
        if count + 1 < ROUND:
            self.count.value = count + 1
        else:
            self.count.clear()


class AggregatingJob:
    """The job at the given parallelisms; the first is where it starts."""

    def __init__(self, parallelisms: Sequence[int], *, windowed: bool = True) -> None:
        self._windowed = windowed
        self.totals = TransactionalSink()
        self.windows = TransactionalSink()
        self.rows = TransactionalSink()
        self.forms = [self._form(parallelism) for parallelism in parallelisms]

    def _form(self, parallelism: int) -> rt.Environment:
        env = rt.Environment(parallelism=parallelism, max_parallelism=8)
        watermarks = rt.Watermarks.bounded(OUT_OF_ORDER_MS / 1000, timestamp=event_time)
        source = NumberedSource("n", SPLITS, COUNT)
        records = env.source(source, uid="n", watermarks=watermarks).map(as_columns).key_by("k")
        totals = records.aggregate(
            rt.Sum("v", "sum"), rt.Count("n"), rt.Max("v", "max"), uid="totals"
        )
        totals.sink(self.totals, uid="out")
        if not self._windowed:
            return env
        windows = records.window(rt.Tumbling(f"{WINDOW_MS}ms")).aggregate(
            rt.Sum("v", "sum"), uid="windows"
        )
        windows.sink(self.windows, uid="windows-out")
        counts = records.process(CountDown(), uid="rows")
        counts.sink(self.rows, uid="rows-out")
        return env

    def run(
        self,
        seed: int,
        mode: Any = "aligned",
        faults: Faults | None = None,
        requests: Requests | None = None,
        retain: int = 3,
        max_concurrent: int = 1,
    ) -> SimulationResult:
        first, *rescaled = self.forms
        checkpointing = rt.Checkpointing(
            *("simulated://", "20ms", mode), retain=retain, max_concurrent=max_concurrent
        )
        return simulate(
            first,
            seed=seed,
            checkpointing=checkpointing,
            faults=faults,
            requests=requests,
            options=_options(seed),
            rescaled=rescaled,
        )

    def wrong(self) -> list[str]:
        """What is wrong with the committed output."""
        return [*self._wrong_totals(), *(self._wrong_rest() if self._windowed else ())]

    def _wrong_totals(self) -> list[str]:
        expected: dict[str, list[int]] = defaultdict(list)
        for record in numbered("n", SPLITS, COUNT):
            columns = as_columns(record)
            expected[columns["k"]].append(columns["v"])
        found = []
        for key, values in expected.items():
            rows = [row for row in self.totals.rows if row["k"] == key]
            counts = [row["n"] for row in rows]
            if counts != sorted(set(counts)):
                found.append(f"{key}: counts {counts} do not grow")
            last = rows[-1] if rows else None
            if last != {"k": key, "sum": sum(values), "n": len(values), "max": max(values)}:
                found.append(f"{key}: ends with {last}")
        unknown = Counter(row["k"] for row in self.totals.rows).keys() - expected.keys()
        return found + [f"unknown keys {unknown}"] * bool(unknown)

    def _wrong_rest(self) -> list[str]:
        return [*self._wrong_windows(), *self._wrong_rows()]

    def _wrong_rows(self) -> list[str]:
        keys = (as_columns(record)["k"] for record in numbered("n", SPLITS, COUNT))
        expected = {
            (key, number % ROUND) for key, count in Counter(keys).items() for number in range(count)
        }
        got = Counter(self.rows.rows)
        return [] if set(got) == expected and self._in_turn() else [f"rows {sorted(got.items())}"]

    def _in_turn(self) -> bool:
        """Whether the counts of each key go up by one, and begin again after each round."""
        seen: Counter[str] = Counter()
        for key, count in self.rows.rows:
            if count != seen[key] % ROUND:
                return False
            seen[key] += 1
        return seen.total() == SPLITS * COUNT

    def _wrong_windows(self) -> list[str]:
        expected: Counter[tuple[str, int]] = Counter()
        for record in numbered("n", SPLITS, COUNT):
            columns = as_columns(record)
            start = event_time(record) // WINDOW_MS * WINDOW_MS
            expected[columns["k"], start] += columns["v"]
        got = sorted(
            (row["k"], round(row["window_start"].timestamp() * 1000), row["sum"])
            for row in self.windows.rows
        )
        wanted = sorted((key, start, total) for (key, start), total in expected.items())
        return [] if got == wanted else [f"windows {got} instead of {wanted}"]


def _options(seed: int) -> rt.Options:
    """As drawn, but only files can be built on."""
    drawn = drawn_options(Random(seed), ROUND_S)
    return replace(drawn, limits=replace(drawn.limits, inline_snapshot_bytes=0))


def run_aggregating(seed: int, mode: Any = "aligned", *, windowed: bool = True) -> list[str]:
    """The problems of one seed, which draws parallelisms as well."""
    job = AggregatingJob([1 + seed % 3, 1 + seed // 3 % 3], windowed=windowed)
    return [*job.run(seed, mode).problems, *job.wrong()]
