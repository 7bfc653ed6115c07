"""A streaming DataFrame as source: micro-batches in order, exactly once, whatever dies and starts again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import minirt as rt
from minirt.io.remembered import planned, resumed
from minirt_connectors.spark import SparkSource
from minirt_connectors.spark.landing import Landing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = 50


def add_file(folder: Path, number: int) -> None:
    """The next rows, in a file that appears whole."""
    folder.mkdir(exist_ok=True)
    aside = folder / f".{number}"
    pq.write_table(pa.table({"id": range(number * ROWS, (number + 1) * ROWS)}), aside)
    aside.rename(folder / f"{number:04}.parquet")


def stream_of(spark: SparkSession, tmp_path: Path, **options: Any) -> SparkSource:
    reading = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1)
    return SparkSource(
        reading.parquet(str(tmp_path / "in")),
        name="ids",
        order_by="id",
        splits=2,
        cache_dir=str(tmp_path / "cache"),
        trigger="10ms",
        **options,
    )


def wait_for(condition: Callable[[], bool], job: rt.Job | None = None) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        if job is not None and job.status is rt.JobStatus.FAILED:
            job.wait()
        time.sleep(0.05)


def written(out: Path) -> list[int]:
    lines = [line for path in out.glob("part-*.jsonl") for line in path.read_text().splitlines()]
    return [json.loads(line)["id"] for line in lines]


def test_nothing_is_lost_or_twice_when_a_worker_dies_and_the_query_starts_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    for number in range(4):
        add_file(tmp_path / "in", number)
    died = tmp_path / "died"

    def die_once(record: dict[str, Any]) -> dict[str, Any]:
        if record["id"] == 3 * ROWS and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return record

    source = stream_of(spark, tmp_path, clean=True)
    landing = Landing(tmp_path / "cache" / "ids")
    out = tmp_path / "out"
    env = rt.Environment("ids", parallelism=2)
    env.source(source, uid="ids").map(die_once, uid="die").sink(rt.JsonlSink(str(out)), uid="out")
    job = env.start(
        checkpointing=rt.Checkpointing(tmp_path / "checkpoints", interval="100ms"),
        restart=rt.Restart.fixed_delay(10, "50ms"),
    )
    try:
        wait_for(lambda: len(written(out)) == 4 * ROWS, job)
        source.stop()
        commits = tmp_path / "cache" / "ids" / "query" / "commits"
        newest = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
        # As if the program had died before Spark noted that the batch was through.
        for trace in (commits / str(newest), commits / f".{newest}.crc"):
            trace.unlink(missing_ok=True)
        for number in range(4, 8):
            add_file(tmp_path / "in", number)
        again = stream_of(spark, tmp_path, clean=True)
        assert again.query.isActive
        wait_for(lambda: len(written(out)) >= 8 * ROWS, job)
        wait_for(lambda: landing.landed() == [], job)
        again.stop()
    finally:
        job.stop()
    assert died.exists()
    assert sorted(written(out)) == list(range(8 * ROWS))
    assert landing.next_number() == 8


def test_a_query_that_fails_fails_the_job(spark: SparkSession, tmp_path: Path) -> None:
    add_file(tmp_path / "in", 0)
    reading = spark.readStream.schema("id long").parquet(str(tmp_path / "in"))
    frame = reading.selectExpr("if(id = 7, raise_error('no sevens'), id) AS id")
    source = SparkSource(frame, name="bad", cache_dir=str(tmp_path / "cache"), trigger="10ms")
    env = rt.Environment("bad")
    env.source(source, uid="ids").sink(rt.DiscardSink(), uid="out")
    with pytest.raises(rt.JobFailedError, match=r"(?s)streaming query .* has failed: .*no sevens"):
        env.execute(restart=rt.Restart.none())


def test_the_query_waits_for_a_job_that_is_slow(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(4):
        add_file(tmp_path / "in", number)
    source = stream_of(spark, tmp_path, clean=True, backlog=1)
    landing = Landing(tmp_path / "cache" / "ids")
    try:
        wait_for(lambda: landing.landed() == [0])
        time.sleep(0.5)
        assert landing.landed() == [0]
        source.committed({"all": [1, None]})
        wait_for(lambda: landing.landed() == [1])
    finally:
        source.stop()


def test_a_stream_of_spark_connect_is_refused_in_one_line(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_file(tmp_path / "in", 0)
    monkeypatch.setattr("minirt_connectors.spark.source.is_connect", lambda _: True)
    with pytest.raises(rt.ConfigurationError, match=r"^a streaming DataFrame needs .*Connect"):
        stream_of(spark, tmp_path)


def test_another_layout_under_the_same_name_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    add_file(tmp_path / "in", 0)
    stream_of(spark, tmp_path).stop()
    reading = spark.readStream.schema("id long").parquet(str(tmp_path / "in"))
    with pytest.raises(rt.ConfigurationError, match="begun with another layout"):
        SparkSource(reading, name="ids", splits=3, cache_dir=str(tmp_path / "cache"))


def test_a_job_goes_on_with_the_query_that_it_has_read(spark: SparkSession, tmp_path: Path) -> None:
    """Another one under the same name, or one of another name, numbers its batches anew."""

    def source(name: str, **options: Any) -> SparkSource:
        rates = spark.readStream.format("rate").option("rowsPerSecond", 5).load()
        made = SparkSource(rates, name=name, cache_dir=str(tmp_path / "cache"), splits=1, **options)
        made.stop()
        return made

    first = source("first")
    [split] = planned(first, 1)
    stored = (split, [3, None])
    again = source("first")
    assert resumed("s", again, *stored, again.identity())[1] == [3, None]
    for name in ("second", "first"):
        shutil.rmtree(tmp_path / "cache" / "first", ignore_errors=True)
        other = source(name)
        with pytest.raises(rt.SourceChangedError, match=r"Spark query first .*query id"):
            resumed("s", other, *stored, other.identity())
