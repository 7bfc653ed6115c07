"""How many snapshots communication-induced protocols force: `python -m benchmarks.forced_snapshots`.

Nothing is run: subtasks in stages, each of which sends to all of the next stage, take snapshots by the
clocks of mode `uncoordinated`, and in each step of time a message goes through every channel. So the
counts are the same on every machine. No circle, no useless snapshot: each that is forced is forced in
vain.

*Index*: a snapshot has an index, one above that of the last one; a message with a higher index than that
of its receiver forces one. This is mode `communication_induced`. *HMNR*: the condition of J.-M. Helary,
A. Mostefaoui, R. Netzer and M. Raynal, "Communication-Based Prevention of Useless Checkpoints in
Distributed Computations", 2000, by which CheckMate goes. It forces less, and its messages carry vectors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.measure import print_table
from minirt.protocol.ids import SubtaskId
from minirt.protocol.local_pace import LocalSnapshots

INTERVALS = 100
STEPS = 50
"""Of time, in an interval."""


@dataclass(frozen=True)
class Job:
    """Its stages, their parallelism, and how many snapshots sources take while others take one."""

    stages: int
    parallelism: int
    jitter: float = 0.1
    source_snapshots: int = 1

    @property
    def processes(self) -> int:
        return self.stages * self.parallelism

    def stage(self, process: int) -> int:
        return process // self.parallelism

    def receivers(self, process: int) -> range:
        begin = (self.stage(process) + 1) * self.parallelism
        return range(begin, min(begin + self.parallelism, self.processes))


class Process(ABC):
    """What a process knows, as far as it decides on snapshots."""

    message_bytes: int

    @abstractmethod
    def snapshot(self, index: int | None = None) -> None:
        """One is taken; a forced one has the index of the message."""

    @abstractmethod
    def forces(self, sender: Process) -> bool:
        """Whether a message of that process forces one before it is processed."""

    def on_sent(self, receiver: int) -> None:
        """A message goes to a process."""

    def on_received(self, sender: Process) -> None:
        """A message of that process is processed."""


class ByIndex(Process):
    message_bytes = 8

    def __init__(self, own: int, count: int) -> None:
        self.index = 0

    def snapshot(self, index: int | None = None) -> None:
        self.index = self.index + 1 if index is None else index

    def forces(self, sender: Process) -> bool:
        assert isinstance(sender, ByIndex)
        return sender.index > self.index


class Hmnr(Process):
    """By the letters of the paper: a clock, and for each process a count of snapshots and three bits."""

    def __init__(self, own: int, count: int) -> None:
        self.own = own
        self.clock = 0
        self.counts = [0] * count
        self.taken = [False] * count
        self.greater = [False] * count
        self.sent_to = [False] * count
        self.message_bytes = 8 * (1 + count) + -(-2 * count // 8)
        self.snapshot()

    def snapshot(self, index: int | None = None) -> None:
        others = [process != self.own for process in range(len(self.counts))]
        self.sent_to = [False] * len(others)
        self.taken, self.greater = [*others], [*others]
        self.clock += 1
        self.counts[self.own] += 1

    def forces(self, sender: Process) -> bool:
        assert isinstance(sender, Hmnr)
        own = self.own
        back = any(s and g for s, g in zip(self.sent_to, sender.greater, strict=True))
        again = sender.counts[own] == self.counts[own] and sender.taken[own]
        return (back and sender.clock > self.clock) or again

    def on_sent(self, receiver: int) -> None:
        self.sent_to[receiver] = True

    def on_received(self, sender: Process) -> None:
        assert isinstance(sender, Hmnr)
        if sender.clock > self.clock:
            self.clock, self.greater = sender.clock, [*sender.greater]
            self.greater[self.own] = False
        elif sender.clock == self.clock:
            self.greater = [a and b for a, b in zip(self.greater, sender.greater, strict=True)]
        for k, count in enumerate(sender.counts):
            if count > self.counts[k]:
                self.counts[k], self.taken[k] = count, sender.taken[k]
            elif count == self.counts[k]:
                self.taken[k] = self.taken[k] or sender.taken[k]


@dataclass
class Counts:
    by_clock: int = 0
    forced: int = 0
    message_bytes: int = 0


@dataclass
class Run:
    """A job under one protocol."""

    job: Job
    kind: Callable[[int, int], Process]
    """Of a number of its own, and of how many there are."""
    counts: Counts = field(default_factory=Counts)

    def __post_init__(self) -> None:
        job = self.job
        self.processes = [self.kind(own, job.processes) for own in range(job.processes)]
        self._ids = [SubtaskId(*divmod(own, job.parallelism)) for own in range(job.processes)]
        self._plans = [
            LocalSnapshots(1.0 if job.stage(own) else 1.0 / job.source_snapshots, job.jitter, 1)
            for own in range(job.processes)
        ]
        self._numbers = [0] * job.processes
        self._due = [
            plan.next_at(id, 1, 0.0, 0.0) for plan, id in zip(self._plans, self._ids, strict=True)
        ]

    def make(self) -> Counts:
        for step in range(INTERVALS * STEPS):
            for own in range(self.job.processes):
                self._take_if_due(own, step / STEPS)
            for own in range(self.job.processes):
                self._send(own)
        self.counts.message_bytes = self.processes[0].message_bytes
        return self.counts

    def _take_if_due(self, own: int, now: float) -> None:
        if now < self._due[own]:
            return
        self.processes[own].snapshot()
        self.counts.by_clock += 1
        self._numbers[own] += 1
        self._due[own] = self._plans[own].next_at(self._ids[own], self._numbers[own] + 1, now, 0.0)

    def _send(self, own: int) -> None:
        sender = self.processes[own]
        for place in self.job.receivers(own):
            receiver = self.processes[place]
            sender.on_sent(place)
            if receiver.forces(sender):
                receiver.snapshot(sender.index if isinstance(sender, ByIndex) else None)
                self.counts.forced += 1
            receiver.on_received(sender)


JOBS = (
    Job(2, 2),
    Job(3, 2),
    Job(5, 2),
    Job(3, 4),
    Job(3, 2, jitter=0.5),
    Job(3, 2, source_snapshots=2),
    Job(3, 4, source_snapshots=4),
)


def rows() -> list[dict[str, object]]:
    found = []
    for job in JOBS:
        index, hmnr = Run(job, ByIndex).make(), Run(job, Hmnr).make()
        found.append(
            {
                "stages": job.stages,
                "parallelism": job.parallelism,
                "jitter": job.jitter,
                "sources take": f"{job.source_snapshots} x",
                "by the clock": index.by_clock,
                "forced by index": index.forced,
                "forced by HMNR": hmnr.forced,
                "HMNR, bytes a message": hmnr.message_bytes,
            }
        )
    return found


if __name__ == "__main__":
    print_table(rows())
