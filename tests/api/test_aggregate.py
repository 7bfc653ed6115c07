"""Aggregates of keyed streams, from the API to the results."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

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
    import pyarrow as pa

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
