"""Carries out what the job's protocol orders; shared by every way of running a job."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import replace

from minirt.clock import Clock
from minirt.protocol.giving_up import AnnounceGivenUp
from minirt.protocol.job import JobProtocol
from minirt.protocol.job_events import (
    AnswerSavepoint,
    Deploy,
    EndJob,
    JobCommand,
    JobEvent,
    ManifestRefused,
    ManifestStored,
    RecordHistory,
    SavepointNotPublished,
    SavepointPublished,
    SavepointRequested,
    SetTimer,
    SnapshotAcknowledged,
    SnapshotDeclined,
    StopWorkers,
    StoreTrace,
    SubtaskDrained,
    Timer,
    TimerFired,
    WorkerFailed,
)
from minirt.protocol.restart_commands import (
    AnnounceComeback,
    AnnounceRestart,
    BringBack,
    KeepFor,
)
from minirt.protocol.slots import AwaitSlots
from minirt.protocol.subtask_commands import SubtaskCommand
from minirt.runtime.cluster.cluster import BringsBack, Cluster
from minirt.runtime.coordinator.observer import JobObserver
from minirt.runtime.coordinator.storage_tasks import STORAGE_COMMANDS, StorageCommand, StorageTasks

_MOVES_CHECKPOINTS = (
    *(TimerFired, SnapshotDeclined, ManifestStored, ManifestRefused),
    *(SubtaskDrained, SavepointRequested, SavepointPublished, SavepointNotPublished, WorkerFailed),
)
"""Events that may begin a checkpoint or end it."""

_PARTS_TOLD_S = 0.05
"""How often observers hear which parts of a checkpoint have come: that names all subtasks each time."""


class JobShell:
    """Feeds events to the protocol and executes its commands in order.

    `run_storage` has a storage command carried out now or later, by whoever; its event must come back
    through `on_event`. `answer` tells a user what became of a savepoint. `await_slots` is called for jobs
    whose parallelism follows their slots, `brings_back` for those whose workers may come back alone.
    """

    def __init__(
        self,
        protocol: JobProtocol,
        cluster: Cluster,
        tasks: StorageTasks,
        run_storage: Callable[[StorageCommand], None],
        clock: Clock,
        observer: JobObserver,
        answer: Callable[[AnswerSavepoint], None],
        await_slots: Callable[[AwaitSlots], None] | None = None,
        brings_back: BringsBack | None = None,
    ) -> None:
        self._protocol = protocol
        self._cluster = cluster
        self._tasks = tasks
        self._run_storage = run_storage
        self._clock = clock
        self._observer = observer
        self._answer = answer
        self._await_slots = await_slots
        self._brings_back = brings_back
        self._timers: list[tuple[float, int, Timer]] = []
        self._timer_order = itertools.count()
        self._parts_untold = False
        self._parts_told_at = -_PARTS_TOLD_S
        self.ending: EndJob | None = None
        """Set once the job is over."""

    @property
    def next_timer_at(self) -> float | None:
        """When the next timer is due, by the monotonic clock."""
        return self._timers[0][0] if self._timers else None

    def on_event(self, event: JobEvent) -> None:
        status, now = self._protocol.status, self._clock.monotonic()
        commands = self._protocol.handle(event, now, self._clock.now())
        if self._protocol.status is not status:
            self._observer.on_status(self._protocol.status, self._protocol.generation)
        for command in commands:
            self._execute(command)
        self._tell_under_way(event, now)  # Behind the commands: no barrier waits for observers.
        if commands and isinstance(commands[-1], EndJob):
            self._tell_end(commands[-1])

    def fire_timers(self) -> None:
        """Feed the timers that are due."""
        while self._timers and self._timers[0][0] <= self._clock.monotonic():
            self.on_event(TimerFired(heapq.heappop(self._timers)[2]))

    def _tell_under_way(self, event: JobEvent, now: float) -> None:
        """Tell observers of the checkpoints under way, at once if this event has begun or ended one."""
        self._parts_untold |= isinstance(event, SnapshotAcknowledged)
        due = self._parts_untold and now - self._parts_told_at >= _PARTS_TOLD_S
        if due or isinstance(event, _MOVES_CHECKPOINTS):
            self._parts_untold, self._parts_told_at = False, now
            self._observer.on_checkpoints_under_way(self._protocol.checkpoints_under_way)

    def _tell_end(self, ending: EndJob) -> None:
        if ending.ended_because is not None:
            self._observer.on_told_to_end(ending.ended_because)
        self._observer.on_end(ending.status, ending.error)

    def _execute(self, command: JobCommand) -> None:
        if isinstance(command, STORAGE_COMMANDS):
            if isinstance(command, RecordHistory):
                self._observer.on_checkpoint(command.report)
            elif isinstance(command, StoreTrace):
                self._observer.on_trace(command.trace)
            self._run_storage(command)
            return
        match command:
            case AwaitSlots():
                assert self._await_slots is not None
                self._await_slots(command)
            case Deploy(generation, start):
                self._cluster.deploy(self._tasks.deployment(generation, start))
            case KeepFor() | BringBack():
                self._bring_back(command)
            case SubtaskCommand():
                self._cluster.send(command)
            case StopWorkers():
                self._cluster.stop(command)
            case SetTimer(timer, at):
                heapq.heappush(self._timers, (at, next(self._timer_order), timer))
            case AnswerSavepoint():
                self._answer(command)
            case AnnounceComeback(failure, delay_s):
                self._observer.on_comeback(failure.error, delay_s)
            case AnnounceRestart(failure, delay_s):
                self._observer.on_restart(failure.error, delay_s)
            case AnnounceGivenUp(given_up):
                self._observer.on_output_given_up(given_up)
            case EndJob():
                self.ending = command

    def _bring_back(self, command: KeepFor | BringBack) -> None:
        assert self._brings_back is not None
        if isinstance(command, KeepFor):
            self._brings_back.keep_for(command)
            return
        deployment = self._tasks.deployment(command.generation, command.start)
        deployment = replace(deployment, life=command.life, fallen_back=command.fallen_back)
        self._brings_back.bring_back(command.worker, deployment)
