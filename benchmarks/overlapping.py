"""What checkpoints that overlap cost and give: `python -m benchmarks.overlapping`.

A checkpoint takes longer than the interval: its barriers wait behind queued records, and then its output
takes its time to become durable, as with a distant store. One job for each mode and number of checkpoints
that may be under way at once, at a steady rate, with state of many keys. Figures: how many complete a
second, how long each takes, how far a failure at the worst moment would take the job back (from the trigger
of a complete checkpoint to the completion of the next one), and what is stored, used and held for it.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import minirt as rt
from benchmarks.measure import Checkpoints, Usage, milliseconds, print_rows
from minirt.data.batch import Batch
from minirt.modes import MODES
from minirt.protocol.barriers import may_overlap

MODES_THAT_OVERLAP = [name for name, mode in MODES.items() if may_overlap(mode)]
LIMITS = rt.Limits(input_queue_bytes=4096, output_queue_bytes=2048)
"""What is queued is some tenths of a second of work for the slow map."""
_WARM_S = 3.0
"""So long a job runs before anything counts: by then its queues are full."""


class SlowToStore(rt.Sink):
    """Discards records; what becomes durable with a checkpoint takes so many seconds."""

    def __init__(self, store_s: float) -> None:
        self._store_s = store_s

    def open_writer(self, context: rt.SinkContext) -> rt.SinkWriter:
        return _SlowWriter(self._store_s)

    def commit(self, handles: Sequence[dict[str, Any]]) -> None:
        """There is nothing to show."""


class _SlowWriter(rt.SinkWriter):
    def __init__(self, store_s: float) -> None:
        self._store_s = store_s

    def write(self, batch: Batch) -> None:
        """Nothing is kept."""

    def prepare(self, checkpoint_id: int) -> rt.Prepared:
        return rt.Prepared([{"of": checkpoint_id}], lambda: time.sleep(self._store_s))


class Pause:
    """Takes so many seconds for each record."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __call__(self, record: Any) -> Any:
        time.sleep(self._seconds)
        return record


def queued_job(asked: argparse.Namespace) -> rt.Environment:
    """A map that takes its time, so that all queues up to it are full, behind state of many keys."""
    env = rt.Environment(parallelism=asked.parallelism)
    pause = Pause(asked.record_ms / 1000)
    (
        env.source(rt.SequenceSource.endless(splits=asked.parallelism), uid="numbers")
        .map(lambda number: (number % asked.keys, 1), uid="pairs")
        .key_by(lambda pair: pair[0])
        .reduce(lambda one, other: (one[0], one[1] + other[1]), uid="counts")
        .rebalance()
        .map(pause, uid="slow")
        .sink(SlowToStore(asked.store_ms / 1000), uid="out")
    )
    return env


def measure(asked: argparse.Namespace, mode: str, most: int) -> dict[str, Any]:
    """One row."""
    seen, usage = Checkpoints(), Usage(os.getpid())
    with tempfile.TemporaryDirectory() as storage:
        job = queued_job(asked).start(
            "overlapping",
            checkpointing=rt.Checkpointing(
                storage, interval=asked.interval, mode=mode, max_concurrent=most
            ),
            observer=seen,
            options=rt.Options(limits=LIMITS),
        )
        try:
            _wait_for_a_checkpoint(job, seen)
            time.sleep(_WARM_S)
            usage.begin()
            before, came = len(seen.ended), _processed(job)
            time.sleep(asked.seconds)
            ended, records = seen.ended[before:], _processed(job) - came
        finally:
            job.cancel()
            job.wait()
            usage.stop()
    completed = [report for report in ended if report.completed]
    return {
        "mode": mode,
        "max_concurrent": most,
        "completed_per_s": round(len(completed) / asked.seconds, 2),
        "failed": len(ended) - len(completed),
        "duration_ms": milliseconds(report.duration_s for report in completed),
        "back_at_worst_ms": milliseconds(back_at_worst(completed)),
        "stored_kb_per_s": round(
            sum(report.bytes or 0 for report in completed) / asked.seconds / 1000
        ),
        "records_per_s": round(records / asked.seconds),
        "cpu": round(usage.cpu_s / asked.seconds, 2),
        "peak_mb": round(usage.peak_rss_bytes / 1e6),
    }


def back_at_worst(completed: Sequence[rt.CheckpointReport]) -> Iterable[float]:
    """Seconds from the trigger of each checkpoint to the moment when the next one was complete.

    A failure in that moment would take the job back to the trigger.
    """
    ends = [report.triggered_at + report.duration_s for report in completed]
    triggers = [report.triggered_at for report in completed]
    return [end - trigger for trigger, (_, end) in zip(triggers, pairwise(ends), strict=False)]


def _processed(job: rt.Job) -> int:
    """How many records have come to the slow map."""
    progress = job.progress
    slow = [id for id, name in progress.names.items() if "slow" in name or "Pause" in name]
    return sum(progress.metrics[id].records_in for id in slow if id in progress.metrics)


def _wait_for_a_checkpoint(job: rt.Job, seen: Checkpoints) -> None:
    """Raises TimeoutError, or why the job has ended."""
    give_up_at = time.monotonic() + 120
    while not seen.completed:
        if job.status in (rt.JobStatus.FAILED, rt.JobStatus.FINISHED):
            job.wait()
        if time.monotonic() > give_up_at:
            raise TimeoutError("no checkpoint was complete within 120 s")
        time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--max-concurrent", nargs="+", type=int, default=[1, 2, 4, 8])
    parser.add_argument(
        "--modes", nargs="+", choices=MODES_THAT_OVERLAP, default=MODES_THAT_OVERLAP
    )
    parser.add_argument("--interval", default="200ms", help="from one checkpoint to the next")
    parser.add_argument("--store-ms", type=float, default=150, help="until output is durable")
    parser.add_argument("--record-ms", type=float, default=0.1, help="of the slow map")
    parser.add_argument("--keys", type=int, default=100_000, help="with state, in all")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to measure each")
    parser.add_argument("--json", help="write the rows to this file, - for standard output")
    asked = parser.parse_args()
    rows = [measure(asked, mode, most) for mode in asked.modes for most in asked.max_concurrent]
    print_rows(rows, asked.json)


if __name__ == "__main__":
    main()
