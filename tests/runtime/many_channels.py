"""What channels cost: a job with two shuffles, at one parallelism after another.

`python -m tests.runtime.many_channels --workers 2 8 32 128` prints a line for each: when it ran,
what a worker holds, and how fast records went through. Without `--workers` each subtask has a process.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import minirt as rt
from tests.runtime.jobs import Numbers
from tests.runtime.processes import resident_bytes, send, templates, wait_until, workers

_KEYS = 10_000


class Passes(rt.KeyedProcess):
    """Counts the records of each key and passes them on."""

    seen = rt.ValueState(default=0)

    def process(self, record: int, ctx: rt.KeyedContext) -> Iterator[int]:
        self.seen.set(self.seen.get() + 1)
        yield record


@dataclass(frozen=True, slots=True)
class Cost:
    """Times in seconds, sizes in bytes; what is said of workers holds for the largest one."""

    parallelism: int
    processes: int
    running_s: float
    start_cpu_s: float
    """Of all processes but the program's."""
    descriptors: int
    sockets: int
    worker_bytes: int
    records_per_s: float
    restarts: int
    rows: Sequence[int]

    def __str__(self) -> str:
        return (
            f"parallelism {self.parallelism}: {self.processes} processes, running after "
            f"{self.running_s:.1f} s and {self.start_cpu_s:.1f} s of CPU, {self.descriptors} descriptors, "
            f"{self.sockets} of them sockets, "
            f"{self.worker_bytes / 2**20:.0f} MiB, {self.records_per_s:,.0f} records/s"
        )


def measure(
    parallelism: int,
    workers_max: int | None,
    folder: Path,
    *,
    count: int,
    per_second: float | None = None,
    interval: str = "10s",
    kills: int = 0,
) -> Cost:
    """Run the job, and kill a worker so many times, each behind a checkpoint of its run.

    The job does not end before the last kill, however long checkpoints take on a busy machine.
    """
    let_go = folder / "let-go"
    env, sink = rt.Environment("many-channels", parallelism=parallelism), rt.CollectSink()
    numbers = Numbers(count, splits=parallelism, per_second=per_second, let_go=let_go)
    counted = (
        env.source(numbers, uid="numbers")
        .key_by(lambda number: number % _KEYS)
        .process(Passes(), uid="counted")
    )
    counted.key_by(lambda number: number // _KEYS).process(Passes(), uid="again").sink(
        sink, uid="out"
    )
    slots = {} if workers_max is None else {"placement": "slots", "workers": workers_max}
    began = time.monotonic()
    job = env.start(
        checkpointing=rt.Checkpointing(folder / "checkpoints", interval=interval, mode="unaligned"),
        restart=rt.Restart.fixed_delay(kills + 1, "10ms"),
        options=rt.Options(**slots),
    )
    wait_until(lambda: job.status is rt.JobStatus.RUNNING, "the job runs", 120)
    running_s = time.monotonic() - began
    hosted = workers()
    start_cpu_s = sum(map(_cpu_s, [*hosted, *templates()]))
    largest = max(hosted, key=lambda pid: len(_descriptors(pid)), default=0)
    held = _descriptors(largest) if largest else []
    memory = max(map(_bytes_of, hosted), default=0)
    for kill in range(kills):
        _await_checkpoint(job, restarts=kill)
        send(workers()[-1], signal.SIGKILL)
    let_go.touch()
    result = job.wait(600)
    took = time.monotonic() - began - running_s
    return Cost(
        parallelism,
        len(hosted),
        running_s,
        start_cpu_s,
        len(held),
        sum(each.startswith("socket:") for each in held),
        memory,
        count / took,
        result.restarts,
        sink.rows,
    )


def _await_checkpoint(job: rt.Job, *, restarts: int) -> None:
    """Wait for one more completed checkpoint, once the job has restarted so often."""
    wait_until(lambda: job.restarts == restarts, "a restart", 120)
    completed = _completed(job)
    wait_until(lambda: _completed(job) > completed, "a checkpoint", 120)


def _completed(job: rt.Job) -> int:
    return sum(report["status"] == "completed" for report in job.checkpoint_reports[1])


def _descriptors(pid: int) -> list[str]:
    try:
        return [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return []


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _bytes_of(pid: int) -> int:
    try:
        return resident_bytes(pid)
    except KeyError:
        return 0


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parallelism", type=int, nargs="+")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--records", type=int, default=300_000)
    given = parser.parse_args(arguments)
    for parallelism in given.parallelism:
        with tempfile.TemporaryDirectory() as folder:
            cost = measure(parallelism, given.workers, Path(folder), count=given.records)
        assert sorted(cost.rows) == list(range(given.records))
        print(cost, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
