"""Savepoints from data: a job that starts from one goes on as if it had seen the history itself."""

from __future__ import annotations

import pickle
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import minirt as rt

HISTORY = [{"k": n % 23, "v": n} for n in range(300)]
NEWS = [{"k": n % 29, "v": -n} for n in range(200)]

AGGREGATES = (
    rt.Sum("v", "sum"),
    rt.Count("n"),
    rt.Min("v", "least"),
    rt.Max("v", "most"),
    rt.Mean("v", "mean"),
    rt.Last("v", "last"),
)


class Remember(rt.KeyedProcess[int, dict[str, Any], dict[str, Any]]):
    total = rt.ValueState(0)
    seen = rt.ListState[int](name="values")
    counts = rt.MapState[str, int]()

    def process(self, record: dict[str, Any], ctx: rt.KeyedContext) -> Any:
        self.total.value += record["v"]
        self.seen.add(record["v"])
        self.counts["all"] = self.counts.get("all", 0) + 1
        yield {
            "k": ctx.key,
            "total": self.total.value,
            "seen": self.seen.get(),
            "counts": dict(self.counts),
        }


def job(kind: str, records: Sequence[dict[str, Any]] = NEWS, parallelism: int = 2) -> Any:
    env = rt.Environment("totals", parallelism=parallelism, max_parallelism=128)
    keyed = env.source(rt.CollectionSource(records), uid="news").key_by("k")
    if kind == "reduce":
        results = keyed.reduce(lambda a, b: {"k": a["k"], "v": a["v"] + b["v"]}, uid="totals")
    elif kind == "process":
        results = keyed.process(Remember(), uid="totals")
    else:
        results = keyed.aggregate(*AGGREGATES, emit=kind, uid="totals")
    sink = rt.CollectSink()
    results.sink(sink, uid="out")
    return env, sink


def history_of(kind: str) -> pa.RecordBatch:
    """The history, brought together by key as the operator holds it."""
    values: dict[int, list[int]] = defaultdict(list)
    for record in HISTORY:
        values[record["k"]].append(record["v"])
    if kind == "reduce":
        rows = [{"k": k, "value": {"k": k, "v": sum(vs)}} for k, vs in values.items()]
        return pa.RecordBatch.from_pylist(rows)
    if kind == "process":
        schema = pa.schema(
            [
                ("k", pa.int64()),
                ("total", pa.int64()),
                ("values", pa.list_(pa.int64())),
                ("counts", pa.map_(pa.string(), pa.int64())),
            ]
        )
        rows = [
            {"k": k, "total": sum(vs), "values": vs, "counts": [("all", len(vs))]}
            for k, vs in values.items()
        ]
        return pa.RecordBatch.from_pylist(rows, schema)
    rows = [
        {
            "k": k,
            "sum": sum(vs),
            "n": len(vs),
            "least": min(vs),
            "most": max(vs),
            "mean": {"sum": float(sum(vs)), "count": len(vs)},
            "last": vs[-1],
        }
        for k, vs in values.items()
    ]
    return pa.RecordBatch.from_pylist(rows)


def written(
    env: rt.Environment, batch: pa.RecordBatch, path: Path, parallelism: int | None = None
) -> rt.Savepoint:
    writer = rt.SavepointWriter(
        env, path, uid="totals", key=["k"], schema=batch.schema, parallelism=parallelism
    )
    writer = pickle.loads(pickle.dumps(writer))
    parts = writer.subtasks_of(batch)
    pieces = {part: batch.filter(pa.array(parts == part)) for part in range(writer.parallelism)}
    half = batch.num_rows // 2
    receipts = [
        writer.write(part, [piece.slice(0, half), piece.slice(half)])
        for part, piece in pieces.items()
    ]
    return writer.complete(receipts)


def results(env: rt.Environment, sink: Any, **options: Any) -> Mapping[int, Any]:
    """The last result of each key."""
    env.execute(runner="inline", **options)
    return {row["k"]: row for row in sink.rows}


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("kind", ["reduce", "process", "updates", "end"])
def test_a_job_goes_on_where_history_ends(tmp_path: Path, kind: str, parallelism: int) -> None:
    env, _ = job(kind)
    path = written(env, history_of(kind), tmp_path / "savepoint").path
    storage = rt.Checkpointing(tmp_path / "checkpoints", interval="10min")
    found = results(*job(kind, parallelism=parallelism), checkpointing=storage, restore=path)
    whole = results(*job(kind, HISTORY + NEWS, parallelism=1))
    changed = {record["k"] for record in NEWS}
    if kind == "end":
        assert found == whole
    else:
        assert found == {k: row for k, row in whole.items() if k in changed}


