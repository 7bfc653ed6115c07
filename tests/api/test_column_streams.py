"""Streams of columns: what is refused when a job is written, and what comes out of it."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import minirt as rt

FLIGHTS = pa.table(
    {
        "origin": ["JFK", "LGA", None, "JFK"],
        "delay": [5, None, 20, 40],
        "day": pa.array([1, 2, 3, 4], pa.int8()),
    }
)
SCHEMA = FLIGHTS.schema


@pytest.fixture
def env():
    return rt.Environment(parallelism=2)


@pytest.fixture
def flights(env):
    return env.source(rt.CollectionSource(FLIGHTS, splits=2), uid="flights")


def run(env, stream):
    out = rt.CollectSink()
    stream.sink(out)
    env.execute(runner="inline")
    return out.rows


def refused(message):
    return pytest.raises(rt.ConfigurationError, match=message)


def late(record):
    return (record["delay"] or 0) > 10


def test_expressions_filter_and_compute(env, flights):
    stream = (
        flights.filter(pc.field("delay") >= 20)
        .with_column("hours", pc.field("delay") / 60.0)
        .select("origin", minutes=pc.field("hours") * 60)
    )
    rows = run(env, stream)
    assert sorted(rows, key=str) == [
        {"origin": "JFK", "minutes": 40.0},
        {"origin": None, "minutes": 20.0},
    ]


def test_functions_and_expressions_keep_the_same(env, flights):
    by_function = run(env, flights.filter(late))
    env = rt.Environment()
    again = env.source(rt.CollectionSource(FLIGHTS), uid="flights")
    assert by_function == run(env, again.filter(pc.field("delay") > 10))
    assert [record["delay"] for record in by_function] == [20, 40]


def test_columns_are_known_as_far_as_those_of_the_input_are(env, flights):
    stream = flights.filter(pc.field("day") > 1).with_column("late", pc.field("delay") > 10)
    stream = stream.select("late", "day", two=pc.scalar(2))
    stream.key_by("day").sink(rt.DiscardSink(), uid="out")
    nodes = env.graph().operators
    assert nodes["filter"].schema == SCHEMA
    assert nodes["select-late-day-two"].schema == pa.schema(
        {"late": pa.bool_(), "day": pa.int8(), "two": pa.int64()}
    )


def test_a_column_of_any_name_can_be_computed(env, flights):
    names = ("total delay", "self", "columns", "uid", "name", "parallelism", "chain")
    stream = flights.select("day", **dict.fromkeys(names, pc.field("day") + 1))
    assert [[*row] for row in run(env, stream)] == [["day", *names]] * len(FLIGHTS)
    named = flights.select(chain=pc.field("day"), name="days", uid="only-days", parallelism=1)
    named.sink(rt.DiscardSink(), uid="days-out")
    node = env.graph().operators["only-days"]
    assert (node.name, node.parallelism, node.schema.names) == ("days", 1, ["chain"])


@pytest.mark.parametrize(
    ("refuse", "message"),
    [
        (lambda s: s.filter(pc.field("dely") > 1), "filter: there is no column 'dely'; there are"),
        (lambda s: s.filter(pc.field("origin") > 1), r"filter: cannot compute \(origin > 1\)"),
        (lambda s: s.filter(pc.field("day")), "filter: day is of type int8; a condition is"),
        (lambda s: s.select("dey"), "select: dey.*: there is no column 'dey'"),
        (lambda s: s.select("day").select("delay"), "select: delay.*: there is no column 'delay'"),
        (lambda s: s.with_column("x", ~pc.field("day")), "with_column: x.*: cannot compute .*day"),
        (lambda s: s.select("day").key_by("origin"), "there is no column 'origin'"),
        (lambda s: s.select(half=pc.field("day") / 2.0).key_by("half"), "cannot be a key"),
    ],
)
def test_what_known_columns_cannot_give_is_refused(flights, refuse, message):
    with refused(message):
        refuse(flights)


@pytest.mark.parametrize(
    ("refuse", "message"),
    [
        (lambda s: s.select(), "select on .*flights.: name at least one column"),
        (lambda s: s.select(1), "columns are named by strings, not 1"),
        (lambda s: s.select("day", day=pc.scalar(1)), "column 'day' is named twice"),
        (lambda s: s.select(total=2), r"column 'total' is computed by an expression.*not by 2"),
        (lambda s: s.with_column("x", len), "with_column on .*flights.: column 'x' is computed by"),
    ],
)
def test_what_is_no_column_is_refused(env, refuse, message):
    numbers = env.source(rt.SequenceSource(3), uid="flights")
    with refused(message):
        refuse(numbers)


def test_rows_are_laid_out_as_columns_once(env):
    rows = env.source(rt.SequenceSource(4)).map(lambda n: {"n": n, "word": "x" * n})
    stream = rows.filter(pc.field("n") > 1).with_column("length", pc.utf8_length(pc.field("word")))
    assert [r["length"] for r in run(env, stream)] == [2, 3]


@pytest.mark.parametrize(
    ("records", "problem"),
    [
        ([1], "the int 1 is no dict"),
        ([{}], "a record without fields has no columns"),
        ([{"n": 0}, {"n": "one"}], "'n': it holds the int 0 and the str 'one'"),
        ([{"n": 0}, {"n": (1,)}], r"'n': \(1,\) is a tuple, which a column cannot"),
    ],
)
def test_rows_that_are_no_columns_fail_with_the_operator(env, records, problem):
    batch = env.source(rt.CollectionSource([None])).map_batches(lambda _: records)
    with pytest.raises(rt.JobFailedError, match="operator filter needs columns.*" + problem):
        run(env, batch.filter(pc.field("n") >= 0))


def test_columns_that_change_while_the_job_runs_are_named(env, flights):
    def forget(table):
        return table.select(["day"])

    stream = flights.map_batches(forget, "columns").select("delay")
    with pytest.raises(rt.JobFailedError, match=r"operator select: delay.* no column 'delay'"):
        run(env, stream)
    env = rt.Environment(parallelism=2)
    stream = env.source(rt.CollectionSource(FLIGHTS)).map_batches(forget, "columns")
    with pytest.raises(rt.JobFailedError, match="there is no column 'origin', key of the next"):
        run(env, stream.key_by("origin").map_batches(forget, "columns"))


def test_an_error_in_the_data_names_operator_and_expression(env):
    big = pa.table({"n": [2**62, 1]})
    stream = env.source(rt.CollectionSource(big)).with_column("m", pc.field("n") * 4)
    with pytest.raises(
        rt.JobFailedError, match=re.escape("with_column: m") + ".*multiply_checked.*overflow"
    ):
        run(env, stream)


@pytest.mark.parametrize("splits", [1, 3])
def test_rows_and_columns_meet_in_one_stream(env, splits):
    columns = env.source(rt.CollectionSource(FLIGHTS, splits=splits), uid="columns")
    rows = env.source(rt.CollectionSource(FLIGHTS.to_pylist(), splits=splits), uid="rows")
    counts = columns.union(rows).key_by("origin").map_batches(lambda t: t, "columns")
    assert sorted(map(str, run(env, counts))) == sorted(map(str, FLIGHTS.to_pylist() * 2))


def test_a_key_brings_rows_and_columns_to_the_same_state(env):
    class Count(rt.KeyedProcess):
        count = rt.ValueState(0)

        def process(self, record, ctx):
            self.count.value += 1
            yield (ctx.key, self.count.value)

    columns = env.source(rt.CollectionSource(FLIGHTS, splits=2), uid="columns")
    rows = env.source(rt.CollectionSource(FLIGHTS.to_pylist(), splits=2), uid="rows")
    found = run(env, columns.union(rows).key_by("origin", "day").process(Count(), uid="count"))
    keys = [(r["origin"], r["day"]) for r in FLIGHTS.to_pylist()]
    assert sorted(found, key=str) == sorted(((k, n) for k in keys for n in (1, 2)), key=str)


def test_no_records_at_all(env):
    empty = env.source(rt.CollectionSource(FLIGHTS.slice(0, 0)))
    keyed = empty.filter(pc.field("day") > 0).key_by("day").select("day")
    assert run(env, keyed.rebalance().select("day")) == []
