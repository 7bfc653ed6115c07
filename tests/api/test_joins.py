"""Joins and expiring state are refused where the job is written if they cannot work."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import minirt as rt

MARKS = rt.Watermarks.bounded("1s", timestamp="t")


def stream(env: rt.Environment, uid: str, watermarks: Any = MARKS, **columns: Any) -> rt.Stream:
    table = pa.table({"t": pa.array([1], pa.int64()), **columns})
    return env.source(rt.CollectionSource(table), uid=uid, watermarks=watermarks)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "without bounds of time"),
        ({"within": (0, 1), "window": rt.Tumbling("1s")}, "exclude each other"),
        ({"within": (0, 1), "ttl": "1d"}, "within and ttl exclude each other"),
        ({"ttl": "soon"}, "ttl"),
        ({"ttl": 0}, "ttl must be at least 1ms"),
        ({"ttl": "1d", "on": {"k": "name"}}, "no key of one side can equal"),
        ({"within": ("10min", "5min")}, "ends before it begins"),
        ({"within": "5min"}, "two durations"),
        ({"within": (0, "soon")}, "within"),
        ({"within": (0, 1), "how": "outer"}, "one of inner, left"),
        ({"within": (0, 1), "on": []}, "on is a column"),
        ({"within": (0, 1), "on": lambda row: row}, "on is a column"),
        ({"within": (0, 1), "on": "missing"}, "no column 'missing'"),
        ({"within": (0, 1), "on": {"k": "name"}}, "no key of one side can equal"),
        ({"within": (0, 1), "suffix": ""}, "suffix"),
        ({"window": rt.Tumbling("1s", allowed_lateness="1s")}, "allowed_lateness has no effect"),
        ({"window": rt.Tumbling("1d", timezone="Europe/Berlin")}, "leave timezone out"),
        ({"within": (0, 1), "columns": (["k"], ["k"])}, "columns says k"),
    ],
)
def test_joins_that_cannot_work_are_refused(options: Any, said: str) -> None:
    env = rt.Environment()
    left, right = stream(env, "l", k=[1]), stream(env, "r", k=[1], name=["x"])
    with pytest.raises(rt.ConfigurationError, match=said):
        left.join(right, **{"on": "k", **options})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"how": "full"}, "how is one of inner, left, not 'full'"),
        ({"tolerance": "soon"}, "tolerance"),
        ({"on": "missing"}, "no column 'missing'"),
        ({"on": {"k": "name"}}, "no key of one side can equal"),
    ],
)
def test_as_of_joins_that_cannot_work_are_refused(options: Any, said: str) -> None:
    env = rt.Environment()
    left, right = stream(env, "l", k=[1]), stream(env, "r", k=[1], name=["x"])
    with pytest.raises(rt.ConfigurationError, match=said):
        left.join_as_of(right, **{"on": "k", **options})


def test_no_record_is_late_for_a_join_with_a_time_to_live() -> None:
    env = rt.Environment()
    left, right = stream(env, "l", None, k=[1]), stream(env, "r", None, k=[1])
    joined = left.join(right, on="k", ttl="1d")
    with pytest.raises(rt.ConfigurationError, match="no record is late"):
        joined.side_output("late")


@pytest.mark.parametrize(
    ("n", "by", "rank", "said"),
    [
        (0, "t", "rank", "n must be a whole number above 0"),
        (True, "t", "rank", "n must be a whole number above 0"),
        (3, "missing", "rank", "no column 'missing'"),
        (3, [], "rank", "name at least one column"),
        (3, 7, "rank", "by is a column"),
        (3, [("t", "up")], "rank", "'descending' or 'ascending', not 'up'"),
        (
            3,
            "nested",
            "rank",
            "column 'nested' is of type struct<a: int64>, whose values have no order",
        ),
        (3, "t", "k", "two columns would be called 'k'"),
        (3, "t", "", "rank is the name of a column"),
    ],
)
def test_top_n_that_cannot_work_is_refused(n: Any, by: Any, rank: str, said: str) -> None:
    keyed = stream(rt.Environment(), "s", k=[1], nested=[{"a": 1}]).key_by("k")
    with pytest.raises(rt.ConfigurationError, match=said):
        keyed.top_n(n, by, rank=rank)


def test_top_n_needs_key_columns() -> None:
    keyed = stream(rt.Environment(), "s", k=[1]).key_by(lambda row: row["k"])
    with pytest.raises(rt.ConfigurationError, match="top_n goes by key columns"):
        keyed.top_n(3, "t")


def test_top_n_of_rows_without_the_column_fails_with_its_name() -> None:
    env = rt.Environment()
    keyed = env.source(rt.CollectionSource([{"k": 1, "t": 1}])).key_by("k")
    keyed.top_n(3, "price").sink(rt.DiscardSink())
    with pytest.raises(rt.JobFailedError, match="no column 'price', by which records are ranked"):
        env.execute(runner="inline")


def test_distinct_within_a_span_needs_event_time_and_a_span() -> None:
    env = rt.Environment()
    keyed = stream(env, "s", None, k=[1]).key_by("k")
    with pytest.raises(rt.ConfigurationError, match="within must be at least 1ms"):
        keyed.distinct(within=0)
    with pytest.raises(rt.ConfigurationError, match="no side outputs without within"):
        keyed.distinct(uid="all").side_output("late")
    env = rt.Environment()
    keyed = stream(env, "s", None, k=[1]).key_by("k")
    keyed.distinct(within="1s").sink(rt.DiscardSink())
    with pytest.raises(rt.ConfigurationError, match="needs event time"):
        env.plan()


def test_a_join_needs_event_time() -> None:
    env = rt.Environment()
    left, right = stream(env, "l", k=[1]), stream(env, "r", watermarks=None, k=[1])
    left.join(right, on="k", within=(0, 1)).sink(rt.DiscardSink())
    with pytest.raises(rt.ConfigurationError, match="needs event time"):
        env.plan()


def test_two_columns_of_one_name_are_refused() -> None:
    env = rt.Environment()
    left = stream(env, "l", k=[1], a_right=[1], a=[2])
    right = stream(env, "r", k=[1], a=[3])
    with pytest.raises(rt.ConfigurationError, match="'a_right'"):
        left.join(right, on="k", within=(0, 1))
    joined = left.join(right, on="k", within=(0, 1), suffix="_2")
    assert joined._schema is not None
    assert joined._schema.names == ["t", "k", "a_right", "a", "t_2", "a_2"]


def test_keys_of_different_types_fail_a_job_of_rows() -> None:
    env = rt.Environment()
    left, right = (
        env.source(rt.CollectionSource([{"k": key, "t": 1}]), uid=uid, watermarks=MARKS)
        for uid, key in (("l", 1), ("r", "1"))
    )
    left.join(right, on="k", within=(0, 1)).sink(rt.DiscardSink())
    with pytest.raises(rt.JobFailedError, match="no key of one side can equal one of the other"):
        env.execute(runner="inline")


class Recent(rt.KeyedProcess):
    last = rt.ValueState(ttl="1s", clock="event")

    def process(self, record: Any, ctx: rt.KeyedContext) -> Any:
        yield (record["t"], self.last.value)
        self.last.value = record["t"]


def test_state_that_expires_by_event_time_needs_it() -> None:
    env = rt.Environment()
    keyed = stream(env, "s", watermarks=None, k=[1]).key_by("k")
    keyed.process(Recent()).sink(rt.DiscardSink())
    with pytest.raises(rt.ConfigurationError, match="needs event time"):
        env.plan()


def test_state_expires_by_the_time_of_records() -> None:
    env, out = rt.Environment(), rt.CollectSink()
    records = [{"k": 1, "t": t} for t in (0, 999, 1998, 2998, 2000)]
    keyed = env.source(rt.CollectionSource(records), watermarks=MARKS).key_by("k")
    keyed.process(Recent()).sink(out)
    env.execute(runner="inline")
    assert out.rows == [(0, None), (999, 0), (1998, 999), (2998, None), (2000, 2998)]
