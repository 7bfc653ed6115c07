"""Sliding windows beside tumbling ones, and whether sessions that end give their memory back.

    python -m benchmarks.windows [--keys 100000] [--hours 3] [--sessions 1000000]

The first part counts records a second of a job in windows of an hour, the sliding ones every minute. They
give out every key every minute. The second part is one operator without a job around it: so many keys have
a session each, which end at once.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

import minirt as rt
from benchmarks.index_source import BATCH_RECORDS, IndexSource, timed
from benchmarks.measure import run
from benchmarks.one_operator import alone, exhaust, memory_mb
from minirt.data.batch import Batch, Columns
from minirt.kernels.choice import AUTO, choose_kernels
from minirt.operators.window import WindowSpec
from minirt.windows.base import Window

_HOUR_MS = 3_600_000
_AGGREGATES = (rt.Count("n"), rt.Max("at", "last"))


class _Count:
    def __init__(self) -> None:
        self.results = 0

    def __call__(self, batch: Batch) -> None:
        self.results += len(batch)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--hours", type=float, default=3.0, help="of event time")
    parser.add_argument("--per-ms", type=int, default=8, help="records a millisecond of event time")
    parser.add_argument("--sessions", type=int, default=1_000_000)
    args = parser.parse_args(arguments)
    print(f"kernels: {choose_kernels(AUTO).name}")
    if args.hours:
        tumbling = _rate(rt.Tumbling("1h"), args.keys, args.hours, args.per_ms)
        sliding = _rate(rt.Sliding("1h", "1min"), args.keys, args.hours, args.per_ms)
        print(f"sliding takes {tumbling / sliding:.2f} times as long as tumbling")
    if args.sessions:
        _end_sessions(args.sessions)


def _batches(keys: int, records: int, per_ms: int) -> Iterator[Columns]:
    make = timed(keys, per_ms)
    for start in range(0, records, BATCH_RECORDS):
        table = make(start, min(records, start + BATCH_RECORDS), 0)
        yield Columns(table, table.column("at").to_numpy())


def _rate(window: Window, keys: int, hours: float, per_ms: int) -> float:
    """Records a second of a job with a subtask of each operator, in processes of their own."""
    records = int(hours * _HOUR_MS) * per_ms
    schema = pa.schema([("k", pa.int64()), ("at", pa.int64())])
    env = rt.Environment(parallelism=1)
    marks = rt.Watermarks.monotonous(timestamp="at")
    source = IndexSource(records, partial(timed, keys, per_ms), schema)
    numbers = env.source(source, uid="numbers", watermarks=marks)
    results = numbers.key_by("k").window(window).aggregate(*_AGGREGATES, uid="windows")
    results.sink(rt.DiscardSink(), uid="out")
    measured = run(env, "windows")
    rate = records / measured.running_s
    print(
        f"{window.words}: {rate / 1e6:.2f} M records/s, {records:,} records, "
        f"{measured.cpu_s / records * 1e6:.2f} CPU s for a million",
        flush=True,
    )
    return rate


def _end_sessions(keys: int) -> None:
    count = _Count()
    operator = alone(WindowSpec(_AGGREGATES, rt.Session("1min")), "k", emit=count)
    print(f"sessions: memory at first {memory_mb()} MB")
    for batch in _batches(keys, 3 * keys, max(1, 3 * keys // 30_000)):
        operator.process(batch, 0)
        exhaust(operator.on_watermark(int(batch.timestamps[-1]) - 1))
    print(f"  {keys:,} open: {memory_mb()} MB")
    at = np.full(1000, 100_000)
    few = pa.RecordBatch.from_arrays([pa.array(np.arange(1000)), pa.array(at)], ["k", "at"])
    began_at = time.perf_counter()
    exhaust(operator.on_watermark(95_000))
    took_s = time.perf_counter() - began_at
    operator.process(Columns(few, at), 0)
    gc.collect()
    print(f"  {count.results:,} ended in {took_s:.2f} s, 1,000 open: {memory_mb()} MB")


if __name__ == "__main__":
    main()
