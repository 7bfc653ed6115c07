"""Crash and recover: a worker is killed in the middle of a job, and no result is lost or repeated.

Run it:  python examples/crash_and_recover.py
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

import minirt as rt

NUMBERS = 3000
KEYS = 7


def slowly(number: int) -> dict:
    time.sleep(0.001)
    return {"key": number % KEYS, "sum": number}


def add(total: dict, record: dict) -> dict:
    return {"key": total["key"], "sum": total["sum"] + record["sum"]}


def wait_for_checkpoint(checkpoints: Path) -> None:
    """A checkpoint is complete once its manifest exists."""
    while not list(checkpoints.glob("manifests/*")):
        time.sleep(0.02)


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="crash-"))
    env = rt.Environment("sums", parallelism=2)
    numbers = env.source(rt.SequenceSource(1, NUMBERS + 1), uid="numbers").map(slowly, uid="slowly")
    sums = numbers.key_by("key").reduce(add, uid="sums")
    sums.sink(rt.JsonlSink(folder / "out"), uid="out")

    checkpoints = folder / "checkpoints"
    job = env.start(checkpointing=rt.Checkpointing(str(checkpoints), interval="200ms"))
    wait_for_checkpoint(checkpoints)
    victim = next(iter(job.progress.pids.values()))
    os.kill(victim, signal.SIGKILL)
    print("killed one worker of", len(set(job.progress.pids.values())))
    result = job.wait()

    rows = [
        json.loads(line)
        for file in (folder / "out").glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    print(f"{result.status.value} after {result.restarts} restart")
    print("results:", len(rows), "of", NUMBERS)
    # The sums of a key only grow, so a result that came twice would be seen here.
    print("repeated:", sum(n - 1 for n in Counter((r["key"], r["sum"]) for r in rows).values()))
    last = max(row["sum"] for row in rows if row["key"] == 1)
    print("last sum of key 1:", last, "expected:", sum(range(1, NUMBERS + 1, KEYS)))


if __name__ == "__main__":
    main()
