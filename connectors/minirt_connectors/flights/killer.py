"""Kills processes of a running job with SIGKILL, at random moments."""

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
from minirt_connectors.flights.processes import executor_of


@dataclass(frozen=True, slots=True)
class Victim:
    """A process to be killed, and the subtasks that run in it, or in processes that end with it."""

    pid: int
    role: str
    """`"worker"` or `"executor"`."""
    subtasks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Kill:
    """A process that was killed, and the subtasks that it took along."""

    pid: int
    subtasks: tuple[str, ...]
    at: float
    """Seconds of `time.monotonic`."""
    role: str = "worker"

    def __str__(self) -> str:
        what = "process" if self.role == "worker" else f"{self.role}, process"
        return f"SIGKILL to {what} {self.pid}, which ran {', '.join(self.subtasks)}"


Choice = Callable[[rt.JobProgress, int, random.Random], Victim | None]
"""Who is to be killed: what the job is doing, how many were killed before, and what to draw with."""


def any_worker(progress: rt.JobProgress, before: int, random: random.Random) -> Victim | None:
    """A worker, each with the same chance."""
    pids = sorted(set(progress.pids.values()))
    if not pids:
        return None
    pid = random.choice(pids)
    return Victim(pid, "worker", _subtasks(progress, {pid}))


def worker_or_executor(
    progress: rt.JobProgress, before: int, random: random.Random
) -> Victim | None:
    """In turn a worker, and the executor of Spark that runs a worker, with all that it runs."""
    victim = any_worker(progress, before, random)
    if victim is None or before % 2 == 0:
        return victim
    executor = executor_of(victim.pid)
    if executor is None:
        return None
    ending = {pid for pid in set(progress.pids.values()) if executor_of(pid) == executor}
    return Victim(executor, "executor", _subtasks(progress, ending))


def _subtasks(progress: rt.JobProgress, pids: set[int]) -> tuple[str, ...]:
    return tuple(progress.names[id] for id, pid in progress.pids.items() if pid in pids)


class Killer(rt.JobObserver):
    """Kills what `choose` says, `wanted` times: each time once a checkpoint has completed since the last.

    It strikes up to `pause_s_max` seconds after that checkpoint, drawn from `random`. To be given to
    the job as an observer, then started with it. `announce` hears of each kill, in the killer's thread.
    """

    def __init__(
        self,
        wanted: int,
        pause_s_max: float,
        random: random.Random,
        announce: Callable[[Kill], None] = lambda kill: None,
        choose: Choice = any_worker,
    ) -> None:
        self._choose = choose
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
        """Begin to kill processes of `job`."""
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
        if job.status is not rt.JobStatus.RUNNING:
            return False
        victim = self._choose(job.progress, len(self.kills), self._random)
        if victim is None:
            return False
        try:
            os.kill(victim.pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        kill = Kill(victim.pid, victim.subtasks, time.monotonic(), victim.role)
        self.kills.append(kill)
        self._announce(kill)
        return True
