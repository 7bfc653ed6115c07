"""Sources that wait for the slowest one: joins hold little, nothing is lost, and nobody waits for ever."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

import pytest

import minirt as rt
from minirt.operators.join import JoinOperator
from minirt.protocol.drift import DriftLimits
from minirt.runtime.input.drift import DriftGate
from minirt.testing import Faults, TransactionalSink, simulate
from tests.campaigns import modes, runs

COUNT, KEYS, STEP_MS = 90, 3, 10
DRIFT_MS, GAP_MS = 100, 1_000_000
FAST_BATCH = 8
AHEAD_MAX = DRIFT_MS // STEP_MS + FAST_BATCH
"""How many records the fast source may be ahead: whether to read is asked before each batch."""
RUNS = runs(1)
COMPARED = runs(3)


class Paced(rt.Source):
    """One split, of which each read brings `batch` records after `empty` that bring none.

    Numbers begin with `first`; before that of `gap_at` nothing happens for long.
    """

    interleave = True

    def __init__(
        self, count: int, empty: int, batch: int, first: int = 0, gap_at: int | None = None
    ) -> None:
        self.empty, self.batch, self.first = empty, batch, first
        self.end = first + count
        self.gap_at = self.end if gap_at is None else gap_at

    def record(self, number: int) -> dict[str, int]:
        gap_ms = GAP_MS if number >= self.gap_at else 0
        return {"k": number % KEYS, "n": number, "t": number * STEP_MS + gap_ms}

    def plan_splits(self, parallelism: int) -> Sequence[rt.Split]:
        return [rt.Split("0")]

    def open_split(self, split: rt.Split, offset: Any) -> rt.SplitReader:
        return _PacedReader(self, self.first if offset is None else offset)


class _PacedReader(rt.SplitReader):
    def __init__(self, source: Paced, offset: int) -> None:
        self.offset = offset
        self._source = source
        self._asked = 0

    def read(self) -> list[Any] | None:
        self._asked += 1
        if self._asked % (self._source.empty + 1):
            return []
        stop = min(self._source.end, self.offset + self._source.batch)
        if stop == self.offset:
            return None
        batch = [self._source.record(number) for number in range(self.offset, stop)]
        self.offset = stop
        return batch


class World:
    """A fast source, joined with slow ones within a time that is short."""

    def __init__(
        self,
        slow: rt.Source,
        drift_ms: int | None,
        fast: rt.Source | None = None,
        idle_timeout: str | None = None,
    ) -> None:
        self.out = TransactionalSink()
        self.env = rt.Environment(parallelism=1, max_parallelism=8)
        given: dict[str, Any] = {"timestamp": "t", "idle_timeout": idle_timeout}
        if drift_ms is not None:
            given["max_drift"] = drift_ms / 1000
        marks = rt.Watermarks.monotonous(**given)
        names = ["k", "n", "t"]
        left = self.env.source(fast or Paced(COUNT, 0, FAST_BATCH), uid="fast", watermarks=marks)
        right = self.env.source(slow, uid="slow", watermarks=marks)
        joined = left.join(
            right, on=["k", "n"], within=(0, 0), columns=(names, ["k", "n", "t"]), uid="join"
        )
        joined.sink(self.out, uid="out")

    def run(
        self,
        seed: int,
        mode: Any = "aligned",
        faults: Faults | None = None,
        steps_max: int = 60_000,
    ) -> list[int]:
        checkpointing = rt.Checkpointing("simulated://", interval="20ms", mode=mode)
        simulate(
            self.env, seed=seed, checkpointing=checkpointing, faults=faults, steps_max=steps_max
        ).check()
        return sorted(row["n"] for row in self.out.rows)


def slow_source(count: int = COUNT, first: int = 0) -> Paced:
    return Paced(count, 5, 1, first)


@pytest.fixture
def most_held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records the join has held at most."""
    most = [0]
    count = JoinOperator._count

    def counted(self: JoinOperator) -> None:
        count(self)
        most[0] = max(most[0], self.ctx.metrics.waiting_records)

    monkeypatch.setattr(JoinOperator, "_count", counted)
    return most


