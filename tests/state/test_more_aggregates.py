"""Aggregates that bring their own accumulator, against plain Python: added, merged, stored and loaded."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import minirt as rt
from minirt.aggregates import Aggregate
from minirt.data.simple_columns import in_counts
from minirt.state.array_table import ArrayTable

ROWS = [
    {"k": f"k{n % 5}", "v": None if n % 7 == 3 else (n * 37) % 23, "t": (n * 11) % 13}
    for n in range(120)
]
Row = dict[str, Any]


def values(rows: list[Row]) -> list[int]:
    return [row["v"] for row in rows if row["v"] is not None]


def by_t(rows: list[Row], *, greatest: bool) -> list[Row]:
    return sorted(rows, key=lambda row: row["t"], reverse=greatest)


CASES: list[tuple[Aggregate, Callable[[list[Row]], Any]]] = [
    (rt.Variance("v", "x"), lambda rows: statistics.variance(values(rows))),
    (rt.StdDev("v", "x", ddof=0), lambda rows: statistics.pstdev(values(rows))),
    (rt.CountDistinct("v", "x"), lambda rows: len(set(values(rows)))),
    (rt.ArgMin("v", "x", by="t"), lambda rows: by_t(rows, greatest=False)[0]["v"]),
    (rt.ArgMax("v", "x", by="t"), lambda rows: by_t(rows, greatest=True)[0]["v"]),
    (rt.Collect("v", "x", limit=4), lambda rows: values(rows)[:4]),
    (rt.TopN("v", "x", n=3), lambda rows: sorted(values(rows), reverse=True)[:3]),
    (
        rt.TopN("v", "x", n=3, by="t", least=True),
        lambda rows: [row["v"] for row in by_t(rows, greatest=False)[:3]],
    ),
    (
        rt.Count("x", where=pc.field("v") > 10),
        lambda rows: sum(value > 10 for value in values(rows)),
    ),
]


def batch(rows: list[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows)


def table(aggregate: Aggregate) -> ArrayTable:
    return ArrayTable(["k"], [aggregate], "op")


def shown(held: ArrayTable) -> dict[str, Any]:
    results, _ = held.results(held.live())
    return {row["k"]: row["x"] for row in results.to_pylist()}


def check(held: ArrayTable, expected: Callable[[list[Row]], Any]) -> None:
    found = shown(held)
    assert len(found) == 5
    for key, value in found.items():
        wanted = expected([row for row in ROWS if row["k"] == key])
        if isinstance(wanted, float):
            assert math.isclose(value, wanted, rel_tol=1e-9)
        else:
            assert value == wanted


@pytest.mark.parametrize(("aggregate", "expected"), CASES, ids=lambda case: type(case).__name__)
def test_in_batches_stored_in_between(aggregate: Any, expected: Any) -> None:
    held = table(aggregate)
    for first in range(0, len(ROWS), 7):
        held.add(batch(ROWS[first : first + 7]), None)
        stored = held.snapshot()
        held = table(aggregate)
        held.restore(stored() if callable(stored) else stored, None, 8)  # type: ignore[arg-type]
    check(held, expected)


@pytest.mark.parametrize(("aggregate", "expected"), CASES, ids=lambda case: type(case).__name__)
def test_merged(aggregate: Any, expected: Any) -> None:
    early, late = table(aggregate), table(aggregate)
    slots = early.add(batch(ROWS[:60]), None)
    late.add(batch(ROWS[60:]), None)
    order = [late.list_keys(early.keys(np.array([slot])))[0] for slot in slots.tolist()]
    [into], [other] = early.contents[1], late.contents[1]  # type: ignore[index]
    into.merge(slots, other, np.array(order))
    check(early, expected)


NANOS = (pa.timestamp("ns"), pa.timestamp("ns", "UTC"), pa.duration("ns"))


def wrapped(values: pa.Array, shape: str) -> pa.Array:
    match shape:
        case "structs":
            return pa.StructArray.from_arrays([values], ["x"], mask=values.is_null())
        case "lists":
            return pa.ListArray.from_arrays(pa.array([*range(len(values) + 1)]), values)
    return values


@pytest.mark.parametrize("type", NANOS, ids=str)
@pytest.mark.parametrize("shape", ["values", "structs", "lists"])
def test_times_of_nanoseconds_keep_all_digits(type: pa.DataType, shape: str) -> None:
    """Each aggregate does with them what it does with whole numbers. Python has no such times."""
    numbers = pa.array([None if n % 7 == 3 else 2**60 + n * 37 % 23 for n in range(60)])
    keys, order = pa.array([n % 5 for n in range(60)]), pa.array([n * 11 % 13 for n in range(60)])
    aggregates = [
        *(rt.First("v"), rt.Last("v"), rt.Collect("v", limit=4), rt.CountDistinct("v", "distinct")),
        *(rt.ArgMin("v", by="t"), rt.ArgMax("t", "t_of_max", by="n"), rt.TopN("t", n=2, by="n")),
    ]
    found = []
    for column in (numbers, numbers.view(type)):
        held = ArrayTable(["k"], aggregates, "op")
        columns = [keys, wrapped(column, shape), column, order]
        records = pa.RecordBatch.from_arrays(columns, ["k", "v", "n", "t"])
        for first in range(0, 60, 13):
            held.add(records.slice(first, 13), None)
            stored = held.snapshot()
            held = ArrayTable(["k"], aggregates, "op")
            held.restore(stored() if callable(stored) else stored, None, 8)  # type: ignore[arg-type]
        results, _ = held.results(held.live())
        found.append([in_counts(column).to_pylist() for column in results.columns])
    assert found[0] == found[1]


LATE: list[tuple[Aggregate, list[Any], Any]] = [
    (rt.ArgMin("v", "x", by="t"), [(None, None), (None, 1), (5, 3)], None),
    (rt.ArgMax("v", "x", by="t"), [(5, None), (None, 1), (6, 0)], None),
    (rt.ArgMax("v", "x", by="t"), [(None, 1), (5, 3), (None, None)], 5),
    (rt.TopN("v", "x", n=2, by="t"), [(None, 3), (5.5, 2), (7.5, 1)], [None, 5.5]),
    (rt.TopN("v", "x", n=2, by="t"), [(None, None), (None, 3), ("a", 2)], [None, "a"]),
    (rt.First("v", "x"), [([], 0), ([1], 1)], []),
    (rt.First("v", "x"), [({"a": [None]}, 0), ({"a": ["b"]}, 1)], {"a": [None]}),
    (rt.Last("v", "x"), [([1], 0), (None, 1), ([], 2)], []),
    (rt.Last("v", "x"), [([{"a": None}], 0), ([{"a": 1}], 1)], [{"a": 1}]),
    (rt.Collect("v", "x", limit=9), [([], 0), ([[]], 1), ([[7]], 2)], [[], [[]], [[7]]]),
    (rt.CountDistinct("v", "x"), [([], 0), ([1], 1), ([], 2)], 2),
]
"""Values of `v` and `t`, a batch each, and what comes of them: types become known one after the other."""


@pytest.mark.parametrize(("aggregate", "pairs", "expected"), LATE)
@pytest.mark.parametrize("restored", [False, True])
def test_what_is_null_or_empty_at_first_gets_its_type_late(
    aggregate: Aggregate, pairs: list[Any], expected: Any, restored: bool
) -> None:
    held = table(aggregate)
    for v, t in pairs:
        held.add(batch([{"k": "a", "v": v, "t": t}]), None)
        if restored:
            stored = held.snapshot()
            held = table(aggregate)
            held.restore(stored() if callable(stored) else stored, None, 8)  # type: ignore[arg-type]
    assert shown(held) == {"a": expected}


@pytest.mark.parametrize("aggregate", [rt.ArgMin("v", by="t"), rt.TopN("v", by="t")])
def test_another_type_of_what_an_aggregate_goes_by_is_refused(aggregate: Aggregate) -> None:
    """What is held could not be stored in the type that the first batch had."""
    held = table(aggregate)
    held.add(batch([{"k": "a", "v": 1, "t": 3}]), None)
    with pytest.raises(
        rt.UserCodeError, match=r"column 't', by which '.*' goes, was of type int64"
    ):
        held.add(batch([{"k": "a", "v": 2, "t": "2.5"}]), None)


def test_sketches_are_near() -> None:
    pytest.importorskip("datasketches")
    rows = [{"k": "a", "v": (n * 7919) % 10_007} for n in range(20_000)]
    aggregates = [
        rt.CountDistinct("v", "distinct", approximate=True),
        rt.Quantile("v", "median"),
    ]
    held = ArrayTable(["k"], aggregates, "op")
    for first in range(0, len(rows), 5000):
        held.add(batch(rows[first : first + 5000]), None)
        stored = held.snapshot()
        held = ArrayTable(["k"], aggregates, "op")
        held.restore(stored() if callable(stored) else stored, None, 8)  # type: ignore[arg-type]
    [row] = held.results(held.live())[0].to_pylist()
    assert abs(row["distinct"] / 10_007 - 1) < 0.1
    assert abs(row["median"] / 5_003 - 1) < 0.1


@pytest.mark.parametrize("nested", [False, True])
def test_all_that_is_no_number_is_one_value(nested: bool) -> None:
    held = ArrayTable(["k"], [rt.CountDistinct("v", "x")], "op")
    for _ in range(2):
        values = [[float("nan")] if nested else float("nan"), [1.5] if nested else 1.5]
        held.add(batch([{"k": "a", "v": value} for value in values * 2]), None)
        stored = held.snapshot()
        held = ArrayTable(["k"], [rt.CountDistinct("v", "x")], "op")
        held.restore(stored() if callable(stored) else stored, None, 8)  # type: ignore[arg-type]
    assert shown(held)["a"] == 2


def test_slots_of_keys_that_are_gone_are_given_back() -> None:
    held = ArrayTable(["k"], [rt.Count("n"), rt.Collect("v")], "op")
    for round in range(20):
        rows = [{"k": f"{round}-{n}", "v": n} for n in range(2000)]
        slots = held.add(batch(rows), None)
        kept = held.drop(slots[: len(slots) - 1])
        assert len(held) == round + 1
        assert kept is None or len(kept) == held.used
        assert held.used < 5000
    again = held.add(batch([{"k": "0-0", "v": 7}]), None)
    results, _ = held.results(again)
    assert results.to_pylist() == [{"k": "0-0", "n": 1, "v_collect": [7]}]


@pytest.mark.parametrize("bad", [lambda: rt.TopN("v", n=0), lambda: rt.Quantile("v", q=2)])
def test_settings_that_cannot_be_are_refused(bad: Callable[[], Any]) -> None:
    with pytest.raises(rt.ConfigurationError, match="column 'v'"):
        bad()


@pytest.mark.parametrize(
    "aggregate",
    [
        rt.CountDistinct("v", "x", where=pc.field("v") > 100),
        rt.Collect("v", "x", where=pc.field("v") > 100),
        rt.TopN("v", "x", n=2, where=pc.field("v") > 100),
    ],
)
def test_a_batch_none_of_whose_records_counts(aggregate: Aggregate) -> None:
    held = table(aggregate)
    held.add(batch([{"k": "a", "v": 1}]), None)
    assert not shown(held)["a"]
    held.add(batch([{"k": "a", "v": 101}]), None)
    assert shown(held)["a"] in (1, [101])


def test_conditions_are_each_for_their_own_aggregate() -> None:
    above = [rt.Count(f"above_{limit}", where=pc.field("v") > limit) for limit in (1, 2, 1)]
    above[2] = rt.Sum("v", "sum", where=pc.field("v") > 1)
    held = ArrayTable(["k"], [*above, rt.Count("all")], "op")
    held.add(batch([{"k": "a", "v": value} for value in (1, 2, 3)]), None)
    results, _ = held.results(held.live())
    expected = {"k": "a", "above_1": 2, "above_2": 1, "sum": 5, "all": 3}
    assert results.to_pylist() == [expected]


def test_a_condition_without_a_value_is_named_by_its_aggregate() -> None:
    good = rt.Count("good", where=pc.field("v") > 1)
    bad = rt.Count("bad", where=pc.field("w") > 1)
    held = ArrayTable(["k"], [good, bad], "op")
    with pytest.raises(rt.UserCodeError, match="'bad', where: there is no column 'w'"):
        held.add(batch([{"k": "a", "v": 1}]), None)
