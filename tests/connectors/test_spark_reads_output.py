"""Structured streaming reads what a job commits while it runs: each row once, and nothing that waits."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import minirt as rt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = 2000


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_each_committed_row_is_read_once_while_workers_die(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    out = tmp_path / "out"
    out.mkdir()

    def slowly(number: int) -> dict[str, Any]:
        time.sleep(0.001)
        for at in (500, 1500):
            died = tmp_path / f"died-{at}"
            if number == at and not died.exists():
                died.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return {"id": number}

    schema = pa.schema([("id", pa.int64())])
    sink: rt.Sink = (
        rt.ParquetSink(str(out), schema=schema) if kind == "parquet" else rt.JsonlSink(str(out))
    )
    env = rt.Environment("numbers", parallelism=2)
    numbers = env.source(rt.SequenceSource(ROWS, splits=2), uid="numbers")
    numbers.map(slowly, uid="slowly").sink(sink, uid="out")
    seen: list[list[int]] = []

    def take(batch: DataFrame, number: int) -> None:
        seen.append([row["id"] for row in batch.collect()])

    reading = spark.readStream.schema("id long").format(kind).load(str(out))
    query = (
        reading.writeStream.foreachBatch(take)
        .option("checkpointLocation", (tmp_path / "query").as_uri())
        .trigger(processingTime="20 milliseconds")
        .start()
    )
    try:
        env.execute(
            checkpointing=rt.Checkpointing(tmp_path / "checkpoints", interval="100ms"),
            restart=rt.Restart.fixed_delay(10, "50ms"),
        )
        query.processAllAvailable()
    finally:
        query.stop()
    assert (tmp_path / "died-500").exists()
    assert (tmp_path / "died-1500").exists()
    assert len([ids for ids in seen if ids]) > 1, "Spark saw nothing before the job was over"
    assert sorted(number for ids in seen for number in ids) == list(range(ROWS))
