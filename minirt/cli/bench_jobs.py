"""The small jobs of `minirt bench`: records a second, and checkpoints while all queues are full."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from minirt.aggregates import Sum
from minirt.api.environment import Environment
from minirt.cli.bench_payload import payload
from minirt.config import Checkpointing
from minirt.io.base import Source, Split, SplitReader
from minirt.io.collection import SequenceSource
from minirt.io.simple_sinks import DiscardSink
from minirt.modes import find_mode
from minirt.monitoring.figures import Rates
from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.protocol.barriers import HoldsSources
from minirt.protocol.job_events import ENDED
from minirt.protocol.reports import CheckpointReport
from minirt.runtime.coordinator.observer import JobObserver

if TYPE_CHECKING:
    from minirt.runtime.program.job import Job

KEYS = 1000
RECORD_S = 0.0001
"""The least time that the slow function of `checkpoints_under_backpressure` takes for a record."""

_BATCH_RECORDS = 1 << 16
_SPREAD = 2654435761
"""Multiplying by it scatters consecutive numbers over the keys."""
_WARM_S = 1.0
_FULL_S = 0.3
"""How long the sources must have waited for room before all queues count as full."""
_INTERVAL = "100ms"
_REFILL = "1s"
"""The interval where sources wait for each checkpoint: between two they fill the queues again."""
_LOOK_S = 0.02
_PATIENCE = 10
"""How many times the wanted seconds the benchmark waits for the first checkpoint at most."""


def keyed_sum_rows() -> Environment:
    """Python functions over rows; each record gives an update."""
    env = Environment("keyed-sum-rows", parallelism=2)
    pairs = env.source(SequenceSource.endless(), uid="numbers").map(_pair, uid="pairs")
    pairs.key_by(_key).reduce(_add, uid="sum").sink(DiscardSink(), uid="out")
    return env


def keyed_sum_columns() -> Environment:
    """An aggregate over columns; each batch gives an update for each of its keys."""
    env = Environment("keyed-sum-columns", parallelism=2)
    columns = env.source(EndlessColumns(), uid="numbers")
    columns.key_by("k").aggregate(Sum("v"), uid="sum").sink(DiscardSink(), uid="out")
    return env


def slow_job() -> Environment:
    """A job whose sources wait for a slow function."""
    env = Environment("checkpoints", parallelism=2)
    records = env.source(SequenceSource.endless(), uid="numbers").map(_with_payload, uid="payload")
    records.key_by(_key).map(_slowly, uid="slow").sink(DiscardSink(), uid="out")
    return env


CASES: Mapping[str, Callable[[], Environment]] = {
    "keyed-sum-rows": keyed_sum_rows,
    "keyed-sum-columns": keyed_sum_columns,
}


def records_per_s(env: Environment, seconds: float) -> float:
    """The records that operator "sum" takes in over so many seconds, with a checkpoint every second."""
    with _running(env, interval="1s") as job:
        began = _totals(job, "sum", lambda one: one.records_in > 0 and one.accounted_s > _WARM_S)
        until = max(one.accounted_s for one in began) + seconds
        ended = _totals(job, "sum", lambda one: one.accounted_s >= until)
    pairs = zip(began, ended, strict=True)
    return sum(Rates.between(earlier, later).records_in for earlier, later in pairs)


def checkpoints_under_backpressure(mode: str, seconds: float) -> list[CheckpointReport]:
    """Those that completed in so many seconds; the first one is waited for."""
    reports: list[CheckpointReport] = []
    seen = _Completed()
    interval = _REFILL if isinstance(find_mode(mode), HoldsSources) else _INTERVAL
    with _running(slow_job(), interval=interval, mode=mode, observer=seen) as job:
        _totals(job, "numbers", lambda one: one.soft_backpressure_s > _FULL_S)
        full_at = time.monotonic()
        while (passed := time.monotonic() - full_at) < seconds * _PATIENCE:
            reports = [report for report in seen.reports if report.triggered_at >= full_at]
            if reports and passed >= seconds:
                break
            time.sleep(_LOOK_S)
    return reports


class EndlessColumns(Source):
    """Columns "k", of so many keys, and "v". The same batch is given out again and again."""

    bounded = False

    def schema(self) -> pa.Schema:
        return pa.schema({"k": pa.int64(), "v": pa.int64()})

    def plan_splits(self, parallelism: int) -> Sequence[Split]:
        return [Split(f"{number}", {}) for number in range(parallelism)]

    def open_split(self, split: Split, offset: Any) -> SplitReader:
        numbers = np.arange(_BATCH_RECORDS, dtype=np.int64)
        batch = pa.record_batch([numbers * _SPREAD % KEYS, numbers], schema=self.schema())
        return _SameBatch(batch, offset or 0)


class _SameBatch(SplitReader):
    """Its offset is the number of batches given out."""

    def __init__(self, batch: pa.RecordBatch, offset: int) -> None:
        self._batch = batch
        self.offset = offset

    def read(self) -> pa.RecordBatch:
        self.offset += 1
        return self._batch


class _Completed(JobObserver):
    def __init__(self) -> None:
        self.reports: list[CheckpointReport] = []

    def on_checkpoint(self, report: CheckpointReport) -> None:
        if report.completed:
            self.reports.append(report)


@contextmanager
def _running(
    env: Environment, observer: JobObserver | None = None, **checkpointing: Any
) -> Iterator[Job]:
    """The job, with a storage of its own. It is cancelled in the end."""
    with tempfile.TemporaryDirectory(prefix="minirt-bench-") as storage:
        job = env.start(checkpointing=Checkpointing(storage, **checkpointing), observer=observer)
        try:
            yield job
        finally:
            job.cancel()
            job.wait_for_end()


def _totals(
    job: Job, operator: str, ready: Callable[[SubtaskMetrics], bool]
) -> list[SubtaskMetrics]:
    """The metrics of the subtasks of an operator, once all are ready. Raises as the job does."""
    while True:
        if job.status in ENDED:
            job.wait()
        found = [one.totals for one in job.figures.subtasks if one.operator == operator]
        if len(found) == 2 and all(map(ready, found)):
            return [copy(one) for one in found]
        time.sleep(_LOOK_S)


def _pair(number: int) -> tuple[int, int]:
    return (number * _SPREAD % KEYS, 1)


def _key(pair: tuple[int, Any]) -> int:
    return pair[0]


def _add(total: tuple[int, int], pair: tuple[int, int]) -> tuple[int, int]:
    return (total[0], total[1] + pair[1])


def _with_payload(number: int) -> tuple[int, str]:
    return (number * _SPREAD % KEYS, payload(number))


def _slowly(record: tuple[int, str]) -> tuple[int, str]:
    time.sleep(RECORD_S)
    return record
