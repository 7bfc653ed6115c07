"""Senders leave out columns that their receiver does not look at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import minirt as rt
from minirt.data.batch import Batch, Columns
from minirt.operators.aggregate import AggregateOperator
from minirt.operators.windows.frame import WindowFrame
from minirt.runtime.channels.pruning import Pruning

ROWS = [{"k": n % 3, "j": n % 2, "v": n, "w": n * 7 % 600, "at": n, "x": "x"} for n in range(600)]
Define = Callable[[rt.KeyedStream], rt.Stream]


def names(batch: Columns) -> list[str]:
    return list(batch.table.schema.names)


def test_unwanted_columns_are_left_out_of_each_schema() -> None:
    prune = Pruning({"k", "v"})
    batch = Columns(pa.record_batch({"x": [1], "v": [2], "y": [3], "k": [4]}))
    pruned = prune(batch)
    assert (names(pruned), pruned.table.to_pylist()) == (["v", "k"], [{"v": 2, "k": 4}])
    assert names(prune(Columns(pa.record_batch({"k": [1], "y": [3], "v": [4]})))) == ["k", "v"]
    assert names(prune(batch)) == ["v", "k"]


def test_times_stay() -> None:
    times = pc.cast(pa.array([7]), pa.int64()).to_numpy()
    pruned = Pruning({"k"})(Columns(pa.record_batch({"k": [1], "x": [2]}), times))
    assert pruned.timestamps is times


@pytest.mark.parametrize("columns", [{"k": [1], "x": [2]}, {"k": [1], "v": [2]}])
def test_a_batch_with_nothing_to_spare_or_something_missing_passes(
    columns: dict[str, list[int]],
) -> None:
    batch = Columns(pa.record_batch(columns))
    assert Pruning({"k", "v"})(batch) is batch


def summed(stream: rt.KeyedStream) -> rt.Stream:
    return stream.aggregate(rt.Sum("v", "total"), emit="end", uid="op")


def counted(stream: rt.KeyedStream) -> rt.Stream:
    return stream.window(rt.Tumbling("100ms")).aggregate(rt.Count("n"), uid="op")


def largest_by_another(stream: rt.KeyedStream) -> rt.Stream:
    return stream.aggregate(rt.ArgMax("v", by="w", name="top"), emit="end", uid="op")


def chosen(stream: rt.KeyedStream) -> rt.Stream:
    return stream.aggregate(rt.Sum("v", "total", where=pc.field("w") > 99), emit="end", uid="op")


def counted_with_late(stream: rt.KeyedStream) -> rt.Stream:
    windows = counted(stream)
    windows.side_output("late").sink(rt.CollectSink(), uid="late")
    return windows


def run(define: Define, **how: object) -> tuple[list[object], set[tuple[str, ...]]]:
    """The results, and which columns have arrived."""
    arrived: set[tuple[str, ...]] = set()
    env, out = rt.Environment("pruned", parallelism=2), rt.CollectSink()
    source = rt.CollectionSource(pa.Table.from_pylist(ROWS), splits=2)
    stream = env.source(source, uid="rows", watermarks=rt.Watermarks.monotonous(timestamp="at"))
    define(stream.key_by("k", "j")).sink(out, uid="out")
    with pytest.MonkeyPatch.context() as patch:
        for operator in (AggregateOperator, WindowFrame):
            patch.setattr(operator, "process", _noting(operator.process, arrived))
        env.execute(runner="inline", **how)
    return sorted(out.rows, key=repr), arrived


def _noting(
    process: Callable[[object, Batch, int], None], arrived: set[tuple[str, ...]]
) -> Callable[[object, Batch, int], None]:
    def note(operator: object, batch: Batch, index: int) -> None:
        assert isinstance(batch, Columns)
        arrived.add(tuple(names(batch)))
        process(operator, batch, index)

    return note


@pytest.mark.parametrize(
    ("define", "sent"),
    [
        (summed, ("k", "j", "v")),
        (counted, ("k", "j")),
        (largest_by_another, ("k", "j", "v", "w")),
        (chosen, tuple(ROWS[0])),
        (counted_with_late, tuple(ROWS[0])),
    ],
)
def test_a_job_sends_what_is_looked_at(
    define: Define, sent: tuple[str, ...], tmp_path: Path
) -> None:
    results, arrived = run(define)
    assert arrived == {sent}
    whole, all_columns = run(define, checkpointing=rt.Checkpointing(tmp_path, mode="unaligned"))
    assert all_columns == {tuple(ROWS[0])}, "records in flight must serve an edited job as well"
    assert results == whole != []