@pytest.mark.parametrize("type", [pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.int64()])
@pytest.mark.parametrize("kind", ["reduce", "process", "end"])
def test_whole_numbers_of_a_key_are_those_of_the_job(
    tmp_path: Path, kind: str, type: pa.DataType
) -> None:
    env, _ = job(kind)
    history = history_of(kind)
    place = history.schema.get_field_index("k")
    narrow = history.set_column(place, "k", history.column(place).cast(type))
    path = written(env, narrow, tmp_path / "savepoint").path
    storage = rt.Checkpointing(tmp_path / "checkpoints", interval="10min")
    found = results(*job(kind), checkpointing=storage, restore=path)
    whole = results(*job(kind, HISTORY + NEWS, parallelism=1))
    assert {k: whole[k] for k in found} == found
    assert len(found) == len({record["k"] for record in NEWS})


def test_the_key_of_columns_keeps_the_type_that_the_job_has(tmp_path: Path) -> None:
    batch = pa.record_batch({"k": pa.array([1, 2], pa.int32()), "v": pa.array([3, 4])})

    def narrow() -> tuple[rt.Environment, rt.CollectSink]:
        env, sink = rt.Environment("totals"), rt.CollectSink()
        pq.write_table(pa.Table.from_batches([batch]), tmp_path / "news.parquet")
        news = env.source(rt.ParquetSource(str(tmp_path / "news.parquet")), uid="news")
        news.key_by("k").aggregate(rt.Sum("v", "sum"), emit="end", uid="totals").sink(sink, uid="o")
        return env, sink

    history = pa.record_batch({"k": pa.array([1], pa.int16()), "sum": pa.array([10])})
    path = written(narrow()[0], history, tmp_path / "savepoint").path
    storage = rt.Checkpointing(tmp_path / "checkpoints", interval="10min")
    found = results(*narrow(), checkpointing=storage, restore=path)
    assert {k: row["sum"] for k, row in found.items()} == {1: 13, 2: 4}


def test_a_savepoint_looks_like_any_other(tmp_path: Path) -> None:
    env, _ = job("reduce")
    savepoint = written(env, history_of("reduce"), tmp_path, parallelism=5)
    checkpoint = rt.open_checkpoints(savepoint.path).latest()
    assert checkpoint.manifest.kind == "savepoint"
    assert checkpoint.verify() == []
    state = checkpoint.operator("totals").state("value")
    assert state.entries == 23
    assert dict(state)[7] == {"k": 7, "v": sum(r["v"] for r in HISTORY if r["k"] == 7)}


def test_nulls_fill_nothing(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("total", pa.int64())])
    rows = [{"k": 1, "total": None}, {"k": None, "total": 5}, {"k": 2, "total": 0}]
    env, _ = job("process")
    path = written(env, pa.RecordBatch.from_pylist(rows, schema), tmp_path).path
    state = rt.open_checkpoints(path).latest().operator("totals").state("total")
    assert dict(state) == {None: 5, 2: 0}


def test_aggregates_of_nulls_are_those_of_no_values(tmp_path: Path) -> None:
    """A key of which all was null in history takes up the first value that comes."""
    schema = history_of("updates").schema
    nothing = dict.fromkeys(schema.names) | {"k": 3, "n": 4}
    env, _ = job("updates")
    path = written(env, pa.RecordBatch.from_pylist([nothing], schema), tmp_path / "s").path
    storage = rt.Checkpointing(tmp_path / "checkpoints", interval="10min")
    env, sink = job("updates", [{"k": 3, "v": 8}])
    assert results(env, sink, checkpointing=storage, restore=path)[3] == {
        "k": 3,
        "sum": 8,
        "n": 5,
        "least": 8,
        "most": 8,
        "mean": 8.0,
        "last": 8,
    }


@pytest.mark.parametrize("kind", ["reduce", "process", "updates"])
@pytest.mark.parametrize("together", [True, False])
def test_a_key_that_comes_again_is_refused(tmp_path: Path, kind: str, together: bool) -> None:
    env, _ = job(kind)
    batch = history_of(kind)
    key_7 = batch.filter(pc.field("k") == 7)
    twice = pa.Table.from_batches([batch, key_7]).combine_chunks().to_batches()[0]
    if together:
        twice = twice.filter(pc.field("k") == 7)
    with pytest.raises(rt.ConfigurationError, match="the key 7 comes more than once"):
        written(env, twice, tmp_path)


def _renamed(name: str, other: str) -> Any:
    def change(batch: pa.RecordBatch) -> pa.RecordBatch:
        names = [other if one == name else one for one in batch.schema.names]
        return batch.rename_columns(names)

    return change


def _cast(name: str, type: pa.DataType) -> Any:
    def change(batch: pa.RecordBatch) -> pa.RecordBatch:
        place = batch.schema.names.index(name)
        return batch.set_column(place, name, batch.column(place).cast(type))

    return change


