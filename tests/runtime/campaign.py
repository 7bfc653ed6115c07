"""Jobs whose workers are killed while they run, and the count of what that cost."""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from minirt import (
    Checkpointing,
    Environment,
    Job,
    JobStatus,
    JsonlSink,
    Options,
    Restart,
    Stream,
)
from minirt.protocol.barriers import CheckpointMode
from tests.runtime.jobs import CASES, Case, Row, bag, build
from tests.runtime.processes import send, templates, workers

_PAUSES_S = (0.0, 0.0, 0.02, 0.1, 0.3)
"""Between two kills: at once hits the restart, later ones the job at work."""

_RUN_S_MAX = 60.0


@dataclass(frozen=True)
class Plan:
    """One run: a job, how it is placed, and whom to kill how often."""

    case: str
    mode: str | CheckpointMode = "aligned"
    parallelism: int = 2
    placement: Literal["subtask", "slots"] = "subtask"
    transport: Literal["unix", "tcp"] = "unix"
    kills: int = 3
    template_kills: int = 0
    count: int = 1500
    per_second: float = 1500.0
    seed: int = 0
    interval: str = "50ms"
    max_concurrent: int = 1


@dataclass(frozen=True)
class Outcome:
    """What came of a run. Lost and duplicated are numbers of output records."""

    kills: int
    restarts: int
    checkpoints: int
    lost: int
    duplicated: int

    def __add__(self, other: Outcome) -> Outcome:
        return Outcome(
            self.kills + other.kills,
            self.restarts + other.restarts,
            self.checkpoints + other.checkpoints,
            self.lost + other.lost,
            self.duplicated + other.duplicated,
        )


def run(plan: Plan, folder: Path) -> Outcome:
    """Run the job to its end, killing on the way, and compare its files with the oracle."""
    case = CASES[plan.case]
    env = Environment(case.name, parallelism=plan.parallelism)
    write_files(build(case, env, plan.count, per_second=plan.per_second), folder)
    job = env.start(
        checkpointing=Checkpointing(
            *(str(folder / "checkpoints"), plan.interval, plan.mode),
            max_concurrent=plan.max_concurrent,
        ),
        restart=Restart.fixed_delay(attempts=None, delay="10ms"),
        options=Options(placement=plan.placement, transport=plan.transport),
    )
    try:
        kills = kill_processes(job, plan.kills, plan.seed, plan.template_kills)
        result = job.wait(_RUN_S_MAX)
    finally:
        job.cancel()
    assert result.status is JobStatus.FINISHED
    lost, duplicated = compare(case, plan.count, plan.parallelism, folder)
    return Outcome(kills, result.restarts, result.completed_checkpoints, lost, duplicated)


def write_files(outputs: Mapping[str, Stream], folder: Path) -> None:
    for name, stream in outputs.items():
        stream.sink(JsonlSink(folder / name), uid=f"out-{name}")


def compare(case: Case, count: int, parallelism: int, folder: Path) -> tuple[int, int]:
    """Records that are missing in the files of a job, and that are there too often."""
    lost = duplicated = 0
    for name, expected in case.expected(range(count), parallelism).items():
        wanted, found = bag(expected), bag(read_files(folder / name))
        lost += (wanted - found).total()
        duplicated += (found - wanted).total()
    return lost, duplicated


def distinct_lost(case: Case, count: int, parallelism: int, folder: Path) -> int:
    """Records that are missing altogether."""
    expected = case.expected(range(count), parallelism)
    return sum(
        len(bag(rows).keys() - bag(read_files(folder / name)).keys())
        for name, rows in expected.items()
    )


def read_files(folder: Path, upto: int | None = None) -> list[Row]:
    """All records that are committed, or those `upto` a checkpoint, which is in the names of files."""
    files = sorted(folder.glob("*.jsonl"))
    if upto is not None:
        files = [file for file in files if int(file.name.split("-")[2]) <= upto]
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def kill_processes(job: Job, count: int, seed: int, template_kills: int = 0) -> int:
    """SIGKILL so many random workers of a job, some of them its template; returns how many were there."""
    chosen = random.Random(seed)
    targets = ["template"] * template_kills + ["worker"] * (count - template_kills)
    chosen.shuffle(targets)
    kills: Counter[str] = Counter()
    for target in targets:
        time.sleep(chosen.choice(_PAUSES_S) * chosen.uniform(0.5, 1.5))
        while not kills[target] and job.status is not JobStatus.RUNNING and not _over(job):
            time.sleep(0.01)
        while not _over(job):
            victims = templates() if target == "template" else workers()
            if victims and send(chosen.choice(victims), signal.SIGKILL):
                kills[target] += 1
                break
            time.sleep(0.002)
    return kills.total()


def _over(job: Job) -> bool:
    return job.status in (JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELLED)
