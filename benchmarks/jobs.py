"""The jobs of the benchmarks, in minirt. As a program: run one, as `benchmarks.workload` says."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import minirt as rt
from benchmarks.check_sink import CheckSink, See
from benchmarks.index_source import IndexSource, Maker, named_pairs, numbered, pairs, timed
from benchmarks.workload import (
    BUCKET_NS,
    JOIN_MS,
    KEY_PREFIX,
    RECORDS_PER_WINDOW,
    SPREAD,
    WARM_UP_S,
    WINDOW_MS,
    Tally,
    Work,
    last_total,
    report,
)
from minirt.data.batch import Batch

_COLUMNS = 10
_POLL_S = 0.001
"""How often a paced source looks for records that have become due."""

NUMPY_ALONE = "kernels=numpy"
"""An argument of the program: without compiled kernels."""
ON_DEMAND = "flush=on_demand"
"""Likewise: buffers leave as soon as nobody has anything else to do."""
LONG_QUEUES = "row_queues=long"
"""Likewise: rows may fill queues as columns may."""
PROCESSES = "placement=subtask"
"""Likewise: a process for each subtask."""
WIDE = "workers=parallelism"
"""Likewise: a process for each subtask of an operator, however few cores there are."""
TRACED = "trace=true"
"""Likewise: what each checkpoint does is noted."""

Build = Callable[[rt.Environment, Work], CheckSink]


def _keyed_sum(env: rt.Environment, work: Work) -> CheckSink:
    return _running_sum(env, work, partial(pairs, work.keys), pa.int64(), _sum_of)


def _keyed_sum_str(env: rt.Environment, work: Work) -> CheckSink:
    return _running_sum(env, work, partial(named_pairs, work.keys), pa.string(), _sum_of_names)


def _running_sum(
    env: rt.Environment,
    work: Work,
    new_maker: Callable[[], Maker],
    key: pa.DataType,
    sum_of: Callable[[pa.Array], int],
) -> CheckSink:
    schema = pa.schema([("k", key), ("v", pa.int64())])
    total = last_total(work)

    def see(batch: Batch, tally: Tally) -> None:
        table = batch.table
        done = table.column("total").to_numpy() >= total
        if done.any():
            keys = table.column("k").filter(pa.array(done))
            tally.add(len(keys), sum_of(keys))

    sink = CheckSink(see)
    (
        env.source(IndexSource(work.records, new_maker, schema), uid="numbers")
        .key_by("k")
        .aggregate(rt.Sum("v", "total"), uid="sum")
        .sink(sink, uid="out")
    )
    return sink


def _sum_of(keys: pa.Array) -> int:
    return int(keys.to_numpy().sum())


def _sum_of_names(names: pa.Array) -> int:
    return sum(int(name[len(KEY_PREFIX) :]) for name in names.to_pylist())


def _keyed_sum_rows(env: rt.Environment, work: Work) -> CheckSink:
    keys, total = work.keys, last_total(work)

    def see(batch: Batch, tally: Tally) -> None:
        done = [key for key, count in batch.rows().records if count >= total]
        tally.add(len(done), sum(done))

    sink = CheckSink(see)
    (
        env.source(IndexSource(work.records, _numbers, records_per_batch=4096), uid="numbers")
        .map(lambda number: (number * SPREAD % keys, 1))
        .key_by(lambda pair: pair[0])
        .reduce(lambda total, pair: (total[0], total[1] + pair[1]), uid="sum")
        .sink(sink, uid="out")
    )
    return sink


def _numbers() -> Maker:
    return lambda start, stop, _: list(range(start, stop))


def _keyed_pass(env: rt.Environment, work: Work) -> CheckSink:
    """Two columns of int64 through one shuffle, and nothing else."""
    sink = CheckSink(_count_and_sum("v0"))
    schema = pa.schema([("k", pa.int64()), ("v0", pa.int64())])
    source = IndexSource(work.records, partial(numbered, work.keys, 1), schema)
    env.source(source, uid="numbers").key_by("k").sink(sink, uid="out")
    return sink


def _filter_project(env: rt.Environment, work: Work) -> CheckSink:
    sink = CheckSink(_count_and_sum("total", "double"))
    width = _COLUMNS - 1
    schema = pa.schema([(name, pa.int64()) for name in ("k", *(f"v{n}" for n in range(width)))])
    source = IndexSource(work.records, partial(numbered, work.keys, width), schema)
    (
        env.source(source, uid="numbers")
        .filter(pc.bit_wise_and(pc.field("v0"), 1) == 0)
        .select("k", "v1", total=pc.field("v2") + pc.field("v3"), double=pc.field("v4") * 2)
        .sink(sink, uid="out")
    )
    return sink


def _count_and_sum(*names: str) -> See:
    def see(batch: Batch, tally: Tally) -> None:
        sums = [int(batch.table.column(name).to_numpy().sum()) for name in names]
        tally.add(len(batch), sum(sums))

    return see


def _tumbling_count(env: rt.Environment, work: Work) -> CheckSink:
    per_ms = RECORDS_PER_WINDOW // WINDOW_MS // work.parallelism

    def see(batch: Batch, tally: Tally) -> None:
        table = batch.table
        starts = table.column("window_start").cast(pa.int64()).to_numpy()
        windows = starts // WINDOW_MS + 1
        keys, counts = table.column("k").to_numpy() + 1, table.column("n").to_numpy()
        tally.add(len(batch), int((keys * windows * counts).sum()))

    sink = CheckSink(see)
    source = IndexSource(
        work.records,
        partial(timed, work.keys, per_ms),
        pa.schema([("k", pa.int64()), ("at", pa.int64())]),
    )
    (
        env.source(source, uid="numbers", watermarks=rt.Watermarks.monotonous(timestamp="at"))
        .key_by("k")
        .window(rt.Tumbling(WINDOW_MS / 1000))
        .aggregate(rt.Count("n"), uid="count")
        .sink(sink, uid="out")
    )
    return sink


def _interval_join(env: rt.Environment, work: Work) -> CheckSink:
    """Half of the records on each side. Each finds the one of its number in each split of the other."""
    per_ms = RECORDS_PER_WINDOW // WINDOW_MS // work.parallelism
    schema = pa.schema([("k", pa.int64()), ("at", pa.int64())])
    left, right = (
        env.source(
            IndexSource(work.records // 2, partial(timed, work.keys, per_ms), schema),
            uid=uid,
            watermarks=rt.Watermarks.monotonous(timestamp="at"),
        )
        for uid in ("left", "right")
    )
    sink = CheckSink(_count_and_sum("k"))
    joined = left.join(right, on="k", within=(-JOIN_MS / 1000, JOIN_MS / 1000), uid="join")
    joined.sink(sink, uid="out")
    return sink


def _latency(env: rt.Environment, work: Work) -> CheckSink:
    """Records of a key, 1 and the moment of creation, one by one through Python functions."""
    total = last_total(work)

    def see(batch: Batch, tally: Tally) -> None:
        now = time.time_ns()
        records = batch.rows().records
        tally.add_latencies(Counter((now - made) // BUCKET_NS for _, _, made in records if made))
        done = [key for key, count, _ in records if count >= total]
        tally.add(len(done), sum(done))

    sink = CheckSink(see)
    pace = work.records_per_s / work.parallelism
    new_maker = partial(_stamped, work.keys, int(pace * WARM_UP_S))
    (
        env.source(IndexSource(work.records, new_maker, records_per_s=pace), uid="numbers")
        .key_by(lambda record: record[0])
        .reduce(lambda total, new: (new[0], total[1] + new[1], new[2]), uid="sum")
        .sink(sink, uid="out")
    )
    return sink


def _stamped(keys: int, warming_up: int) -> Maker:
    """Key, 1, and the moment of creation in ns since 1970; 0 for the records that are made first."""

    def make(start: int, stop: int, split_start: int) -> list[Any]:
        warm = max(start, min(stop, split_start + warming_up))
        first = [(number * SPREAD % keys, 1, 0) for number in range(start, warm)]
        return first + [(number * SPREAD % keys, 1, time.time_ns()) for number in range(warm, stop)]

    return make


BUILDS: dict[str, Build] = {
    "keyed-sum": _keyed_sum,
    "keyed-sum-str": _keyed_sum_str,
    "keyed-sum-rows": _keyed_sum_rows,
    "keyed-pass": _keyed_pass,
    "filter-project": _filter_project,
    "tumbling-count": _tumbling_count,
    "interval-join": _interval_join,
    "latency": _latency,
}


def start(
    work: Work, options: rt.Options | None = None, cluster: rt.HostCluster | None = None
) -> tuple[rt.Job, CheckSink]:
    """The job, under way; the options of `work` come on top."""
    env = rt.Environment(parallelism=work.parallelism)
    sink = BUILDS[work.work](env, work)
    checkpointing, options = None, options or rt.Options(placement="slots")
    if work.checkpoint_ms:
        every = f"{work.checkpoint_ms}ms"
        checkpointing = rt.Checkpointing(work.storage, interval=every, mode=work.mode)
    job = env.start(
        work.work,
        checkpointing=checkpointing,
        cluster=cluster,
        options=replace(
            options,
            buffer_timeout=f"{work.buffer_timeout_ms}ms",
            limits=replace(options.limits, source_poll_s=_POLL_S),
        ),
    )
    return job, sink


def main() -> None:
    work = Work.parse(sys.argv[1:])
    long = rt.Limits(
        row_input_queue_bytes=rt.Limits().input_queue_bytes,
        row_output_queue_bytes=rt.Limits().output_queue_bytes,
    )
    options = rt.Options(
        limits=long if LONG_QUEUES in sys.argv[1:] else rt.Limits(),
        trace=TRACED in sys.argv[1:],
        kernels="numpy" if NUMPY_ALONE in sys.argv[1:] else "auto",
        flush="on_demand" if ON_DEMAND in sys.argv[1:] else "timeout",
        placement="subtask" if PROCESSES in sys.argv[1:] else "slots",
        workers=work.parallelism if WIDE in sys.argv[1:] else None,
    )
    job, sink = start(work, options)
    result = job.wait()
    checkpoints = result.completed_checkpoints if work.checkpoint_ms else 0
    report(sink.tally, sink.ended_at, checkpoints)


if __name__ == "__main__":
    main()
