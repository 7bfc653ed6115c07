"""Kills workers of a running job with SIGKILL, at random moments."""

from __future__ import annotations

import os
import queue
import random
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import minirt as rt


@dataclass(frozen=True, slots=True)
class Kill:
    """A worker that was killed: its process and the subtasks that ran in it."""

    pid: int
    subtasks: tuple[str, ...]
    at: float
    """Seconds of `time.monotonic`."""

    def __str__(self) -> str:
        return f"SIGKILL to process {self.pid}, which ran {', '.join(self.subtasks)}"


class Killer(rt.JobObserver):
    """Kills a random worker, `wanted` times: each time once a checkpoint has completed since the last.

    It strikes up to `pause_s_max` seconds after that checkpoint, drawn from `random`. To be given to
    the job as an observer, then started with it. `announce` hears of each kill, in the killer's thread.
    """

    def __init__(
        self,
        wanted: int,
        pause_s_max: float,
        random: random.Random,
        announce: Callable[[Kill], None] = lambda kill: None,
    ) -> None:
        self.kills: list[Kill] = []
        self._wanted = wanted
        self._pause_s_max = pause_s_max
        self._random = random
        self._announce = announce
        self._completed: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        """Generations in which a checkpoint has completed; None to stop."""
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def on_checkpoint(self, report: rt.CheckpointReport) -> None:
        # After the final one, nothing is left that could be lost.
        if report.completed and report.kind != "final":
            self._completed.put(report.generation)

    def start(self, job: rt.Job) -> None:
        """Begin to kill workers of `job`."""
        self._thread = threading.Thread(target=self._run, args=(job,), name="killer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Kill no more. On return, the last kill has been announced."""
        self._stopped.set()
        self._completed.put(None)
        if self._thread is not None:
            self._thread.join()

    def _run(self, job: rt.Job) -> None:
        struck = 0
        while len(self.kills) < self._wanted:
            generation = self._completed.get()
            if generation is None:
                return
            if generation <= struck:
                continue
            if self._stopped.wait(self._random.uniform(0, self._pause_s_max)):
                return
            if self._strike(job):
                struck = generation

    def _strike(self, job: rt.Job) -> bool:
        progress = job.progress
        pids = sorted(set(progress.pids.values()))
        if job.status is not rt.JobStatus.RUNNING or not pids:
            return False
        victim = self._random.choice(pids)
        subtasks = tuple(progress.names[id] for id, pid in progress.pids.items() if pid == victim)
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            return False
        kill = Kill(victim, subtasks, time.monotonic())
        self.kills.append(kill)
        self._announce(kill)
        return True
