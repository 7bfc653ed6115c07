"""Windows of keyed streams, from the API to the results."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

import minirt as rt

START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
RECORDS = [{"k": f"k{n % 3}", "v": n, "at": START + dt.timedelta(seconds=n)} for n in range(50)]


class Known(rt.CollectionSource):
    def schema(self) -> pa.Schema:
        time = pa.timestamp("us", "UTC")
        return pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", time)])


def keyed(env: rt.Environment, records: list[Any] = RECORDS, bound: str = "0s") -> rt.KeyedStream:
    watermarks = rt.Watermarks.bounded(bound, timestamp="at")
    return env.source(Known(records), watermarks=watermarks).key_by("k")


def test_results_of_each_key_and_window() -> None:
    env = rt.Environment(parallelism=2)
    sink = rt.CollectSink()
    results = keyed(env).window(rt.Tumbling("20s")).aggregate(rt.Sum("v"), rt.Count())
    results.sink(sink)
    env.execute(runner="inline")
    rows = {(row["k"], row["window_start"]): row for row in sink.rows}
    assert len(rows) == len(sink.rows) == 9
    second = START + dt.timedelta(seconds=20)
    assert rows["k1", second] == {
        "k": "k1",
        "window_start": second,
        "window_end": second + dt.timedelta(seconds=20),
        "v_sum": sum(n for n in range(20, 40) if n % 3 == 1),
        "count": 6,
    }


def test_late_records_can_be_looked_at() -> None:
    env = rt.Environment()
    env_records = [RECORDS[0], RECORDS[45], *RECORDS[1:3]]
    slowly = rt.Options(limits=rt.Limits(frame_records=1, watermark_interval_s=0))
    results = keyed(env, env_records).window(rt.Tumbling("10s")).aggregate(rt.Count())
    late, sink = rt.CollectSink(), rt.CollectSink()
    results.sink(sink, uid="on-time")
    results.side_output("late").sink(late, uid="late")
    env.execute(runner="inline", options=slowly)
    counted = sum(row["count"] for row in sink.rows)
    assert counted + len(late.rows) == len(env_records)
    assert all(record in RECORDS[1:3] for record in late.rows)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rt.Tumbling(0), "at least 1ms, got 0"),
        (lambda: rt.Tumbling("100001d"), "at most 100000d, got '100001d'"),
        (lambda: rt.Tumbling("-1s"), "size of a window.*'-1s'"),
        (lambda: rt.Tumbling("10s", offset="10s"), "less than their size"),
        (lambda: rt.Tumbling("10s", allowed_lateness="soon"), "allowed_lateness.*'soon'"),
        (
            lambda: keyed(rt.Environment()).window("10s"),
            "expected Window, got '10s'; write Tumbling",
        ),
    ],
)
def test_windows_that_cannot_be_are_refused(make: Any, message: str) -> None:
    with pytest.raises(rt.ConfigurationError, match=message):
        make()


@pytest.mark.parametrize(
    ("aggregates", "message"),
    [
        ((), "at least one aggregate"),
        ((rt.Sum("x"),), "no column 'x'"),
        ((rt.Sum("v", "window_end"),), "'window_end'"),
        ((rt.Sum("k"),), "'k'.*string"),
    ],
)
def test_aggregates_that_do_not_fit_are_refused(aggregates: Any, message: str) -> None:
    windows = keyed(rt.Environment()).window(rt.Tumbling("10s"))
    with pytest.raises(rt.ConfigurationError, match=message):
        windows.aggregate(*aggregates)


def test_a_side_output_that_windows_do_not_have_is_refused() -> None:
    results = keyed(rt.Environment()).window(rt.Tumbling("10s")).aggregate(rt.Count())
    with pytest.raises(rt.ConfigurationError, match="one side output, 'late', and no 'odd'"):
        results.side_output("odd")


def test_windows_without_event_time_are_refused_before_anything_runs() -> None:
    env = rt.Environment()
    numbers = env.source(rt.CollectionSource(RECORDS), uid="numbers").map(lambda record: record)
    results = numbers.key_by("k").window(rt.Tumbling("10s")).aggregate(rt.Count())
    results.sink(rt.DiscardSink())
    with pytest.raises(rt.ConfigurationError, match=r"numbers\) gives none.*watermarks="):
        env.execute(runner="inline")


def test_the_schema_of_the_results_is_known() -> None:
    results = keyed(rt.Environment()).window(rt.Tumbling("10s")).aggregate(rt.Mean("v"))
    assert results._schema == pa.schema(
        [
            ("k", pa.string()),
            ("window_start", pa.timestamp("ms", "UTC")),
            ("window_end", pa.timestamp("ms", "UTC")),
            ("v_mean", pa.float64()),
        ]
    )


def test_a_column_that_is_missing_is_told_with_the_columns_of_the_user() -> None:
    env = rt.Environment()
    marks = rt.Watermarks.bounded("1s", timestamp="at")
    rows = env.source(rt.CollectionSource([{"k": 1, "at": 1000}]), watermarks=marks)
    sessions = rows.key_by("k").window(rt.Session("1s"))
    sessions.aggregate(rt.Sum("nope"), uid="sessions").sink(rt.DiscardSink())
    wanted = r"\(uid sessions\): a batch has no column 'nope', only k, at$"
    with pytest.raises(rt.JobFailedError, match=wanted):
        env.execute(runner="inline")
