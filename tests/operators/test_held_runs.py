"""Operators that hold records in runs, against plain Python: many small runs, restored and rescaled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from minirt.data.hashing import U64
from minirt.errors import ConfigurationError
from minirt.graph.keys import KeySelector
from minirt.graph.operator_spec import OperatorSpec
from minirt.operators.common.join_bounds import Lasting, SameWindow, Within
from minirt.operators.common.join_columns import SideColumns
from minirt.operators.distinct import DistinctSpec
from minirt.operators.join import JoinSpec
from minirt.operators.join_as_of import AsOf, AsOfJoinSpec
from minirt.operators.join_ttl import TtlJoinSpec
from minirt.operators.top_n import TopNSpec
from minirt.state import runs as runs_module
from minirt.testing.contracts import Advance, Event, Given
from minirt.testing.contracts.operating import Result, Subtasks

KEYS = ("a", "b", "c", None)
SEEDS = range(8)


@pytest.fixture(autouse=True)
def _small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs_module, "RUN_ROWS_MAX", 8)
    monkeypatch.setattr(runs_module, "RUN_ROWS_MIN", 2)
    monkeypatch.setattr(runs_module, "CANDIDATES_MAX", 4)


def run(spec: OperatorSpec, events: list[Event], random: Random, inputs: int) -> list[Result]:
    """The results of all, with a restore here and there, often at another parallelism."""
    keys = (KeySelector(("k",)),) * inputs
    subtasks, results = Subtasks(spec, keys, random.randint(1, 3)), list[Result]()
    for place, event in enumerate(events):
        if random.random() < 0.15:
            stored = subtasks.snapshot(f"{place}")
            results += subtasks.results
            subtasks = Subtasks(spec, keys, random.randint(1, 3), restore=stored)
        subtasks.feed(event, columns=random.random() < 0.5)
    return [*results, *subtasks.end()]


def batches(random: Random, inputs: int) -> Iterator[Event]:
    """Records in disorder, none of which is late: their number is the time that they were made at."""
    number, watermark = 0, -1
    for _ in range(40):
        count = random.randint(1, 6)
        rows = [{"k": random.choice(KEYS), "n": number + i} for i in range(count)]
        times = [watermark + 1 + random.randint(0, 30) for _ in rows]
        for row, time in zip(rows, times, strict=True):
            row["t"] = time
        number += count
        yield Given(rows, times, random.randrange(inputs))
        if random.random() < 0.5:
            watermark += random.randint(1, 12)
            yield Advance(watermark)


def given_in(events: list[Event], input: int) -> list[dict[str, Any]]:
    return [r for e in events if isinstance(e, Given) and e.input == input for r in e.records]


@pytest.mark.parametrize("tolerance", [None, 9])
@pytest.mark.parametrize("how", ["inner", "left"])
def test_each_record_has_the_version_of_its_time(how: Any, tolerance: int | None) -> None:
    for seed in SEEDS:
        random = Random(seed)
        events = [_named(event) for event in batches(random, 2)]
        results = run(AsOfJoinSpec(AsOf(tolerance), how), events, random, 2)
        versions = defaultdict(list)
        for row in given_in(events, 1):
            if row["k"] is not None:
                versions[row["k"]].append((row["right_time"], row["right"]))
        wanted, found = {}, {}
        for row in given_in(events, 0):
            fitting = [
                one
                for one in versions[row["k"]]
                if one[0] <= row["left_time"]
                and (tolerance is None or one[0] >= row["left_time"] - tolerance)
            ]
            if fitting or how == "left":
                wanted[row["left"]] = max((time for time, _ in fitting), default=None)
        for tag, row, time in results:
            assert tag == ""
            assert row["left"] not in found, f"seed {seed}: twice"
            found[row["left"]] = row.get("right_time")
            assert time == row["left_time"]
            version = row.get("right_time"), row.get("right")
            assert version == (None, None) or version in versions[row["k"]]
        assert found == wanted, f"seed {seed}"


def _named(event: Event) -> Event:
    """The columns of both sides must differ, so that results tell which is which."""
    if isinstance(event, Advance):
        return event
    side = ("left", "right")[event.input]
    rows = [{"k": r["k"], side: r["n"], f"{side}_time": r["t"]} for r in event.records]
    return Given(rows, event.times, event.input)


def test_versions_are_freed_once_the_next_one_holds() -> None:
    subtasks = Subtasks(AsOfJoinSpec(AsOf(None), "inner"), (KeySelector(("k",)),) * 2)
    [operator] = subtasks.operators
    for time in range(200):
        subtasks.feed(Given([{"k": k, "v": time} for k in range(5)], [time] * 5, 1))
        subtasks.feed(Given([{"k": time % 5}], [time], 0))
        subtasks.feed(Advance(time))
        assert operator.ctx.metrics.waiting_records <= 40, f"at {time}"
    assert len(subtasks.end()) == 200
    assert operator.ctx.metrics.waiting_records >= 5, "the newest versions hold on"


@pytest.mark.parametrize("n", [1, 3])
def test_the_first_of_a_key_have_their_ranks(n: int) -> None:
    for seed in SEEDS:
        random = Random(seed)
        events = list(batches(random, 1))
        spec = TopNSpec(n, (("t", "descending"), ("n", "ascending")))
        last = {(row["k"], row["rank"]): row["n"] for _, row, _ in run(spec, events, random, 1)}
        rows = sorted(given_in(events, 0), key=lambda row: (-row["t"], row["n"]))
        wanted = {
            (key, rank): row["n"]
            for key in KEYS
            for rank, row in enumerate([row for row in rows if row["k"] == key][:n], start=1)
        }
        assert last == wanted, f"seed {seed}"


def test_of_equal_records_those_have_a_rank_that_came_first_also_before_a_restore() -> None:
    spec, keys = TopNSpec(2, (("v", "descending"),)), (KeySelector(("k",)),)
    subtasks, results = Subtasks(spec, keys), list[Result]()
    for number in range(20):
        subtasks.feed(Given([{"k": 1, "v": 5 + number // 19, "n": number}]))
        [operator] = subtasks.operators
        assert operator.ctx.metrics.waiting_records <= 4
        if number == 10:
            results += subtasks.results
            subtasks = Subtasks(spec, keys, restore=subtasks.snapshot(f"{number}"))
    ranks = [(row["rank"], row["n"]) for _, row, _ in [*results, *subtasks.end()]]
    assert ranks == [(1, 0), (2, 1), (1, 19), (2, 0)]


def test_results_of_a_key_are_a_span_apart_and_repetitions_are_near_them() -> None:
    for seed in SEEDS:
        random = Random(seed)
        events = list(batches(random, 1))
        results = run(DistinctSpec(15), events, random, 1)
        given = defaultdict(list)
        for tag, row, time in results:
            assert tag == ""
            given[row["k"]].append(time)
        for row in given_in(events, 0):
            assert any(abs(row["t"] - time) < 15 for time in given[row["k"]]), f"seed {seed}"
        for times in given.values():
            ordered = sorted(times)
            assert all(later - earlier >= 15 for earlier, later in pairwise(ordered))


def test_what_nothing_can_repeat_is_forgotten() -> None:
    subtasks = Subtasks(DistinctSpec(50), (KeySelector(("k",)),))
    [operator] = subtasks.operators
    for time in range(0, 5_000, 10):
        subtasks.feed(Given([{"k": time}, {"k": time}], [time, time]))
        subtasks.feed(Advance(time))
        while operator.due_at is not None:
            operator.on_due()
    assert len(operator.state.table("given")) < 10  # type: ignore[attr-defined]
    assert len(subtasks.results) == 500


@pytest.mark.parametrize("keys", [("text",), ("one", "other")])
def test_pairs_have_equal_keys_also_where_hashes_collide(
    keys: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_hash(side: SideColumns, table: pa.RecordBatch) -> U64:
        return np.full(len(table), 7, np.uint64)

    monkeypatch.setattr(SideColumns, "hashes", one_hash)
    random, wanted = Random(5), list[tuple[int, int]]()
    given: tuple[list[dict[str, Any]], list[dict[str, Any]]] = [], []
    subtasks = Subtasks(TtlJoinSpec(Lasting(60_000), "inner"), (KeySelector(keys),) * 2)
    for number in range(40):
        side, key = random.randrange(2), {"one": random.randrange(2), "other": random.randrange(2)}
        row = {**key, "text": str(key), ("left", "right")[side]: number}
        alike = [each for each in given[1 - side] if each["text"] == row["text"]]
        wanted += [
            (row.get("left", each.get("left")), row.get("right", each.get("right")))
            for each in alike
        ]
        given[side].append(row)
        subtasks.feed(Given([row], None, side))
    found = [(row["left"], row["right"]) for _, row, _ in subtasks.end()]
    assert sorted(found) == sorted(wanted)
    assert len(wanted) > 20


# A checkpoint that another operator has stored, or the same one with other options.

PLAIN: dict[str, OperatorSpec] = {
    "interval": JoinSpec(Within(0, 1000)),
    "window": JoinSpec(SameWindow(1000, 0)),
    "ttl": TtlJoinSpec(Lasting(60_000)),
    "as of": AsOfJoinSpec(AsOf(None)),
    "top": TopNSpec(2, (("n", "descending"),)),
    "distinct": DistinctSpec(),
    "distinct within": DistinctSpec(1000),
}
OTHERS: list[tuple[str, OperatorSpec]] = [
    ("interval", JoinSpec(Within(0, 2000))),
    ("interval", JoinSpec(Within(0, 1000), "left")),
    ("interval", JoinSpec(Within(0, 1000), "semi")),
    ("interval", JoinSpec(SameWindow(1000, 0))),
    ("interval", TtlJoinSpec(Lasting(60_000))),
    ("window", JoinSpec(SameWindow(1000, 500))),
    ("ttl", TtlJoinSpec(Lasting(60_000), "anti")),
    ("as of", AsOfJoinSpec(AsOf(1000))),
    ("as of", AsOfJoinSpec(AsOf(None), "left")),
    ("top", TopNSpec(3, (("n", "descending"),))),
    ("top", TopNSpec(2, (("n", "ascending"),))),
    ("top", TopNSpec(2, (("t", "descending"),))),
    ("distinct", DistinctSpec(1000)),
    ("distinct within", DistinctSpec()),
    ("distinct within", DistinctSpec(2000)),
]
"""Operators, and others that need records which those have let go, or know something else of them."""


def stored_by(spec: OperatorSpec) -> Any:
    keys = (KeySelector(("k",)),) * spec.inputs
    subtasks = Subtasks(spec, keys, 2)
    subtasks.feed(Given([{"k": "a", "n": 1, "t": 5}, {"k": "b", "n": 2, "t": 6}], [5, 6], 0))
    return keys, subtasks.snapshot("stored")


@pytest.mark.parametrize(("name", "other"), OTHERS)
def test_records_that_are_held_for_something_else_are_refused(
    name: str, other: OperatorSpec
) -> None:
    """They would be taken for all that there were: results would be missing, or wrong, in silence."""
    keys, stored = stored_by(PLAIN[name])
    with pytest.raises(ConfigurationError, match=r"the checkpoint holds records for .* new uid"):
        Subtasks(other, keys, 3, restore=stored)


@pytest.mark.parametrize("name", PLAIN)
def test_records_that_are_held_for_the_same_are_taken(name: str) -> None:
    keys, stored = stored_by(PLAIN[name])
    Subtasks(PLAIN[name], keys, 3, restore=stored)


def test_another_time_to_live_counts_from_a_restore_on() -> None:
    keys, stored = stored_by(PLAIN["ttl"])
    Subtasks(TtlJoinSpec(Lasting(1000)), keys, 3, restore=stored)
