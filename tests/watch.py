"""Does something once a job has come so far, or waits for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import minirt as rt
from tests.runtime.processes import wait_until


def measured(job: rt.Job, *, subtasks: int, checkpoints: int) -> Iterator[rt.Job]:
    """For a fixture: a job of so many subtasks once all have rates and so many checkpoints are complete.

    It is cancelled behind the test.
    """
    wait_until(
        lambda: (
            len(job.figures.subtasks) == subtasks
            and all(one.rates is not None for one in job.figures.subtasks)
            and job.figures.checkpoints.completed >= checkpoints
        ),
        "figures and checkpoints",
    )
    yield job
    job.cancel()
    job.wait(60)


class Watch(rt.JobObserver):
    """Calls back after so many completed or failed checkpoints, or restarts, in all."""

    def __init__(self, calls: Mapping[tuple[str, int], Callable[[], None]]) -> None:
        self._calls = calls
        self.seen: Counter[str] = Counter()

    def on_checkpoint(self, entry: Mapping[str, Any]) -> None:
        self._count(entry["status"])

    def on_restart(self, error: Exception, delay_s: float) -> None:
        self._count("restart")

    def _count(self, what: str) -> None:
        self.seen[what] += 1
        if call := self._calls.get((what, self.seen[what])):
            call()
