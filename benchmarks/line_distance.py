"""How far recovery lines are behind, and what is in transit on them: `python -m benchmarks.line_distance`.

Nothing is run: subtasks in stages, each of which sends to all of the next stage all the time, take
snapshots by the clocks of mode `uncoordinated`, storage takes no time, and `LineTracker` finds the lines.
So the figures are the same on every machine. They are in intervals: the mean *distance* of the oldest
snapshot on the line, and of each channel how much of an interval's records is *in transit* on it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from statistics import mean

from benchmarks.forced_snapshots import Job
from benchmarks.measure import print_table
from minirt.protocol.ids import SubtaskId
from minirt.protocol.lines import LineTracker, LocalCut
from minirt.protocol.local_pace import LocalSnapshots

INTERVALS = 100
LOOKS = 100
"""At the line, in an interval."""
SETTLED = 10
"""After so many intervals looking begins."""


@dataclass(frozen=True)
class Distance:
    """Means over time, in intervals; and which share of all snapshots the lines have skipped."""

    behind: float
    in_transit: float
    skipped: float


class Lines:
    """The line of a job, as time goes on."""

    def __init__(self, job: Job, plan: LocalSnapshots, apart: float = 0.0) -> None:
        self.ids = [SubtaskId(*divmod(own, job.parallelism)) for own in range(job.processes)]
        self.channels = [(own, to) for own in range(job.processes) for to in job.receivers(own)]
        self._beats = beats(job.processes, apart)
        self.due = deque(sorted(self._snapshots(plan)))
        self._tracker = LineTracker(self.ids)
        self._numbers = [0] * job.processes
        self._taken_at = {(id, 0): 0.0 for id in self.ids}

    def _snapshots(self, plan: LocalSnapshots) -> Iterator[tuple[float, int, int]]:
        """When which process takes its snapshot of which number."""
        for own, id in enumerate(self.ids):
            at, number = 0.0, 1
            while (at := plan.next_at(id, number, at, self._beats[own])) < INTERVALS:
                yield at, own, number
                number += 1

    def until(self, now: float) -> list[float]:
        """When the snapshots on the line were taken, by process."""
        while self.due and self.due[0][0] <= now:
            at, own, number = self.due.popleft()
            # It has consumed something that each sender sent behind its last mark.
            needs = {
                self.ids[one]: self._numbers[one] + 1 for one, to in self.channels if to == own
            }
            self._tracker.add(self.ids[own], LocalCut(number, tuple(needs.items())))
            self._numbers[own], self._taken_at[self.ids[own], number] = number, at
        return [self._taken_at[id, self._tracker.line[id]] for id in self.ids]


def beats(processes: int, apart: float) -> list[float]:
    """When each process takes the beat to be, if wall clocks are apart by so much at most."""
    random = Random(7)
    return [apart * (random.random() - 0.5) for _ in range(processes)]


def measure(job: Job, plan: LocalSnapshots, apart: float = 0.0) -> Distance:
    lines = Lines(job, plan, apart)
    count, written = len(lines.due), set[tuple[int, float]]()
    behind, in_transit = list[float](), list[float]()
    for look in range(INTERVALS * LOOKS + 1):
        now = look / LOOKS
        line = lines.until(now)
        if look % LOOKS == 0:
            written.update((own, at) for own, at in enumerate(line) if at > 0)
        if now >= SETTLED:
            behind.append(now - min(line))
            in_transit += [line[sender] - line[receiver] for sender, receiver in lines.channels]
    return Distance(mean(behind), mean(in_transit), 1 - len(written) / count)


JOBS = (Job(2, 2), Job(3, 2), Job(5, 2), Job(3, 8))
STAGGERED = LocalSnapshots(1.0, 0.1, 1, stagger_s=0.01)
PLANS = {
    "jitter 0.1": (LocalSnapshots(1.0, 0.1, 1), 0.0),
    "jitter 0.5": (LocalSnapshots(1.0, 0.5, 1), 0.0),
    "stagger 0.01": (STAGGERED, 0.0),
    "stagger 0.01, clocks apart by 0.04": (STAGGERED, 0.04),
}
"""How subtasks take snapshots, and by how much their wall clocks are apart."""


def rows() -> list[dict[str, object]]:
    found = []
    for job in JOBS:
        for name, (plan, apart) in PLANS.items():
            one = measure(job, plan, apart)
            found.append(
                {
                    "stages": job.stages,
                    "parallelism": job.parallelism,
                    "snapshots": name,
                    "behind": round(one.behind, 2),
                    "in transit": round(one.in_transit, 3),
                    "skipped": f"{one.skipped:.0%}",
                }
            )
    return found


if __name__ == "__main__":
    print_table(rows())
