"""What the plan says of records that change from rows to columns and back."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import minirt as rt


@pytest.fixture
def env():
    return rt.Environment()


@pytest.fixture
def columns(env):
    return env.source(rt.CollectionSource(pa.table({"k": [1], "t": [0]})), uid="columns")


@pytest.fixture
def rows(env):
    return env.source(rt.SequenceSource(3), uid="rows")


def crossings(env, stream):
    stream.sink(rt.DiscardSink(), uid="out")
    return [line.strip() for line in env.plan().splitlines() if " become " in line]


def test_operators_of_one_form_hand_it_on(env, columns):
    stream = columns.filter(pc.field("k") > 0).select("k").map_batches(lambda t: t, "columns")
    assert crossings(env, stream.key_by("k").select("k").rebalance()) == []


def test_rows_stay_rows(env, rows):
    assert crossings(env, rows.map(str).filter(len).map_batches(list)) == []


def test_each_change_is_told_once_with_its_reason(env, columns):
    stream = columns.map(dict).filter(bool).with_column("x", pc.scalar(1)).map_batches(list)
    assert crossings(env, stream) == [
        "columns become rows: map looks at each record",
        "rows become columns: with_column evaluates expressions on columns",
        "columns become rows: the function takes a list of records",
    ]


def test_functions_on_batches_take_what_they_ask_for(env, rows):
    stream = rows.map(lambda n: {"n": n}).map_batches(lambda t: t, "columns")
    assert crossings(env, stream) == ["rows become columns: the function takes columns"]


def test_a_key_function_sees_rows_but_columns_travel(env, columns):
    stream = columns.key_by(lambda record: record["k"]).map_batches(lambda t: t, "columns")
    told = ["columns become rows for the key alone: it is found by a function"]
    assert crossings(env, stream) == told


def test_of_a_union_only_what_is_not_columns_yet_becomes_columns(env, columns, rows):
    both = columns.union(rows.map(lambda n: {"k": n, "t": 0}))
    assert crossings(env, both.select("k")) == [
        "rows become columns: select evaluates expressions on columns"
    ]


def test_a_timestamp_function_needs_rows(env):
    source = rt.CollectionSource(pa.table({"t": [0]}))
    by_function = rt.Watermarks.monotonous(timestamp=lambda record: record["t"])
    stream = env.source(source, watermarks=by_function)
    assert crossings(env, stream) == [
        "columns become rows: a function takes the timestamp from each record"
    ]


def test_aggregates_take_columns_and_give_columns(env, rows):
    keyed = rows.map(lambda n: {"k": n}).key_by("k")
    stream = keyed.aggregate(rt.Count(), emit="end").map(str)
    assert crossings(env, stream) == [
        "rows become columns: aggregate computes on columns",
        "columns become rows: map looks at each record",
    ]


def test_what_is_late_for_its_window_comes_as_columns(env):
    watermarks = rt.Watermarks.monotonous(timestamp="t")
    source = rt.CollectionSource(pa.table({"k": [1], "t": [0]}))
    stream = env.source(source, uid="timed", watermarks=watermarks)
    windows = stream.key_by("k").window(rt.Tumbling("1s")).aggregate(rt.Count())
    windows.sink(rt.DiscardSink(), uid="windows-out")
    late = windows.side_output("late").map(str)
    assert crossings(env, late) == ["columns become rows: map looks at each record"]
