"""From SIGKILL of a worker to the first new record at the sink: `python -m benchmarks.recovery`."""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
import time
from pathlib import Path

import minirt as rt
from benchmarks.checkpoints import paced_job
from benchmarks.measure import percentiles, print_rows
from minirt.data.batch import Batch

_PAUSE_S = 1.5
"""Between two kills: several checkpoints complete meanwhile."""


class FirstRecordSink(rt.Sink):
    """Notes in a file of each generation when its first record arrived."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def open_writer(self, context: rt.SinkContext) -> rt.SinkWriter:
        return _FirstRecordWriter(Path(self._folder, f"{context.generation}-{context.subtask}"))


class _FirstRecordWriter(rt.SinkWriter):
    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = False

    def write(self, batch: Batch) -> None:
        if not self._seen and len(batch):
            self._seen = True
            self._path.write_text(str(time.time()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=15)
    parser.add_argument("--delay", default="0s", help="the restart strategy's delay")
    parser.add_argument("--json", help="write the rows to this file, - for standard output")
    arguments = parser.parse_args()
    recoveries: list[float] = []
    with tempfile.TemporaryDirectory() as storage, tempfile.TemporaryDirectory() as notes:
        job = paced_job(2, FirstRecordSink(notes)).start(
            "recovery",
            checkpointing=rt.Checkpointing(storage, interval="200ms"),
            restart=rt.Restart.fixed_delay(attempts=None, delay=arguments.delay),
        )
        for kill in range(arguments.kills):
            wait_for(notes, kill + 1)
            time.sleep(_PAUSE_S)
            killed_at = time.time()
            os.kill(random.choice(list(job.progress.pids.values())), signal.SIGKILL)
            recoveries.append(wait_for(notes, kill + 2) - killed_at)
        job.cancel()
        job.wait()
    row = {
        "case": "kill-to-first-record",
        "kills": len(recoveries),
        "recovery_s": {name: round(value, 4) for name, value in percentiles(recoveries).items()},
    }
    print_rows([row], arguments.json)


def wait_for(notes: str, generation: int, timeout_s: float = 30.0) -> float:
    """When the first record of a generation arrived."""
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        times = [path.read_text() for path in Path(notes).glob(f"{generation}-*")]
        known = [float(text) for text in times if text]
        if known:
            return min(known)
        time.sleep(0.002)
    raise TimeoutError(f"generation {generation} brought no record within {timeout_s} s")


if __name__ == "__main__":
    main()