@pytest.fixture
def furthest_ahead(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records the fast source was ahead of the slow one at most; how far each of them is."""
    furthest = [0, 0, 0]
    read = _PacedReader.read

    def measured(self: _PacedReader) -> list[Any] | None:
        batch = read(self)
        furthest[1 if self._source.batch == FAST_BATCH else 2] = self.offset
        furthest[0] = max(furthest[0], furthest[1] - furthest[2])
        return batch

    monkeypatch.setattr(_PacedReader, "read", measured)
    return furthest


def most_without_faults(seed: int, drift_ms: int | None, most: list[int]) -> int:
    """The first of these figures after a run."""
    most[:] = [0] * len(most)
    assert World(slow_source(), drift_ms).run(seed, faults=Faults.none()) == [*range(COUNT)]
    return most[0]


def test_a_source_gets_no_further_ahead_than_the_drift(furthest_ahead: list[int]) -> None:
    for seed in range(COMPARED):
        assert most_without_faults(seed, DRIFT_MS, furthest_ahead) <= AHEAD_MAX, f"seed {seed}"


def usually_held(drift_ms: int | None, most: list[int]) -> float:
    """The median: what is read within the drift may still pile up on its way to the join."""
    return median(most_without_faults(seed, drift_ms, most) for seed in range(COMPARED))


def test_a_join_holds_no_more_than_the_drift(most_held: list[int]) -> None:
    """Beside the drift: what is under way, since the slow source is read further than is joined."""
    assert usually_held(DRIFT_MS, most_held) < 0.4 * COUNT
    assert usually_held(None, most_held) > 0.6 * COUNT


@pytest.mark.parametrize("mode", modes(exactly_once=True))
def test_nothing_is_lost_or_doubled_by_crashes(mode: str) -> None:
    for seed in range(RUNS):
        assert World(slow_source(), DRIFT_MS).run(seed, mode) == [*range(COUNT)], f"seed {seed}"


@pytest.mark.parametrize(
    ("slow", "expected"),
    [
        pytest.param(slow_source(20), 20, id="ends early"),
        pytest.param(slow_source(0), 0, id="has no record at all"),
        pytest.param(Paced(COUNT, 60, COUNT), COUNT, id="long brings nothing"),
        pytest.param(slow_source(20, first=1000), 0, id="begins far ahead"),
    ],
)
def test_nobody_waits_for_ever(slow: rt.Source, expected: int) -> None:
    for seed in range(RUNS):
        assert World(slow, DRIFT_MS).run(seed) == [*range(expected)], f"seed {seed}"


def test_an_idle_source_holds_nobody_back() -> None:
    """Its records come late then, if ever; without the timeout all of the fast source waits for them."""
    world = World(Paced(20, 300, 20), DRIFT_MS, idle_timeout="5ms")
    assert set(world.run(0)) <= {*range(20)}


def test_a_stretch_without_records_is_passed() -> None:
    """All sources are before it, and nobody may go beyond the drift: one record of each leads over it."""
    world = World(Paced(COUNT, 5, 1, gap_at=50), DRIFT_MS, Paced(COUNT, 0, 8, gap_at=50))
    assert world.run(1, faults=Faults.none()) == [*range(COUNT)]


def test_sources_that_are_never_told_how_far_they_may_go_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps_max = 20_000
    assert World(slow_source(), DRIFT_MS).run(0, steps_max=steps_max) == [*range(COUNT)]
    monkeypatch.setattr(DriftLimits, "on_progress", lambda self, subtask, progress: [])
    with pytest.raises(AssertionError, match=r"no progress|not finished"):
        World(slow_source(), DRIFT_MS).run(0, steps_max=steps_max)


def test_a_gate_that_holds_nobody_is_noticed(
    monkeypatch: pytest.MonkeyPatch, furthest_ahead: list[int]
) -> None:
    monkeypatch.setattr(DriftGate, "holds", lambda self, newest_ms: False)
    assert most_without_faults(0, DRIFT_MS, furthest_ahead) > AHEAD_MAX
