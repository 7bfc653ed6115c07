"""Aggregates of keyed streams, from the API to the results."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import minirt as rt

RECORDS = [{"k": f"k{n % 7}", "v": n, "t": 1000 * n} for n in range(500)]


def run(*aggregates: rt.Aggregate, emit: Any = "updates", **options: Any) -> list[dict[str, Any]]:
    env = rt.Environment(parallelism=2)
    sink = rt.CollectSink()
    (
        env.source(
            rt.CollectionSource(RECORDS), watermarks=rt.Watermarks.bounded("1s", timestamp="t")
        )
        .key_by("k")
        .aggregate(*aggregates, emit=emit)
        .sink(sink)
    )
    env.execute(runner="inline", **options)
    return sink.rows


def last_of_each(results: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {result["k"]: result for result in results}


@pytest.mark.parametrize("emit", ["updates", "1ms", "end"])
def test_results_of_each_key(emit: str) -> None:
    results = run(rt.Sum("v"), rt.Count("n"), rt.Max("v", "greatest"), emit=emit)
    values: dict[str, list[int]] = defaultdict(list)
    for record in RECORDS:
        values[record["k"]].append(record["v"])
    assert last_of_each(results) == {
        key: {"k": key, "v_sum": sum(vs), "n": len(vs), "greatest": max(vs)}
        for key, vs in values.items()
    }
    if emit == "end":
        assert len(results) == len(values)


def test_updates_show_every_change_of_a_batch_once() -> None:
    """Counts only grow, and no result is given out twice."""
    counts: dict[str, list[int]] = defaultdict(list)
    for result in run(rt.Count("n")):
        counts[result["k"]].append(result["n"])
    for seen in counts.values():
        assert seen == sorted(set(seen))


def test_state_survives_at_another_parallelism(tmp_path: Path) -> None:
    storage = rt.Checkpointing(tmp_path, interval="10min")
    first = last_of_each(run(rt.Sum("v"), rt.Mean("v"), checkpointing=storage))
    env = rt.Environment(parallelism=3)
    sink = rt.CollectSink()
    more = [{"k": f"k{n % 7}", "v": 1, "t": 10**6 + n} for n in range(7)]
    source = rt.CollectionSource(more)
    (
        env.source(source, uid="more", watermarks=rt.Watermarks.bounded("1s", timestamp="t"))
        .key_by("k")
        .aggregate(rt.Sum("v"), rt.Mean("v"))
        .sink(sink)
    )
    env.execute(
        runner="inline", checkpointing=storage, restore="latest", allow_non_restored_state=True
    )
    after = last_of_each(sink.rows)
    assert {key: row["v_sum"] for key, row in after.items()} == {
        key: row["v_sum"] + 1 for key, row in first.items()
    }


def test_a_batch_of_another_type_is_refused_with_its_column() -> None:
    env = rt.Environment()
    records = [{"k": 1, "v": 1}, {"k": 2, "v": "x"}]
    (
        env.source(rt.CollectionSource(records))
        .map_batches(list)
        .map(lambda record: record)
        .key_by("k")
        .aggregate(rt.Sum("v"))
        .sink(rt.CollectSink())
    )
    with pytest.raises(rt.JobFailedError, match=r"operator aggregate.*column .v"):
        env.execute(runner="inline")


@pytest.mark.parametrize(
    ("aggregates", "emit", "message"),
    [
        ((), "updates", "at least one aggregate"),
        ((rt.Sum("v"), rt.Sum("v")), "updates", "'v_sum'"),
        ((rt.Count("k"),), "updates", "'k'"),
        ((rt.Sum("w"),), "updates", "no column 'w'"),
        ((rt.Sum("k"),), "updates", "'k'.*string"),
        ((rt.Sum("v"),), "sometimes", "emit"),
        ((rt.Sum("v"),), 0, "at least 1ms"),
        (("v",), "updates", "expected Aggregate"),
    ],
)
def test_what_cannot_work_is_refused(aggregates: Any, emit: Any, message: str) -> None:
    class Known(rt.CollectionSource):
        def schema(self) -> pa.Schema:
            return pa.schema([("k", pa.string()), ("v", pa.int64())])

    env = rt.Environment()
    stream = env.source(Known(RECORDS)).key_by("k")
    with pytest.raises(rt.ConfigurationError, match=message):
        stream.aggregate(*aggregates, emit=emit)


def test_a_key_function_is_refused() -> None:
    env = rt.Environment()
    stream = env.source(rt.CollectionSource(RECORDS)).key_by(lambda record: record["k"])
    with pytest.raises(rt.ConfigurationError, match="key columns"):
        stream.aggregate(rt.Count())


def test_a_result_has_the_time_of_the_newest_record_in_it() -> None:
    class Times(rt.Process):
        def process(self, record: Any, ctx: rt.ProcessContext) -> Any:
            yield record["k"], record["n"], ctx.timestamp

    env = rt.Environment()
    records = [{"k": "a", "t": 30}, {"k": "b", "t": 20}, {"k": "a", "t": 10}]
    watermarks = rt.Watermarks.bounded("1s", timestamp="t")
    totals = env.source(rt.CollectionSource(records), watermarks=watermarks).key_by("k")
    sink = rt.CollectSink()
    totals.aggregate(rt.Count("n"), emit="end").process(Times()).sink(sink)
    env.execute(runner="inline")
    assert sorted(sink.rows) == [("a", 2, 30), ("b", 1, 20)]


def test_results_at_the_end_are_on_time_for_windows() -> None:
    env = rt.Environment()
    watermarks = rt.Watermarks.bounded("1s", timestamp="t")
    totals = (
        env.source(rt.CollectionSource(RECORDS), watermarks=watermarks)
        .key_by("k")
        .aggregate(rt.Count("n"), emit="end")
    )
    windows = totals.key_by("k").window(rt.Tumbling("1d")).aggregate(rt.Sum("n", "n"))
    sink = rt.CollectSink()
    windows.sink(sink)
    env.execute(runner="inline")
    assert {row["k"]: row["n"] for row in sink.rows} == dict(Counter(r["k"] for r in RECORDS))


def test_columns_of_nothing_but_nulls_fit_everywhere() -> None:
    """Row by row, so that each batch has a type of its own."""
    env = rt.Environment()
    records = [("a", None), (None, None), (None, 2), ("a", 5), ("b", None), (None, 1)]
    sink = rt.CollectSink()
    (
        env.source(rt.CollectionSource([{"k": k, "v": v} for k, v in records]))
        .key_by("k")
        .process(One())
        .key_by("k")
        .aggregate(rt.Sum("v"), rt.Min("v"), rt.Mean("v"), rt.Last("v"), rt.Count("n", "v"))
        .sink(sink)
    )
    env.execute(runner="inline", options=rt.Options(limits=rt.Limits(frame_records=1)))
    last = {row["k"]: row for row in sink.rows}
    assert [last[k]["v_sum"] for k in ("a", "b", None)] == [5, None, 3]
    assert [last[k]["v_min"] for k in ("a", "b", None)] == [5, None, 1]
    assert [last[k]["v_mean"] for k in ("a", "b", None)] == [5, None, 1.5]
    assert [last[k]["v_last"] for k in ("a", "b", None)] == [5, None, 1]
    assert [last[k]["n"] for k in ("a", "b", None)] == [1, 0, 2]


class One(rt.KeyedProcess):
    def process(self, record: Any, ctx: rt.KeyedContext) -> Any:
        yield record


class Failing(rt.Fold):
    def of(self, values: pa.Array) -> Any:
        raise ValueError("cannot fold")

    def merge(self, earlier: Any, later: Any) -> Any:
        return later


def test_what_fails_in_a_fold_names_the_operator() -> None:
    with pytest.raises(rt.JobFailedError, match=r"operator aggregate failed on[\s\S]*cannot fold"):
        run(Failing("v", "x", pa.int64()))


def test_state_of_other_aggregates_is_refused(tmp_path: Path) -> None:
    storage = rt.Checkpointing(tmp_path, interval="10min")
    run(rt.Sum("v", "x"), checkpointing=storage)
    with pytest.raises(rt.ConfigurationError, match=r"other keys or aggregates: .*Sum\(v\)"):
        run(
            rt.Max("v", "x"),
            checkpointing=storage,
            restore="latest",
            restart=rt.Restart.none(),
        )


def test_the_plan_says_when_results_come() -> None:
    env = rt.Environment()
    keyed = env.source(rt.CollectionSource(RECORDS)).key_by("k")
    keyed.aggregate(rt.Count(), emit="2s").sink(rt.DiscardSink())
    assert "aggregate, emits every 2 s" in env.plan()
    assert "rows become columns: aggregate computes on columns" in env.plan()


LARGE = 2**62
BEYOND = [{"k": key, "v": LARGE, "t": 0} for key in ("a", "b", "b")]


def sum_of_large(overflow: Any, folder: Path, records: list[Any], **options: Any) -> list[Any]:
    env, sink = rt.Environment(), rt.CollectSink()
    sales = env.source(rt.CollectionSource(records), uid="sales").key_by("k")
    totals = sales.aggregate(rt.Sum("v", overflow=overflow), emit="end", uid="totals")
    totals.sink(sink, uid="out")
    env.execute(
        runner="inline", checkpointing=rt.Checkpointing(str(folder), interval="1ms"), **options
    )
    return sink.rows


def test_a_sum_beyond_its_range_names_operator_column_and_key(tmp_path: Path) -> None:
    with pytest.raises(rt.MinirtError) as error:
        sum_of_large("error", tmp_path, BEYOND, restart=rt.Restart.none())
    for part in ("totals", "'v'", "'k': 'b'", "int64", "overflow='widen'"):
        assert part in str(error.value)


def test_a_sum_that_was_an_error_goes_on_as_a_decimal(tmp_path: Path) -> None:
    assert sum_of_large("error", tmp_path / "1", BEYOND[:2])[-1]["v_sum"] == LARGE
    wide = sum_of_large("widen", tmp_path / "2", BEYOND)
    assert {row["k"]: row["v_sum"] for row in wide} == {"a": LARGE, "b": 2 * LARGE}
    env, sink = rt.Environment(), rt.CollectSink()
    sales = env.source(rt.CollectionSource(BEYOND), uid="other-sales").key_by("k")
    sales.aggregate(rt.Sum("v", overflow="widen"), emit="end", uid="totals").sink(sink, uid="out")
    env.execute(
        runner="inline",
        restore=str(tmp_path / "1"),
        allow_non_restored_state=True,
        checkpointing=rt.Checkpointing(str(tmp_path / "3")),
    )
    assert {row["k"]: row["v_sum"] for row in sink.rows} == {"a": 2 * LARGE, "b": 3 * LARGE}


def test_sums_in_windows_stop_at_their_range_as_well() -> None:
    env = rt.Environment()
    marks = rt.Watermarks.monotonous(timestamp="t")
    windows = env.source(rt.CollectionSource(BEYOND), watermarks=marks).key_by("k")
    windows.window(rt.Tumbling("1s")).aggregate(rt.Sum("v")).sink(rt.CollectSink())
    with pytest.raises(rt.MinirtError, match=r"sum of column 'v'.*'k': 'b'"):
        env.execute(runner="inline", restart=rt.Restart.none())
