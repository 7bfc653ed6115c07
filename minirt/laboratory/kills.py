"""SIGKILL to random workers of a job that is measured, drawn from a seed."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from dataclasses import dataclass, field

from minirt.laboratory.recovery import Strike
from minirt.protocol.job_events import ENDED, JobStatus
from minirt.runtime.program.job import Job

SPREAD = 0.2
"""A kill comes up to this share of the interval earlier or later than its turn."""

_LOOK_S = 0.02


def moments(seconds: float, every_s: float, seed: int) -> tuple[float, ...]:
    """When to kill, in seconds since measuring began; none so late that its recovery would not be seen.

    They depend on the seed alone, so that all modes are struck alike.
    """
    draw = random.Random(f"moments {seed}")
    turns = int(seconds / every_s - SPREAD - 0.05)
    return tuple(
        turn * every_s + draw.uniform(-SPREAD, SPREAD) * every_s for turn in range(1, turns + 1)
    )


@dataclass(slots=True)
class Killer:
    """Strikes at its moments, or as soon after them as the job runs."""

    job: Job
    seed: int
    strikes: list[Strike] = field(default_factory=list)

    def run(self, moments: tuple[float, ...], began: float, stopped: threading.Event) -> None:
        """Until all moments have passed, the job has ended, or `stopped` is set."""
        draw = random.Random(f"victims {self.seed}")
        for moment in moments:
            place = draw.random()
            if stopped.wait(max(0.0, began + moment - time.monotonic())):
                return
            while not self._strike(place):
                if self.job.status in ENDED or stopped.wait(_LOOK_S):
                    return

    def _strike(self, place: float) -> bool:
        figures = self.job.figures
        pids = self.job.progress.pids
        if figures.status is not JobStatus.RUNNING or not pids:
            return False
        victim = pids[sorted(pids)[int(place * len(pids))]]
        names = self.job.progress.names
        struck = tuple(names[id] for id in sorted(pids) if pids[id] == victim and id in names)
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            return False
        self.strikes.append(Strike(time.monotonic(), figures.generation, struck))
        return True
