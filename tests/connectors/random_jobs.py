"""What random jobs over random events have in common, and the two ways to crash them.

A job writes results and late records to two sinks. `simulated` runs it in the simulator, through crashes
and a rescale; `killed` in worker processes, through kills and a rescale.
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
"""Between two batches of a job of processes: a kill may come while there are some."""

_KILLED_EVENTS_MIN = 40
"""In one split of a job whose processes are killed."""

Event = dict[str, Any]
Splits = Sequence[Sequence[Event]]


@dataclass(frozen=True)
class Pace:
    """How fast splits are read: by default as fast as may be."""

    pause_s: float = 0.0
    """Between two batches."""
    gates: Sequence[Path] = ()
    """Files, each of which lets readers into a further part of their split; the parts are alike in size."""

    def readable(self, events: int) -> int:
        """How many of so many events may be read by now."""
        opened = sum(gate.exists() for gate in self.gates)
        return events * (1 + opened) // (1 + len(self.gates))


AT_ONCE = Pace()

Build = Callable[[rt.Environment, rt.Sink, rt.Sink, Pace], None]
"""Adds a job to an environment, given sinks for results and late records, and the pace of its sources."""


@dataclass(frozen=True)
class Ran:
    """What a job gave out."""

    results: list[Event]
    late: list[Event]
    crashes: int
    """Restarts in the simulator, or how many workers were killed."""


class GivenSplits(rt.Source):
    """Splits of given events, in small batches; every other time there are none yet."""

    interleave = True

    def __init__(self, splits: Splits, pace: Pace) -> None:
        self.splits = splits
        self.pace = pace

    def plan_splits(self, parallelism: int) -> Sequence[rt.Split]:
        return [rt.Split(str(place), {"place": place}) for place in range(len(self.splits))]

    def open_split(self, split: rt.Split, offset: Any) -> rt.SplitReader:
        return _Reader(self.splits[split.info["place"]], offset or 0, self.pace)


class _Reader(rt.SplitReader):
    def __init__(self, events: Sequence[Event], offset: int, pace: Pace) -> None:
        self.offset = offset
        self._events = events
        self._pace = pace
        self._waiting = False

    def read(self) -> list[Event] | None:
        if self.offset == len(self._events):
            return None
        self._waiting = not self._waiting
        if self._waiting:
            sleep(self._pace.pause_s)
            return []
        readable = self._pace.readable(len(self._events))
        stop = min(readable, self.offset + 1 + self.offset % 5)
        batch = [dict(event) for event in self._events[self.offset : stop]]
        self.offset = max(self.offset, stop)
        return batch


def lasts(splits: Splits) -> bool:
    """Whether there is time to kill processes of a job that reads these."""
    return max(map(len, splits)) >= _KILLED_EVENTS_MIN


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
        build(env, results, late, AT_ONCE)
    checkpointing = rt.Checkpointing("simulated://", interval="20ms", mode=mode)
    ran = simulate(forms[0], seed=seed, checkpointing=checkpointing, rescaled=forms[1:])
    ran.check()
    return Ran([*results.rows], [*late.rows], ran.restarts)


def _stop(job: rt.Job) -> None:
    """A savepoint that the kill has hit is asked for again."""
    for last in (False, True):
        try:
            job.stop(timeout=_JOB_S_MAX)
            return
        except rt.SavepointFailedError:
            if last:
                raise


def killed(build: Build, seed: int, mode: str, widths: Sequence[int], folder: Path) -> Ran:
    """In worker processes at one width and then at the other; at each, a worker gets a SIGKILL.

    In between the job is stopped with a savepoint, or just cancelled: then it goes on from its newest
    checkpoint. The job must last: see `lasts`.
    """
    random = Random(f"killed {seed}")
    gates = [folder / f"gate {number}" for number in range(2)]
    options = rt.Options(placement=random.choice(("subtask", "slots")))
    kills = 0
    for width, gate in zip(widths, gates, strict=True):
        env = rt.Environment("random", parallelism=width, max_parallelism=8)
        results, late = (rt.JsonlSink(folder / name) for name in ("results", "late"))
        build(env, results, late, Pace(_PAUSE_S, gates))
        job = env.start(
            checkpointing=rt.Checkpointing(folder / "checkpoints", interval="50ms", mode=mode),
            restart=rt.Restart.fixed_delay(attempts=None, delay="10ms"),
            options=options,
            restore="latest",
        )
        try:
            kills += kill_processes(job, 1, random.randrange(1 << 30))
            gate.touch()
            if gate is gates[-1]:
                job.wait(_JOB_S_MAX)
            elif random.random() < 0.5:
                _stop(job)
        finally:
            job.cancel()
            job.wait_for_end()
    assert kills == len(widths), "the job was over before anybody was killed"
    return Ran(read_files(folder / "results"), read_files(folder / "late"), kills)
