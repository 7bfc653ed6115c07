"""The jobs of `benchmarks.kafka`, in minirt; as a program, one of them, as `benchmarks.kafka_work` says."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pyarrow as pa

import minirt as rt
from benchmarks.check_sink import CheckSink
from benchmarks.index_source import IndexSource, Maker
from benchmarks.kafka_work import FIRST_ID, NOTE, PRICES, USERS, KafkaWork, record
from benchmarks.measure import StatusTimes
from benchmarks.workload import Tally, announce, report
from minirt.data.batch import Batch
from minirt_connectors.kafka import KafkaSink, KafkaSource

_SCHEMA = pa.schema(
    [("id", pa.int64()), ("user", pa.string()), ("price", pa.float64()), ("note", pa.string())]
)
_ROWS_PER_BATCH = 4096


def _columns() -> Maker:
    users = pa.array([f"user-{number:06d}" for number in range(USERS)])

    def make(start: int, stop: int, _: int) -> pa.RecordBatch:
        ids = np.arange(FIRST_ID + start, FIRST_ID + stop)
        notes = pa.array([NOTE]).take(pa.array(np.zeros(len(ids), np.int64)))
        prices = pa.array(1000.5 + ids % PRICES)
        columns = [pa.array(ids), users.take(pa.array(ids % USERS)), prices, notes]
        return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)

    return make


def _rows() -> Maker:
    return lambda start, stop, _: [record(FIRST_ID + number) for number in range(start, stop)]


def _see_columns(batch: Batch, tally: Tally) -> None:
    tally.add(len(batch), int(batch.table.column("id").to_numpy().sum()))


def _see_rows(batch: Batch, tally: Tally) -> None:
    tally.add(len(batch), sum(row["id"] for row in batch.rows().records))


def main() -> None:
    work = KafkaWork.parse(sys.argv[1:])
    options = dict(argument.split("=", 1) for argument in sys.argv[1:])
    columns = options.get("form", "columns") == "columns"
    env = rt.Environment(work.work, parallelism=work.parallelism)
    source: rt.Source[Any]
    if work.work == "sink":
        source = (
            IndexSource(work.records, _columns, _SCHEMA)
            if columns
            else IndexSource(work.records, _rows, records_per_batch=_ROWS_PER_BATCH)
        )
    else:
        schema = _SCHEMA if columns else None
        source = KafkaSource(work.bootstrap, work.topic, bounded=True, schema=schema)
    check = CheckSink(_see_columns if columns else _see_rows)
    delivery: Any = options.get("delivery", "exactly_once")
    sink: rt.Sink = check
    if work.work != "source":
        sink = KafkaSink(work.bootstrap, work.results, delivery=delivery)
    env.source(source, uid="in").sink(sink, uid="out")
    times = StatusTimes(announce)
    result = env.start(
        observer=times,
        checkpointing=rt.Checkpointing(work.storage, interval=f"{work.checkpoint_ms}ms"),
        options=rt.Options(placement="slots"),
    ).wait()
    ended_at = times.first[rt.JobStatus.FINISHED]
    report(check.tally, ended_at, result.completed_checkpoints)


if __name__ == "__main__":
    main()
