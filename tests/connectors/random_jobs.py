"""What random jobs over random events have in common, and the two ways to crash them.

A job writes results and late records to two sinks. `simulated` runs it in the simulator, through crashes
and a rescale; `killed` in worker processes, of which some are killed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import sleep
from typing import Any

import minirt as rt
from minirt.modes import MODES
from minirt.testing import TransactionalSink, simulate
from tests.runtime.campaign import kill_processes, read_files

DAY_MS = 86_400_000
CHANGES = (
    ("Europe/Berlin", 1711846800000),
    ("Europe/Berlin", 1729990800000),
    ("America/New_York", 1710054000000),
    ("America/Sao_Paulo", 1541300400000),  # There the clocks skipped midnight,
    ("America/Sao_Paulo", 1518919200000),  # and here the hour before it came twice.
    ("America/Havana", 1730606400000),
    ("Australia/Lord_Howe", 1712415600000),
    ("Asia/Kathmandu", 504901800000),
)
"""Zones, each with an instant at or near which the clocks there were changed."""

EXACT = sorted(name for name, mode in MODES.items() if mode.exactly_once)

_JOB_S_MAX = 60.0
_PAUSE_S = 0.02
"""Between two batches of a job of processes: it lasts long enough to be killed, and no longer."""

KILLED_EVENTS_MIN = 40
"""In one split of a job whose processes are killed."""

Event = dict[str, Any]
Splits = Sequence[Sequence[Event]]

Build = Callable[[rt.Environment, rt.Sink, rt.Sink, float], None]
"""Adds a job to an environment, given sinks for results and late records, and how long sources pause."""


@dataclass(frozen=True)
class Ran:
    """What a job gave out."""

    results: list[Event]
    late: list[Event]
    crashes: int
    """Restarts in the simulator, or how many processes were killed."""


class GivenSplits(rt.Source):
    """Splits of given events, in small batches; every other time there are none yet."""

    interleave = True

    def __init__(self, splits: Splits, pause_s: float = 0.0) -> None:
        self.splits = splits
        self.pause_s = pause_s

    def plan_splits(self, parallelism: int) -> Sequence[rt.Split]:
        return [rt.Split(str(place), {"place": place}) for place in range(len(self.splits))]

    def open_split(self, split: rt.Split, offset: Any) -> rt.SplitReader:
        return _Reader(self.splits[split.info["place"]], offset or 0, self.pause_s)


class _Reader(rt.SplitReader):
    def __init__(self, events: Sequence[Event], offset: int, pause_s: float) -> None:
        self.offset = offset
        self._events = events
        self._pause_s = pause_s
        self._waiting = False

    def read(self) -> list[Event] | None:
        self._waiting = not self._waiting
        if self._waiting:
            sleep(self._pause_s)
            return []
        stop = min(len(self._events), self.offset + 1 + self.offset % 5)
        batch = [dict(event) for event in self._events[self.offset : stop]]
        self.offset = stop
        return batch or None


def lasts(splits: Splits) -> bool:
    """Whether there is time to kill processes of a job that reads these."""
    return max(map(len, splits)) >= KILLED_EVENTS_MIN


def draw_splits(
    random: Random, first_ms: int, span_ms: int, disorder_ms: int, of: Callable[[], Event]
) -> Splits:
    """Splits of events, each no further out of order than the disorder; `of` draws what else is in one."""
    splits = []
    for split in range(random.randint(1, 3)):
        count = random.choice((0, 5, 40, 40))
        times = sorted(first_ms + random.randrange(span_ms) for _ in range(count))
        times.sort(key=lambda time: time + random.randint(0, disorder_ms))
        splits.append(
            [{"id": f"{split} {place}", "t": time, **of()} for place, time in enumerate(times)]
        )
    return splits


def simulated(build: Build, seed: int, mode: str, widths: Sequence[int]) -> Ran:
    """At one width and then at the other, with crashes as the seed draws them."""
    results, late = TransactionalSink(), TransactionalSink()
    forms = [rt.Environment(parallelism=width, max_parallelism=8) for width in widths]
    for env in forms:
        build(env, results, late, 0.0)
    checkpointing = rt.Checkpointing("simulated://", interval="20ms", mode=mode)
    ran = simulate(forms[0], seed=seed, checkpointing=checkpointing, rescaled=forms[1:])
    ran.check()
    return Ran([*results.rows], [*late.rows], ran.restarts)


def killed(build: Build, seed: int, mode: str, width: int, folder: Path, kills: int = 2) -> Ran:
    """In worker processes, at least one of which gets a SIGKILL. The job must last: see `lasts`."""
    env = rt.Environment("random", parallelism=width, max_parallelism=8)
    build(env, rt.JsonlSink(folder / "results"), rt.JsonlSink(folder / "late"), _PAUSE_S)
    job = env.start(
        checkpointing=rt.Checkpointing(str(folder / "checkpoints"), interval="50ms", mode=mode),
        restart=rt.Restart.fixed_delay(attempts=None, delay="10ms"),
    )
    try:
        done = kill_processes(job, kills, seed)
        job.wait(_JOB_S_MAX)
    finally:
        job.cancel()
    assert done, "the job was over before anybody was killed"
    return Ran(read_files(folder / "results"), read_files(folder / "late"), done)
