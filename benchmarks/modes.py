"""How long checkpoints take under full backpressure, by mode: `python -m benchmarks.modes`.

The job is source > key_by > map > key_by > slow map > sink with a payload of 100 bytes. The sink is slow,
so all queues are full. Recovery time and stored bytes stand beside the time of a checkpoint, since a
mode that is better in one may be worse in the others.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from collections.abc import Mapping
from typing import Any

import minirt as rt
from benchmarks.measure import Checkpoints, milliseconds, print_rows
from benchmarks.recovery import FirstRecordSink, wait_for

KEYS = 1000
PAYLOAD = "x" * 100
MODES = ("aligned", "unaligned")
RECORD_MS = (0.1, 1.0, 10.0, 100.0)

_FULL_S = 30.0
"""How long to wait at most for the source to feel backpressure."""


class Slow:
    """Takes its time for each record."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __call__(self, record: Any) -> Any:
        time.sleep(self._seconds)
        return record


def backpressured_job(parallelism: int, record_s: float, sink: rt.Sink) -> rt.Environment:
    env = rt.Environment(parallelism=parallelism)
    (
        env.source(rt.SequenceSource.endless(splits=parallelism), uid="numbers")
        .map(lambda number: (number, number % KEYS, PAYLOAD), uid="pay")
        .key_by(lambda record: record[1])
        .map(lambda record: record, uid="first")
        .key_by(lambda record: record[0] % KEYS)
        .map(Slow(record_s), uid="slow")
        .sink(sink, uid="out")
    )
    return env


def measure(
    mode: str, record_ms: float, parallelism: int, seconds: float, count: int
) -> dict[str, Any]:
    """One row: checkpoints for `seconds`, or until `count` have completed; then one recovery."""
    seen = Checkpoints()
    with tempfile.TemporaryDirectory() as storage, tempfile.TemporaryDirectory() as notes:
        job = backpressured_job(parallelism, record_ms / 1000, FirstRecordSink(notes)).start(
            "modes",
            checkpointing=rt.Checkpointing(storage, interval="1s", mode=mode),
            restart=rt.Restart.fixed_delay(attempts=None, delay="0s"),
            observer=seen,
        )
        wait_for(notes, 1)
        _wait_until_full(job)
        before, began = len(seen.completed), time.monotonic()
        processed = _sink_records(job)
        while time.monotonic() - began < seconds and len(seen.completed) - before < count:
            time.sleep(0.05)
        rate = (_sink_records(job) - processed) / (time.monotonic() - began)
        measured = seen.completed[before:]
        recovery_ms = _recovery_ms(job, notes) if seen.completed else None
        job.cancel()
        job.wait()
    return {
        "mode": mode,
        "record_ms": record_ms,
        "parallelism": parallelism,
        "debloat": False,
        "checkpoints": len(measured),
        "duration_ms": milliseconds(entry["duration_s"] for entry in measured),
        **{f"{part}_ms": _worst_ms(measured, f"{part}_s") for part in _PARTS},
        "in_flight_bytes": _mean(measured, "in_flight_bytes"),
        "state_bytes": _mean(measured, "state_bytes"),
        "records_per_s": rate,
        "recovery_ms": recovery_ms,
    }


_PARTS = ("alignment", "start_delay", "sync", "async")


def _wait_until_full(job: rt.Job) -> None:
    """Until the first source has waited for room for half a second."""
    until = time.monotonic() + _FULL_S
    while time.monotonic() < until:
        waited = [
            metrics.soft_backpressure_s
            for subtask, metrics in job.progress.metrics.items()
            if subtask.vertex == 0
        ]
        if waited and min(waited) > 0.5:
            return
        time.sleep(0.05)


def _sink_records(job: rt.Job) -> int:
    metrics = job.progress.metrics
    last = max(subtask.vertex for subtask in metrics)
    return sum(figures.records_in for subtask, figures in metrics.items() if subtask.vertex == last)


def _recovery_ms(job: rt.Job, notes: str) -> float:
    """From SIGKILL of a worker to the first record at the sink."""
    killed_at = time.time()
    os.kill(next(iter(job.progress.pids.values())), signal.SIGKILL)
    return round((wait_for(notes, 2) - killed_at) * 1000, 1)


def _worst_ms(entries: list[Mapping[str, Any]], part: str) -> dict[str, float]:
    """Of each checkpoint the subtask that took longest."""
    return milliseconds(max(subtask[part] for subtask in entry["subtasks"]) for entry in entries)


def _mean(entries: list[Mapping[str, Any]], part: str) -> float | None:
    totals = [sum(subtask[part] for subtask in entry["subtasks"]) for entry in entries]
    return round(sum(totals) / len(totals)) if totals else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modes", nargs="+", default=list(MODES), help="checkpoint modes")
    parser.add_argument("--record-ms", nargs="+", type=float, default=list(RECORD_MS))
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=120.0, help="at most, for each row")
    parser.add_argument("--count", type=int, default=20, help="checkpoints are enough for a row")
    parser.add_argument("--quick", action="store_true", help="some seconds a row, under a minute")
    parser.add_argument("--json", help="write the rows to this file, - for standard output")
    arguments = parser.parse_args()
    seconds, count = (4.0, 3) if arguments.quick else (arguments.seconds, arguments.count)
    rows = [
        measure(mode, record_ms, arguments.parallelism, seconds, count)
        for record_ms in arguments.record_ms
        for mode in arguments.modes
    ]
    print_rows(rows, arguments.json)


if __name__ == "__main__":
    main()
