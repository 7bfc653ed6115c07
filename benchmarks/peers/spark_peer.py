"""Spark Structured Streaming: Parquet files that lie ready, in micro-batches that are checkpointed."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.workload import (
    KEY_PREFIX,
    RECORDS_PER_WINDOW,
    SPREAD,
    WINDOW_MS,
    Tally,
    Work,
    announce,
    last_total,
    report,
)

_FILE_RECORDS = 2_500_000
_COLUMNS = 10


def _table(work: Work, start: int, stop: int) -> pa.Table:
    numbers = np.arange(start, stop, dtype=np.int64)
    keys = numbers * SPREAD % work.keys
    if work.work == "keyed-sum":
        return pa.table({"k": keys, "v": np.ones(len(keys), np.int64)})
    if work.work == "keyed-sum-str":
        names = pa.array([f"{KEY_PREFIX}{number:08d}" for number in range(work.keys)])
        return pa.table({"k": names.take(pa.array(keys)), "v": np.ones(len(keys), np.int64)})
    if work.work == "tumbling-count":
        ms = numbers * WINDOW_MS // RECORDS_PER_WINDOW
        return pa.table({"k": keys, "at": pa.array(ms, pa.timestamp("ms", "UTC"))})
    values = {f"v{place}": numbers + place for place in range(_COLUMNS - 1)}
    return pa.table({"k": keys, **values})


def _write(work: Work, folder: Path) -> None:
    folder.mkdir()
    for number, start in enumerate(range(0, work.records, _FILE_RECORDS)):
        table = _table(work, start, min(work.records, start + _FILE_RECORDS))
        pq.write_table(table, folder / f"{number:06d}.parquet")


def _job(work: Work, source: DataFrame) -> tuple[DataFrame, Column, Column]:
    """The results, and which two sums over them are to be checked."""
    last = last_total(work)
    if work.work == "filter-project":
        total, double = F.col("v2") + F.col("v3"), F.col("v4") * 2
        kept = source.where("v0 & 1 = 0").select(
            "k", "v1", total.alias("total"), double.alias("double")
        )
        return kept, F.lit(1), F.expr("total + double")
    if work.work == "tumbling-count":
        last = RECORDS_PER_WINDOW // work.keys
        window = F.window("at", f"{WINDOW_MS} milliseconds")
        counts = source.withWatermark("at", "0 seconds").groupBy("k", window).count()
        number = F.expr(f"unix_millis(window.start) div {WINDOW_MS} + 1")
        return counts, *_where(F.col("count") >= last, (F.col("k") + 1) * number * F.col("count"))
    sums = source.groupBy("k").agg(F.sum("v").alias("total"))
    number = F.col("k") if work.work == "keyed-sum" else F.substring("k", 6, 8).cast("long")
    return sums, *_where(F.col("total") >= last, number)


def _where(condition: Column, value: Column) -> tuple[Column, Column]:
    return condition.cast("long"), F.when(condition, value).otherwise(0)


def main() -> None:
    work = Work.parse(sys.argv[1:])
    files = Path(work.storage) / "input"
    _write(work, files)
    spark = (
        SparkSession.builder.master(f"local[{work.parallelism}]")
        .config("spark.driver.memory", "6g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", work.parallelism)
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    schema = spark.read.parquet(str(files)).schema
    source = (
        spark.readStream.schema(schema)
        .option("maxFilesPerTrigger", work.parallelism)
        .parquet(str(files))
    )
    results, count, checksum = _job(work, source)
    tally = Tally()

    def see(batch: DataFrame, _: int) -> None:
        [found] = batch.agg(F.sum(count), F.sum(checksum)).collect()
        tally.add(found[0] or 0, found[1] or 0)

    announce()
    query = (
        results.writeStream.outputMode("update")
        .foreachBatch(see)
        .option("checkpointLocation", f"{work.storage}/checkpoints")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    report(tally, time.monotonic(), len(query.recentProgress))
    spark.stop()


if __name__ == "__main__":
    main()
