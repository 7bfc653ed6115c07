"""Stop a job with a savepoint, move the savepoint, and go on with a new version of the job.

    python examples/upgrade_with_savepoint.py

The new version runs at another parallelism, keeps the sums of the old one, and adds a column. The old
checkpoints are gone by then: a savepoint that was copied needs nothing but itself.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from pathlib import Path

import minirt as rt

COUNT, KEYS = 2000, 5


def at_2000_a_second(number: int) -> int:
    time.sleep(1 / 2000)
    return number


def add(one: dict, other: dict) -> dict:
    return {**one, "sum": one["sum"] + other["sum"], "seen": one["seen"] + 1}


def job(folder: Path, version: int, parallelism: int) -> rt.Environment:
    env = rt.Environment("sums", parallelism=parallelism)
    numbers = env.source(rt.SequenceSource(COUNT, splits=4), uid="numbers").map(at_2000_a_second)
    rows = numbers.map(lambda n: {"key": n % KEYS, "sum": n, "seen": 1})
    sums = rows.key_by("key").reduce(add, uid="sums")
    sums.map(lambda row: {**row, "version": version}).sink(rt.JsonlSink(folder / "out"), uid="out")
    return env


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    first = job(folder, version=1, parallelism=2).start(
        checkpointing=rt.Checkpointing(folder / "checkpoints-1", interval="50ms")
    )
    while not list((folder / "out").glob("*.jsonl")):
        time.sleep(0.01)
    first.stop(folder / "savepoint")
    print("version 1", first.wait().status.value)

    shutil.rmtree(folder / "checkpoints-1")
    shutil.move(folder / "savepoint", folder / "moved")
    second = job(folder, version=2, parallelism=3).execute(
        checkpointing=rt.Checkpointing(folder / "checkpoints-2", interval="50ms"),
        restore=str(folder / "moved"),
    )
    print("version 2", second.status.value)

    files = (folder / "out").glob("*.jsonl")
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    last = max((row for row in rows if row["key"] == 1), key=lambda row: row["seen"])
    print("results:", len(rows), "of", COUNT, "by versions", sorted({r["version"] for r in rows}))
    print("last sum of key 1:", last["sum"], "expected:", sum(range(1, COUNT, KEYS)))


if __name__ == "__main__":
    main()
