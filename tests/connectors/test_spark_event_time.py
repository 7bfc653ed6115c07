"""How event time advances in what Spark has written. Needs no Spark: files stand in for a snapshot."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import minirt as rt
from minirt_connectors.spark import SparkSource
from minirt_connectors.spark import source as spark_source
from minirt_connectors.spark.snapshot import Snapshot


def source_of(
    files: list[list[int]], folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> SparkSource:
    """A source of a DataFrame with a column `at`, whose rows Spark has written as these files."""
    (folder / "rows").mkdir()
    names = [f"{number}.parquet" for number in range(len(files))]
    for name, times in zip(names, files, strict=True):
        pq.write_table(pa.table({"at": times}), folder / "rows" / name)
    snapshot = Snapshot("rows", tuple(names), pa.schema([("at", pa.int64())]), False)
    monkeypatch.setattr(spark_source, "take_snapshot", lambda *_: snapshot)
    frame = cast(Any, SimpleNamespace(isStreaming=False))
    return SparkSource(frame, cache_dir=str(folder), **options)


@pytest.mark.parametrize("seed", range(3))
def test_without_order_the_files_are_read_by_event_time(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file is of another second, in any order; one after another they would hold back event time."""
    seconds = list(range(5))
    random.Random(seed).shuffle(seconds)
    files = [[second * 1000 + ms for ms in range(0, 1000, 100)] for second in seconds]
    env, out = rt.Environment(parallelism=1), rt.CollectSink()
    marks = rt.Watermarks.monotonous(timestamp="at")
    source = source_of(files, tmp_path, monkeypatch)
    env.source(source, uid="rows", watermarks=marks).sink(out)
    env.execute(runner="inline")
    assert [row["at"] for row in out.rows] == list(range(0, 5000, 100))


@pytest.mark.parametrize("options", [{"order_by": "at", "partition_by": "at"}, {"order_by": "at"}])
def test_with_an_order_files_are_read_side_by_side(
    options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert source_of([[1]], tmp_path, monkeypatch, **options).interleave
