"""Jobs that are drained while everything fails: what has seen the end of time never goes on by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

import minirt as rt
from minirt.protocol.checkpoints import CheckpointCoordinator
from minirt.storage.checkpoints import CheckpointStorage
from minirt.testing import Faults, Requests, SimulationResult, TransactionalSink, simulate
from minirt.testing.conformance.sources import OUT_OF_ORDER_MS, NumberedSource, event_time
from tests.campaigns import modes, sampled, seeds
from tests.simulation.counting import COUNT, EXPECTED, SPLITS, key_of

RUNS = sampled(20, 2)
SEEDS = 120
DRAINED = 25
"""From this seed on enough of the first few jobs are drained, in every mode."""
"""Within so many each planted bug must be noticed."""
END_MS = 1 << 50
FAULTS = replace(Faults(), worker_crashes=4, storage_errors=8, coordinator_crashes=3)

Patch = pytest.MonkeyPatch


class UntilTheEnd(rt.KeyedProcess):
    """Gives out the records of a key when event time ends, as one list."""

    seen = rt.ListState()

    def process(self, record: Any, ctx: rt.KeyedContext) -> None:
        self.seen.add(record)
        ctx.set_timer(END_MS)

    def on_timer(self, timestamp: int, ctx: rt.KeyedContext) -> Iterable[Any]:
        yield (ctx.key, self.seen.get())
        self.seen.clear()


def run(seed: int, mode: str = "aligned") -> tuple[SimulationResult, list[str]]:
    """A job whose keys each give out one list for each end of time; and what is wrong with it."""
    random, sink = Random(f"drains {seed}"), TransactionalSink()
    forms = [_form(random.randint(1, 3), sink) for _ in range(random.randint(1, 2))]
    result = simulate(
        forms[0],
        seed=seed,
        checkpointing=rt.Checkpointing("simulated://", interval="20ms", mode=mode, retain=1),
        faults=FAULTS,
        requests=Requests(savepoints=1, drains=3),
        rescaled=forms[1:],
    )
    return result, [*result.problems, *_wrong(sink, ends_of_time(result))]


def _form(parallelism: int, sink: TransactionalSink) -> rt.Environment:
    env = rt.Environment(parallelism=parallelism, max_parallelism=8)
    watermarks = rt.Watermarks.bounded(OUT_OF_ORDER_MS / 1000, timestamp=event_time)
    numbers = env.source(NumberedSource("n", SPLITS, COUNT), watermarks=watermarks, uid="n")
    numbers.key_by(key_of).process(UntilTheEnd(), uid="lists").sink(sink, uid="out")
    return env


def ends_of_time(result: SimulationResult) -> int:
    """Drains that are over, and the end of the input.

    A coordinator puts on record that a drain is over while it publishes the savepoint. If it dies with
    that, nobody is told that the job is stopped; who goes on from there writes the record once more.
    """
    over, begun = set[str](), dict[str, str]()
    for note in result.trace:
        whose, _, does = note.partition(": ")
        coordinator = whose.split()[-1]
        if does in ("begins PublishSavepoint", "begins PrepareGeneration"):
            begun[coordinator] = does
        elif does.endswith(".drained") and begun[coordinator] == "begins PublishSavepoint":
            over.add(does)
    return len(over) + result.finished


def _wrong(sink: TransactionalSink, ends: int) -> list[str]:
    lists = Counter(key for key, _ in sink.rows)
    found = [f"key {key} was given out {n} times" for key, n in lists.items() if n > ends]
    if Counter(record for _, records in sink.rows for record in map(tuple, records)) != EXPECTED:
        found.append("records are lost or come twice")
    return found


@pytest.mark.parametrize("mode", modes(exactly_once=True))
def test_a_drained_job_gives_out_each_key_once_however_it_fails(mode: str) -> None:
    seen = Counter[str]()
    for seed in range(DRAINED, DRAINED + RUNS):
        result, wrong = run(seed, mode)
        assert wrong == [], f"seed {seed}"
        seen["drained"] += any(note.endswith(": is stopped") for note in result.trace)
    assert seen["drained"] >= RUNS / 4


def assert_noticed(first: int = 0) -> None:
    assert any(run(seed)[1] for seed in seeds(SEEDS, first)), f"nobody noticed in {SEEDS} runs"


def test_a_job_that_goes_on_from_a_drain_that_is_not_over(monkeypatch: Patch) -> None:
    monkeypatch.setattr(CheckpointStorage, "drain_is_over", lambda self, key: True)
    assert_noticed(first=33)


def test_a_drain_that_needs_its_workers_to_the_end(monkeypatch: Patch) -> None:
    monkeypatch.setattr(CheckpointStorage, "drain_is_over", lambda self, key: True)
    monkeypatch.setattr(CheckpointCoordinator, "last_is_complete", False)
    assert_noticed(first=33)
