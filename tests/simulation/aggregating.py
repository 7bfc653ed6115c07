"""A job with state in arrays, and what it must put out however often it is restored."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import minirt as rt
from minirt.testing import Faults, SimulationResult, TransactionalSink, simulate
from minirt.testing.conformance.sources import NumberedSource, numbered

SPLITS, COUNT, KEYS = 3, 40, 17


def as_columns(record: tuple[str, int, int]) -> dict[str, Any]:
    """Each value is a power of a base of its own: a sum tells which records are in it."""
    _, split, number = record
    return {"k": f"key {(number * 5 + split) % KEYS}", "v": 1 << (number % 20 + 20 * split)}


class AggregatingJob:
    """The job at the given parallelisms; the first is where it starts."""

    def __init__(self, parallelisms: Sequence[int]) -> None:
        self.sink = TransactionalSink()
        self.forms = [self._form(parallelism) for parallelism in parallelisms]

    def _form(self, parallelism: int) -> rt.Environment:
        env = rt.Environment(parallelism=parallelism, max_parallelism=8)
        records = env.source(NumberedSource("n", SPLITS, COUNT), uid="n").map(as_columns)
        totals = records.key_by("k").aggregate(
            rt.Sum("v", "sum"), rt.Count("n"), rt.Max("v", "max"), uid="totals"
        )
        totals.sink(self.sink, uid="out")
        return env

    def run(
        self, seed: int, mode: Any = "aligned", faults: Faults | None = None
    ) -> SimulationResult:
        first, *rescaled = self.forms
        checkpointing = rt.Checkpointing("simulated://", interval="20ms", mode=mode)
        return simulate(
            first, seed=seed, checkpointing=checkpointing, faults=faults, rescaled=rescaled
        )

    def wrong(self) -> list[str]:
        """What is wrong with the committed output."""
        expected: dict[str, list[int]] = defaultdict(list)
        for record in numbered("n", SPLITS, COUNT):
            columns = as_columns(record)
            expected[columns["k"]].append(columns["v"])
        found = []
        for key, values in expected.items():
            rows = [row for row in self.sink.rows if row["k"] == key]
            counts = [row["n"] for row in rows]
            if counts != sorted(set(counts)):
                found.append(f"{key}: counts {counts} do not grow")
            last = rows[-1] if rows else None
            if last != {"k": key, "sum": sum(values), "n": len(values), "max": max(values)}:
                found.append(f"{key}: ends with {last}")
        unknown = Counter(row["k"] for row in self.sink.rows).keys() - expected.keys()
        return found + [f"unknown keys {unknown}"] * bool(unknown)


def run_aggregating(seed: int, mode: Any = "aligned") -> list[str]:
    """The problems of one seed, which draws parallelisms as well."""
    job = AggregatingJob([1 + seed % 3, 1 + seed // 3 % 3])
    return [*job.run(seed, mode).problems, *job.wrong()]
