"""Columns that a job did not expect: refused with operator and column, or what the guide says."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import minirt as rt
from minirt.io.base import Offset, Source, Split, SplitReader

MARKS = rt.Watermarks.bounded("1s", timestamp="t")
Build = Callable[[Any], Any]


class Batches(Source):
    """Gives out what it was given, one after the other."""

    def __init__(self, *batches: Any) -> None:
        self.batches = batches

    def plan_splits(self, parallelism: int) -> list[Split]:
        return [Split("all", {})]

    def open_split(self, split: Split, offset: Offset) -> SplitReader:
        return _Reader(self.batches, offset)


class _Reader(SplitReader):
    def __init__(self, batches: Any, offset: Offset) -> None:
        self._batches = batches
        self.offset: int = offset or 0

    def read(self) -> Any:
        if self.offset == len(self._batches):
            return None
        self.offset += 1
        return self._batches[self.offset - 1]


def run(build: Build, *batches: Any, watermarks: Any = None, parallelism: int = 2) -> list[Any]:
    env, out = rt.Environment(parallelism=parallelism), rt.CollectSink()
    build(env.source(Batches(*batches), uid="src", watermarks=watermarks)).sink(out)
    env.execute(runner="inline", restart=rt.Restart.none())
    return out.rows


def columns(**values: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(values)


def repeated(*names: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([1])] * len(names), list(names))


def total(stream: Any) -> Any:
    return stream.key_by("k").aggregate(rt.Sum("v"), emit="end", uid="total")


def windows(*aggregates: rt.Aggregate) -> Build:
    aggregates = aggregates or (rt.Count(),)
    return lambda s: s.key_by("k").window(rt.Tumbling("1s")).aggregate(*aggregates, uid="win")


class NoNumbers(rt.Fold):
    def of(self, values: pa.Array) -> Any:
        return "x"

    def merge(self, earlier: Any, later: Any) -> Any:
        return later


def fold(stream: Any) -> Any:
    return stream.key_by("k").aggregate(NoNumbers("v", "out", pa.int64()), uid="total")


GOOD = columns(k=[1, 2], v=[1, 2])
TOTAL, WIN, SRC = "operator aggregate (uid total)", "operator window (uid win)", "Batches (uid src)"

REFUSED: dict[str, tuple[Build, list[Any], str]] = {
    "a value column was never there": (
        total,
        [columns(k=[1]), GOOD],
        f"{TOTAL}: a batch has no column 'v', only k",
    ),
    "a key column is gone": (
        total,
        [GOOD, columns(v=[1])],
        f"operator {SRC}: there is no column 'k', key of the next operator; it emits v",
    ),
    "values of another type": (
        total,
        [columns(k=[1], v=[2**53 + 1]), columns(k=[1], v=[0.5])],
        f"{TOTAL}: 'v_sum': column 'v': the value 9007199254740993 of type int64 cannot become double "
        "without a change",
    ),
    "values that have no sum": (
        total,
        [GOOD, columns(k=[1], v=["x"])],
        f"{TOTAL}: Sum of column 'v': it is of type string, but Sum is for whole numbers and "
        "floats; cast others to float64",
    ),
    "sums of decimals": (
        total,
        [columns(k=[1], v=[Decimal("1.5")])],
        f"{TOTAL}: Sum of column 'v': it is of type decimal128(2, 1), but Sum is for whole numbers and "
        "floats; cast others to float64",
    ),
    "a number that no column holds": (
        lambda s: total(s.map(lambda row: {**row, "v": 1 << 70})),
        [GOOD],
        f"{TOTAL} needs columns, but its records cannot be laid out as such: column 'v': Python int too "
        "large",
    ),
    "keys of another type": (
        total,
        [GOOD, columns(k=["1"], v=[1])],
        f"{TOTAL}: key column 'k' was of type int64 so far and is of type string in a batch",
    ),
    "keys of floats": (
        total,
        [columns(k=[0.0, -0.0, float("nan")], v=[1, 2, 3])],
        f"operator {SRC}: column 'k', key of the next operator: columns of type double cannot be keys",
    ),
    "keys of decimals": (
        total,
        [columns(k=[Decimal("1.5")], v=[1])],
        f"operator {SRC}: column 'k', key of the next operator: columns of type decimal128(2, 1)",
    ),
    "nested keys": (
        total,
        [columns(k=[[1]], v=[1])],
        f"operator {SRC}: column 'k', key of the next operator: columns of type list<",
    ),
    "two columns of one name": (
        total,
        [repeated("k", "v", "v")],
        f"source {SRC}: there is more than one column 'v' in a batch of k, v, v",
    ),
    "two columns of one name from a function": (
        lambda s: s.map_batches(lambda table: repeated("a", "a"), "columns"),
        [GOOD],
        "operator map_batches: map_batches: there is more than one column 'a' in a batch of a, a",
    ),
    "a table": (
        lambda s: s,
        [pa.table({"k": [1]})],
        f"source {SRC}: a split is read as lists or as pyarrow.RecordBatches, not as Table",
    ),
    "no batch from a function": (
        lambda s: s.map_batches(lambda table: None, "columns"),
        [GOOD],
        "operator map_batches: map_batches must return a pyarrow.RecordBatch, not NoneType",
    ),
    "a function of columns that changes its mind": (
        lambda s: total(
            s.map_batches(lambda t: t if len(t) == 2 else t.rename_columns(["a", "b"]), "columns")
        ),
        [GOOD, columns(k=[1], v=[1])],
        "operator map_batches: there is no column 'k', key of the next operator; it emits a, b",
    ),
    "results of another type than said": (
        fold,
        [GOOD],
        "'out' has results that are not of type int64",
    ),
    "an expression that makes fewer values": (
        lambda s: s.with_column("y", pc.unique(pc.field("v"))),
        [GOOD],
        "operator with_column: y (uid with_column-y): cannot compute unique(v)",
    ),
    "an expression on another type": (
        lambda s: s.filter(pc.field("v") > 1),
        [GOOD, columns(k=[1], v=["x"])],
        "operator filter: cannot compute (v > 1)",
    ),
    "a condition that is no bool": (
        lambda s: s.filter(pc.field("v") + 1),
        [GOOD],
        "operator filter: add_checked(v, 1) is of type int64; a condition is of type bool",
    ),
    "an unknown column": (
        lambda s: s.with_column("y", pc.field("z") * 2),
        [GOOD],
        "operator with_column: y (uid with_column-y): there is no column 'z'; there are k, v",
    ),
    "an overflow in an expression": (
        lambda s: s.select(y=pc.field("v") * 2**62),
        [columns(k=[1], v=[2**40])],
        "cannot compute multiply_checked(v, 4611686018427387904): overflow",
    ),
    "a time that Python does not know": (
        lambda s: s.map(lambda record: record),
        [columns(t=pa.array([2**60], pa.timestamp("s")))],
        "operator map: column 't' of type timestamp[s] holds a value that Python has no object for",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_job_cannot_use_is_named(case: str) -> None:
    build, batches, message = REFUSED[case]
    with pytest.raises(rt.JobFailedError, match=re.escape(message)):
        run(build, *batches)


WRONG_TIMES: dict[str, tuple[list[Any], str]] = {
    "the column is gone": (
        [columns(k=[1], t=[1]), columns(k=[1])],
        f"source {SRC}: the event time is in column 't', but there are k",
    ),
    "another type": (
        [columns(k=[1], t=[1]), columns(k=[1], t=["x"])],
        f"source {SRC}: column 't' of type string cannot be the event time",
    ),
    "a null": (
        [columns(k=[1, 1], t=[1, None])],
        f"source {SRC}: column 't' is the event time but holds 1 nulls",
    ),
    "nanoseconds for milliseconds": (
        [columns(k=[1], t=[1_700_000_000_000_000_000])],
        f"source {SRC}: column 't' gives an event time of 1700000000000000000 milliseconds",
    ),
    "too early": (
        [columns(k=[1, 1], t=[5, -(2**63)])],
        f"source {SRC}: column 't' gives an event time of -9223372036854775808 milliseconds",
    ),
    "rows beyond 64 bits": (
        [[{"k": 1, "t": 2**70}]],
        f"source {SRC}: column 't' gives an event time of {2**70} milliseconds",
    ),
    "a row without the field": (
        [[{"k": 1}]],
        f"source {SRC}: the event time is in column 't', which is missing in {{'k': 1}}",
    ),
    "a row without a time": (
        [[{"k": 1, "t": None}]],
        f"source {SRC}: column 't' is the event time: a timestamp is an int of milliseconds",
    ),
    "keys of another type in another window": (
        [columns(k=[1], t=[1]), columns(k=["x"], t=[5000])],
        f"{WIN}: key column 'k' was of type int64 so far and is of type string",
    ),
}


@pytest.mark.parametrize("case", WRONG_TIMES)
def test_what_is_no_event_time_is_named(case: str) -> None:
    batches, message = WRONG_TIMES[case]
    with pytest.raises(rt.JobFailedError, match=re.escape(message)):
        run(windows(), *batches, watermarks=MARKS)


def test_values_of_all_windows_are_of_one_type() -> None:
    batches = columns(k=[1], v=[1], t=[1]), columns(k=[1], v=["a"], t=[5000])
    with pytest.raises(rt.JobFailedError, match=r"column 'v': its 'v_max' was of type int64"):
        run(windows(rt.Max("v")), *batches, watermarks=MARKS)


KEYS: dict[str, tuple[list[pa.Array], dict[Any, int]]] = {
    "nulls": ([pa.array([1, None, None])], {1: 1, None: 5}),
    "dictionaries and plain": (
        [pa.array(["a", "b", "a"]).dictionary_encode(), pa.array(["a", "b", "c"])],
        {"a": 5, "b": 4, "c": 3},
    ),
    "large strings": ([pa.array(["a", "b", "a"], pa.large_string())], {"a": 4, "b": 2}),
    "views": ([pa.array(["a", None, "a"], pa.string_view())], {"a": 4, None: 2}),
    "bytes of one length": ([pa.array([b"a", b"b", b"a"], pa.binary(1))], {b"a": 4, b"b": 2}),
    "bools": ([pa.array([True, None, True])], {True: 4, None: 2}),
    "date64 within a day": (
        [pa.array([86_400_000, 86_400_001, -1]).view(pa.date64())],
        {dt.date(1970, 1, 2): 3, dt.date(1969, 12, 31): 3},
    ),
    "seconds": (
        [pa.array([1, 2, 1], pa.timestamp("s"))],
        {dt.datetime(1970, 1, 1, 0, 0, 1): 4, dt.datetime(1970, 1, 1, 0, 0, 2): 2},
    ),
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_every_kind(kind: str) -> None:
    arrays, totals = KEYS[kind]
    rows = run(total, *(columns(k=array, v=[1, 2, 3]) for array in arrays))
    assert {row["k"]: row["v_sum"] for row in rows} == totals
    assert len(rows) == len(totals)


def test_times_of_one_column_may_come_in_several_units() -> None:
    units = [pa.array([1], pa.timestamp("s")), pa.array([1000], pa.timestamp("ms", "Asia/Kolkata"))]
    [row] = run(windows(), *(columns(k=[1], t=array) for array in units), watermarks=MARKS)
    assert (row["window_start"].second, row["count"]) == (1, 2)


def test_nanoseconds_are_rounded_down_where_columns_become_rows() -> None:
    batch = columns(
        i=[0, 1, 2],
        t=pa.array([1_001, -1, None], pa.timestamp("ns", "America/New_York")),
        d=pa.array([1_999, None, -1], pa.duration("ns")),
    )
    rows = run(lambda s: s.map(lambda record: record).rebalance(), batch)
    rows.sort(key=lambda row: row["i"])
    epoch, step = dt.datetime(1970, 1, 1, tzinfo=dt.UTC), dt.timedelta(microseconds=1)
    assert [row["t"] for row in rows] == [epoch + step, epoch - step, None]
    assert [row["d"] for row in rows] == [step, None, -step]


def test_sums_of_whole_numbers_never_wrap_around() -> None:
    with pytest.raises(rt.JobFailedError, match=r"sum of column 'v' for the key \{'k': 1\}.*int64"):
        run(total, columns(k=[1, 1], v=[2**62, 2**62]))


@pytest.mark.parametrize("empty", [GOOD.slice(0, 0), columns(x=pa.array([], pa.string()))])
def test_batches_without_records_are_passed_over_whatever_their_columns(empty: Any) -> None:
    rows = run(total, empty, GOOD, empty, columns(k=[1], v=[5], more=["x"]))
    assert {row["k"]: row["v_sum"] for row in rows} == {1: 6, 2: 2}