@pytest.mark.parametrize(
    ("kind", "change", "complaint"),
    [
        ("updates", _renamed("n", "m"), "no column 'n', nothing for column 'm' to fill"),
        ("updates", _cast("sum", pa.int32()), "'sum' is of type int32; a Sum takes int64"),
        ("updates", _cast("n", pa.string()), "'n' is of type string; a Count takes int64"),
        ("updates", _renamed("k", "key"), "its key is k|no column 'k'"),
        ("updates", _cast("k", pa.float64()), "'k': columns of type double cannot be keys"),
        ("process", _renamed("values", "seen"), "nothing for column 'seen' to fill"),
        ("process", lambda b: b.drop_columns(["total", "values", "counts"]), "it takes the key"),
        ("reduce", _renamed("value", "v"), "it takes the key and value, and got k, v"),
    ],
)
def test_columns_that_do_not_fit_are_refused(
    tmp_path: Path, kind: str, change: Any, complaint: str
) -> None:
    env, _ = job(kind)
    with pytest.raises(rt.ConfigurationError, match=complaint):
        written(env, change(history_of(kind)), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_filled_is_refused_by_name(tmp_path: Path) -> None:
    env = rt.Environment("job")
    numbers = env.source(rt.CollectionSource(NEWS), uid="news").key_by("k")
    numbers.aggregate(rt.Quantile("v", q=0.5, name="median"), uid="medians").sink(
        rt.CollectSink(), uid="out"
    )
    numbers.window(rt.CountWindow(5)).aggregate(rt.Count("n"), uid="windows").sink(
        rt.CollectSink(), uid="more"
    )
    schema = pa.schema([("k", pa.int64()), ("n", pa.int64())])

    def refusal(uid: str, key: str = "k", **options: Any) -> str:
        with pytest.raises(rt.ConfigurationError) as caught:
            rt.SavepointWriter(env, tmp_path, uid=uid, key=[key], schema=schema, **options)
        return str(caught.value)

    assert "'median' is a Quantile, which remembers more than its results" in refusal("medians")
    assert "of the kind window, cannot be filled" in refusal("windows")
    assert "no operator of the job 'job' has the uid 'median'" in refusal("median")
    assert "'medians'" in refusal("median")
    assert "of the kind source, cannot be filled" in refusal("news")


def test_another_key_a_full_folder_and_foreign_rows_are_refused(tmp_path: Path) -> None:
    env, _ = job("reduce")
    batch = history_of("reduce")
    with pytest.raises(rt.ConfigurationError, match="its key is k, not value"):
        rt.SavepointWriter(env, tmp_path, uid="totals", key=["value"], schema=batch.schema)
    with pytest.raises(rt.ConfigurationError, match="part 0 was given rows of other parts"):
        rt.SavepointWriter(env, tmp_path, uid="totals", key=["k"], schema=batch.schema).write(
            0, [batch]
        )
    (tmp_path / "something").write_text("")
    with pytest.raises(rt.ConfigurationError, match="is not empty"):
        written(env, batch, tmp_path)


def test_parts_of_attempts_that_came_to_nothing_do_not_stay(tmp_path: Path) -> None:
    env, _ = job("reduce", parallelism=1)
    rows = [{"k": k, "value": random.Random(k).randbytes(5000).hex()} for k in range(20)]
    batch = pa.RecordBatch.from_pylist(rows)
    writer = rt.SavepointWriter(env, tmp_path, uid="totals", key=["k"], schema=batch.schema)
    lost, kept = writer.write(0, [batch]), writer.write(0, [batch])
    assert len(list(tmp_path.rglob("*.part"))) == 2
    with pytest.raises(rt.ConfigurationError, match="handed over twice"):
        writer.complete([lost, kept])
    path = writer.complete([kept]).path
    other = rt.SavepointWriter(
        env, tmp_path / "other", uid="totals", key=["k"], schema=batch.schema
    )
    other.write(0, [batch])
    other.discard()
    assert [found for found in (tmp_path / "other").rglob("*") if found.is_file()] == []
    assert len(list(tmp_path.rglob("*.part"))) == 1
    assert rt.open_checkpoints(path).latest().verify() == []


def test_a_job_without_the_uid_is_refused_with_the_way_out(tmp_path: Path) -> None:
    env, _ = job("reduce")
    path = written(env, history_of("reduce"), tmp_path / "savepoint").path
    other = rt.Environment("other")
    other.source(rt.CollectionSource(NEWS), uid="news").sink(rt.CollectSink(), uid="out")
    storage = rt.Checkpointing(tmp_path / "checkpoints", interval="10min")
    with pytest.raises(rt.ConfigurationError, match=r"'totals'.*give the operator its old uid"):
        other.execute(runner="inline", checkpointing=storage, restore=path)
