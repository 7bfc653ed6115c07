"""What debloating does to checkpoints under full backpressure: `python -m benchmarks.debloat`.

The job is source > key_by > map > key_by > slow map > sink, with 100 bytes of text in each record. The slow
map takes 1 ms per record on average, in two ways: *steady*, the same time for each, and *bursty*, 5,000 at
once and then a pause of 5 s.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from typing import Any

import minirt as rt
from benchmarks.latest_sink import LatestSink
from benchmarks.measure import Checkpoints, milliseconds, print_rows

KEYS = 1000
MODES = ("aligned", "unaligned")

_SETTLE_S = 20.0
"""Seconds from the start of the job to the first checkpoint that counts."""


class Paced:
    """Makes one record in `record_s` on average, but rests only once every `burst` records."""

    def __init__(self, record_s: float, burst: int) -> None:
        self._pause_s = record_s * burst
        self._burst = burst
        self._count = 0

    def __call__(self, record: tuple[int, int, str]) -> tuple[int, int]:
        self._count += 1
        if self._count % self._burst == 0:
            time.sleep(self._pause_s)
        return record[1], record[0]


SINKS: dict[str, Callable[[], Paced]] = {
    "steady": lambda: Paced(0.001, 1),
    "bursty": lambda: Paced(0.001, 5000),
}


def paced_job(parallelism: int, paced: Paced) -> rt.Environment:
    env = rt.Environment(parallelism=parallelism)
    (
        env.source(rt.SequenceSource.endless(splits=parallelism), uid="numbers")
        .map(lambda number: (number, number % KEYS, f"{number:0100}"), uid="pay")
        .key_by(lambda record: record[1])
        .map(lambda record: record, uid="first")
        .key_by(lambda record: record[0] % KEYS)
        .map(paced, uid="slow")
        .sink(LatestSink(), uid="out")
    )
    return env


def measure(
    sink: str, mode: str, debloat: str | None, parallelism: int, seconds: float, settle_s: float
) -> dict[str, Any]:
    """One row: the checkpoints that complete within `seconds`."""
    seen = Checkpoints()
    with tempfile.TemporaryDirectory() as storage:
        job = paced_job(parallelism, SINKS[sink]()).start(
            "debloat",
            checkpointing=rt.Checkpointing(storage, interval="1s", mode=mode),
            options=rt.Options(debloat=debloat),
            observer=seen,
        )
        time.sleep(settle_s)
        before, processed, began = len(seen.completed), _sink_records(job), time.monotonic()
        time.sleep(seconds)
        rate = (_sink_records(job) - processed) / (time.monotonic() - began)
        windows = [metrics.input_window_bytes for metrics in job.progress.metrics.values()]
        job.cancel()
        job.wait()
    measured = seen.completed[before:]
    in_flight = [report.in_flight_bytes for report in measured]
    return {
        "sink": sink,
        "mode": mode,
        "debloat": debloat,
        "parallelism": parallelism,
        "checkpoints": len(measured),
        "duration_ms": milliseconds(report.duration_s for report in measured),
        "in_flight_bytes": round(sum(in_flight) / len(in_flight)) if in_flight else None,
        "records_per_s": rate,
        "window_bytes": sum(windows),
    }


def _sink_records(job: rt.Job) -> int:
    metrics = job.progress.metrics
    last = max((subtask.vertex for subtask in metrics), default=0)
    return sum(figures.records_in for subtask, figures in metrics.items() if subtask.vertex == last)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sinks", nargs="+", choices=list(SINKS), default=list(SINKS))
    parser.add_argument("--modes", nargs="+", default=list(MODES), help="checkpoint modes")
    parser.add_argument("--target", default="1s", help="of debloating; compared with none")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=120.0, help="for each row")
    parser.add_argument("--quick", action="store_true", help="some seconds a row, under a minute")
    parser.add_argument("--json", help="write the rows to this file, - for standard output")
    arguments = parser.parse_args()
    seconds, settle_s = (2.0, 3.0) if arguments.quick else (arguments.seconds, _SETTLE_S)
    rows = [
        measure(sink, mode, debloat, arguments.parallelism, seconds, settle_s)
        for sink in arguments.sinks
        for mode in arguments.modes
        for debloat in (None, arguments.target)
    ]
    print_rows(rows, arguments.json)


if __name__ == "__main__":
    main()
