"""Carries out what the job's protocol orders; shared by every way of running a job."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Protocol

from minirt.errors import CorruptCheckpointError
from minirt.protocol.barriers import Barrier
from minirt.protocol.job import JobProtocol
from minirt.protocol.job_events import (
    AbortCheckpoint,
    AnnounceRestart,
    AnswerSavepoint,
    Deploy,
    DrainSources,
    EndJob,
    JobCommand,
    JobEvent,
    RecordHistory,
    ResumeSources,
    SetTimer,
    StopWorkers,
    Timer,
    TimerFired,
    TriggerCheckpoint,
    WorkerFailed,
)
from minirt.runtime.assembly import Deployment
from minirt.runtime.observer import JobObserver
from minirt.runtime.storage_tasks import STORAGE_COMMANDS, StorageCommand, StorageTasks


class Cluster(Protocol):
    """Where subtasks run."""

    def deploy(self, deployment: Deployment) -> None:
        """Start all subtasks; what becomes of them comes back as events."""

    def stop(self, generation: int, *, kill: bool) -> None:
        """End all subtasks of a generation."""

    def trigger(self, generation: int, barrier: Barrier, *, pause: bool) -> None:
        """Hand a barrier to all source subtasks; with `pause` they emit nothing behind it."""

    def resume(self, generation: int) -> None:
        """Let source subtasks that were paused go on."""

    def drain(self, generation: int) -> None:
        """Have all source subtasks end now."""

    def abort(self, generation: int, checkpoint_id: int) -> None:
        """Tell all subtasks that a checkpoint is given up."""


class JobShell:
    """Feeds events to the protocol and executes its commands in order.

    `run_storage` has a storage command carried out now or later, by whoever; its event must come back
    through `on_event`. `answer` tells a user what became of a savepoint.
    """

    def __init__(
        self,
        protocol: JobProtocol,
        cluster: Cluster,
        tasks: StorageTasks,
        run_storage: Callable[[StorageCommand], None],
        now: Callable[[], float],
        observer: JobObserver,
        answer: Callable[[AnswerSavepoint], None],
    ) -> None:
        self._protocol = protocol
        self._cluster = cluster
        self._tasks = tasks
        self._run_storage = run_storage
        self._now = now
        self._observer = observer
        self._answer = answer
        self._timers: list[tuple[float, int, Timer]] = []
        self._timer_order = itertools.count()
        self.ending: EndJob | None = None
        """Set once the job is over."""

    @property
    def next_timer_at(self) -> float | None:
        return self._timers[0][0] if self._timers else None

    def on_event(self, event: JobEvent) -> None:
        if isinstance(event, WorkerFailed) and isinstance(event.error, CorruptCheckpointError):
            self._tasks.on_damage(event.error)
        status = self._protocol.status
        commands = self._protocol.handle(event, self._now())
        if self._protocol.status is not status:
            self._observer.on_status(self._protocol.status, self._protocol.generation)
        for command in commands:
            self._execute(command)

    def fire_timers(self) -> None:
        """Feed the timers that are due."""
        while self._timers and self._timers[0][0] <= self._now():
            self.on_event(TimerFired(heapq.heappop(self._timers)[2]))

    def _execute(self, command: JobCommand) -> None:
        if isinstance(command, STORAGE_COMMANDS):
            if isinstance(command, RecordHistory):
                self._observer.on_checkpoint(command.entry)
            self._run_storage(command)
            return
        match command:
            case Deploy():
                assert self._tasks.deployment is not None
                self._cluster.deploy(self._tasks.deployment)
            case StopWorkers(generation, kill):
                self._cluster.stop(generation, kill=kill)
            case TriggerCheckpoint(generation, barrier, pause):
                self._cluster.trigger(generation, barrier, pause=pause)
            case ResumeSources(generation):
                self._cluster.resume(generation)
            case DrainSources(generation):
                self._cluster.drain(generation)
            case AbortCheckpoint(generation, checkpoint_id):
                self._cluster.abort(generation, checkpoint_id)
            case SetTimer(timer, at):
                heapq.heappush(self._timers, (at, next(self._timer_order), timer))
            case AnswerSavepoint():
                self._answer(command)
            case AnnounceRestart(error, delay_s):
                self._observer.on_restart(error, delay_s)
            case EndJob():
                self.ending = command
                self._observer.on_end(command.status, command.error)
