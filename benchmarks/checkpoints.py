"""How long checkpoints take in a job without backpressure: `python -m benchmarks.checkpoints`."""

from __future__ import annotations

import argparse
import tempfile
import time

import minirt as rt
from benchmarks.measure import Checkpoints, milliseconds, print_rows

RECORDS_PER_S = 20_000
KEYS = 1000


def paced_job(parallelism: int, sink: rt.Sink) -> rt.Environment:
    """Counts per key, at a pace that leaves most of the machine idle."""
    env = rt.Environment(parallelism=parallelism)
    by_number = rt.Watermarks.monotonous(timestamp=lambda number: number)
    (
        env.source(
            rt.SequenceSource.endless(splits=parallelism),
            uid="numbers",
            watermarks=by_number,
            speed=RECORDS_PER_S / parallelism / 1000,
        )
        .key_by(lambda number: number % KEYS)
        .reduce(lambda total, number: total + number, uid="sum")
        .sink(sink, uid="out")
    )
    return env


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to measure")
    parser.add_argument("--interval", default="200ms", help="from one checkpoint to the next")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--json", help="write the rows to this file, - for standard output")
    arguments = parser.parse_args()
    seen = Checkpoints()
    with tempfile.TemporaryDirectory() as storage:
        job = paced_job(arguments.parallelism, rt.DiscardSink()).start(
            "checkpoints",
            checkpointing=rt.Checkpointing(storage, interval=arguments.interval),
            observer=seen,
        )
        time.sleep(arguments.seconds)
        job.cancel()
        job.wait()
    completed = seen.completed
    subtasks = [part for report in completed for part in report.subtasks]
    row = {
        "case": "checkpoint-without-backpressure",
        "parallelism": arguments.parallelism,
        "checkpoints": len(completed),
        "failed": len(seen.ended) - len(completed),
        "duration_ms": milliseconds(report.duration_s for report in completed),
        **{
            f"{part}_ms": milliseconds(getattr(subtask, f"{part}_s") for subtask in subtasks)
            for part in ("start_delay", "alignment", "sync", "async")
        },
    }
    print_rows([row], arguments.json)


if __name__ == "__main__":
    main()
