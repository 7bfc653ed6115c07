"""Joins of event time, against a look at all pairs, through crashes and rescales."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pytest

import minirt as rt
from minirt.state import runs as runs_module
from minirt.testing import TransactionalSink, simulate
from minirt.testing.conformance.sources import NumberedSource
from tests.campaigns import runs

Row = Mapping[str, Any]
SPLITS, COUNT = 3, 24
FIRST_MS, LAST_MS = -7, 11
WINDOW_MS = 16
MODES = ["aligned", "unaligned", rt.AlignedWithTimeout("2ms")]
HOWS = ["inner", "left", "right", "full", "semi", "anti"]
COLUMNS = (["k", "t", "a"], ["k", "t", "b"])
RUNS = runs(1)


def in_disorder(record: Any) -> int:
    _, split, number = record
    return 50 + 3 * number + split - (8 if number % 3 == 1 else 0)


def often_late(record: Any) -> int:
    _, split, number = record
    return 50 + 3 * number + split - (40 if number % 4 == 1 else 0)


def laid_out(record: Any, time: Callable[[Any], int], column: str) -> dict[str, Any]:
    name, split, number = record
    key = (split + number) % 4
    return {"k": key if key < 3 else None, "t": time(record), column: f"{name} {split} {number}"}


def near(left: Row, right: Row) -> bool:
    return FIRST_MS <= right["t"] - left["t"] <= LAST_MS


def same_window(left: Row, right: Row) -> bool:
    return bool(left["t"] // WINDOW_MS == right["t"] // WINDOW_MS)


def joined(how: str, lefts: list[Row], rights: list[Row], fit: Any) -> Counter[Any]:
    """What must come out: for each result the record of the left and that of the right."""
    pairs = [
        (left["a"], right["b"])
        for left in lefts
        for right in rights
        if left["k"] is not None and left["k"] == right["k"] and fit(left, right)
    ]
    with_partner = {left for left, _ in pairs}, {right for _, right in pairs}
    found: Counter[Any] = Counter(pairs if how not in ("semi", "anti") else ())
    if how in ("left", "full", "anti"):
        found.update((row["a"], None) for row in lefts if row["a"] not in with_partner[0])
    if how in ("right", "full"):
        found.update((None, row["b"]) for row in rights if row["b"] not in with_partner[1])
    if how == "semi":
        found.update((left, None) for left in with_partner[0])
    return found


class World:
    """The sinks of one job, in all its forms."""

    def __init__(self, how: str, times: Callable[[Any], int], bound_ms: int, **bounds: Any) -> None:
        self.out, self.late = TransactionalSink(), TransactionalSink()
        self._how, self._times, self._bounds = how, times, bounds
        self._marks = rt.Watermarks.bounded(bound_ms / 1000, timestamp=times, idle_timeout="50ms")

    def form(self, parallelism: int) -> rt.Environment:
        env = rt.Environment(parallelism=parallelism, max_parallelism=8)
        times = self._times
        sides = []
        for name, column in (("l", "a"), ("r", "b")):
            source = NumberedSource(name, SPLITS, COUNT if name == "l" else COUNT // 2)
            read = env.source(source, uid=name, watermarks=self._marks)
            # The binding of `column` must be that of this turn.
            sides.append(
                read.map(lambda r, column=column: laid_out(r, times, column), uid=f"{name}m")
            )
        how: Any = self._how
        out = sides[0].join(sides[1], on="k", how=how, uid="join", columns=COLUMNS, **self._bounds)
        out.sink(self.out, uid="out")
        out.side_output("late").sink(self.late, uid="late")
        return env

    def wrong(self, fit: Any) -> Counter[Any]:
        """What is too many (above 0) or lacks (below) of the results of all records that were not late."""
        late = {row.get("a") or row.get("b") for row in self.late.rows}
        lefts, rights = (
            [
                row
                for split in range(SPLITS)
                for number in range(count)
                if (row := laid_out((name, split, number), self._times, column))[column] not in late
            ]
            for name, column, count in (("l", "a", COUNT), ("r", "b", COUNT // 2))
        )
        wrong = Counter((row["a"], row.get("b")) for row in self.out.rows)
        wrong.subtract(joined(self._how, lefts, rights, fit))
        return Counter({pair: count for pair, count in wrong.items() if count})


def run(world: World, seed: int, mode: Any) -> None:
    widths = Random(seed).sample([1, 2, 3], 2)
    first, *rescaled = [world.form(width) for width in widths]
    checkpointing = rt.Checkpointing("simulated://", interval="20ms", mode=mode)
    simulate(first, seed=seed, checkpointing=checkpointing, rescaled=rescaled).check()


@pytest.mark.parametrize(
    ("how", "mode"),
    [
        pytest.param(how, mode, marks=[] if number % len(MODES) == place else [pytest.mark.soak])
        for number, how in enumerate(HOWS)
        for place, mode in enumerate(MODES)
    ],
    ids=str,
)
def test_interval_joins_find_what_a_look_at_all_pairs_finds(
    how: str, mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_module, "RUN_ROWS_MAX", 8)
    monkeypatch.setattr(runs_module, "RUN_ROWS_MIN", 2)
    monkeypatch.setattr(runs_module, "CANDIDATES_MAX", 4)
    for seed in range(RUNS):
        world = World(how, in_disorder, 12, within=(FIRST_MS / 1000, LAST_MS / 1000))
        run(world, seed, mode)
        assert not world.late.rows
        assert not world.wrong(near), f"seed {seed}"


@pytest.mark.parametrize("how", HOWS)
def test_late_records_go_aside_and_all_others_are_joined(how: str) -> None:
    for seed in range(RUNS):
        world = World(how, often_late, 2, within=(FIRST_MS / 1000, LAST_MS / 1000))
        run(world, seed, MODES[(seed + HOWS.index(how)) % 3])
        assert world.late.rows
        assert not world.wrong(near), f"seed {seed}"


@pytest.mark.parametrize("how", HOWS)
def test_window_joins_find_what_a_look_at_all_pairs_finds(how: str) -> None:
    for seed in range(RUNS):
        world = World(how, in_disorder, 12, window=rt.Tumbling(f"{WINDOW_MS}ms"))
        run(world, seed, MODES[(seed + HOWS.index(how)) % 3])
        assert not world.wrong(same_window), f"seed {seed}"
