"""The coordinator of a job, as a part that acts on events only."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from minirt.protocol.job_events import (
    AnswerSavepoint,
    CommitFailed,
    GenerationFailed,
    GenerationPrepared,
    JobEvent,
    JobStatus,
    ManifestRefused,
    PrepareGeneration,
    StopWorkers,
    Submitted,
)
from minirt.protocol.preparing import PreparationStep
from minirt.protocol.preparing_events import PreparingCommand
from minirt.protocol.restarts import Restart
from minirt.protocol.restore_options import RestoreOptions
from minirt.protocol.subtask_commands import SubtaskCommand
from minirt.runtime.control.package import Deployment
from minirt.runtime.coordinator.observer import JobObserver
from minirt.runtime.coordinator.shell import JobShell
from minirt.runtime.coordinator.storage_tasks import StorageCommand, StorageTasks
from minirt.runtime.program.execute import job_protocol
from minirt.testing.clock import START, HeldClock
from minirt.testing.exploration.job import NEVER_S, ExploredJob
from minirt.testing.exploration.local_states import Event


@dataclass(frozen=True, slots=True)
class CoordinatorOffers:
    """What the coordinator can do by itself, and how the job is."""

    status: JobStatus
    generation: int
    stores: bool
    """Whether a storage command is to be carried out."""
    timer: bool
    """Whether a timer may fire that does not wait for ever."""


@dataclass(frozen=True, slots=True)
class Deployed:
    """An order to start all subtasks of a generation; by its number."""

    deployment: int


Order = Deployed | StopWorkers | SubtaskCommand


@dataclass(slots=True)
class CoordinatorEffects:
    """What the coordinator did to others in one event."""

    orders: list[Order] = field(default_factory=list)
    durable: int | None = None
    """What is durable after a storage command."""
    answer: int = 0
    """The event that a storage command ended in."""
    problem: str | None = None


class CoordinatorPart:
    """The real protocol, shell and storage tasks; a `minirt.runtime.cluster.cluster.Cluster` for them.

    An event is one of ("hear", message), ("store", durable) and ("fire",).
    """

    def __init__(self, job: ExploredJob) -> None:
        self._job = job
        self._clock = HeldClock()
        self._commands: deque[StorageCommand] = deque()
        self._step: PreparingCommand | None = None
        """What the preparation of a generation orders next, while one is under way."""
        self._effects = CoordinatorEffects()
        self._protocol = job_protocol(
            job.graph,
            job.checkpointing,
            job.package.modes,
            job.mode.name,
            Restart.fixed_delay(None, 0),
            job.options,
        )
        self._tasks = StorageTasks(
            job.graph, job.checkpoint_storage(), job.checkpointing, RestoreOptions("latest")
        )
        self._shell = JobShell(
            self._protocol,
            self,
            self._tasks,
            self._commands.append,
            self._clock,
            JobObserver(),
            _nobody_asked,
        )
        self._shell.on_event(Submitted())

    # The cluster of the shell.

    def deploy(self, deployment: Deployment) -> None:
        job = self._job
        if deployment.restored_from is not None:
            assert job.package.storage is not None
            restored_from = (job.package.storage, deployment.restored_from[1])
            deployment = replace(deployment, restored_from=restored_from)
        self._effects.orders.append(Deployed(job.deployments.of(deployment)))

    def send(self, command: SubtaskCommand) -> None:
        self._effects.orders.append(command)

    def stop(self, command: StopWorkers) -> None:
        self._effects.orders.append(command)

    # What a part does.

    def apply(self, event: Event) -> CoordinatorEffects:
        try:
            self._do(event)
        except Exception as error:
            self._effects.problem = f"{type(error).__name__}: {error}"
        ending = self._shell.ending
        if ending is not None and ending.status is not JobStatus.FINISHED:
            self._effects.problem = f"the job has failed: {ending.error}"
        effects, self._effects = self._effects, CoordinatorEffects()
        return effects

    def repeat(self, event: Event) -> None:
        """Most of a storage command is to look at what it has made durable, and to give that a number."""
        match event:
            case ("store", durable):
                self._job.storage.load(durable)
                self._job.storage.watch(_nobody_looks)
                self._next_step()
            case _:
                self._do(event)
        self._effects = CoordinatorEffects()

    def offers(self) -> CoordinatorOffers:
        at = self._shell.next_timer_at
        return CoordinatorOffers(
            status=self._protocol.status,
            generation=self._protocol.generation,
            stores=bool(self._commands) or self._step is not None,
            timer=at is not None and at < START + NEVER_S / 10 and self._shell.ending is None,
        )

    def _do(self, event: Event) -> None:
        match event:
            case ("hear", message):
                self._shell.on_event(self._job.to_coordinator[message])
            case ("fire",):
                assert self._shell.next_timer_at is not None
                self._clock.at = max(self._clock.at, self._shell.next_timer_at)
                self._shell.fire_timers()
            case ("store", durable):
                self._store(durable)

    def _store(self, durable: int) -> None:
        job = self._job
        job.storage.load(durable)
        job.storage.watch(self._look_at)
        answer = self._next_step()
        self._effects.durable = job.storage.save()
        if isinstance(answer, GenerationFailed | ManifestRefused | CommitFailed):
            self._effects.problem = f"{type(answer).__name__}: {answer.error}"
        if answer is not None:
            self._effects.answer = job.to_coordinator.of(answer)

    def _next_step(self) -> JobEvent | None:
        """Carry out a storage command, or one step of a preparation: the world goes on between any two."""
        if self._step is not None:
            return self._prepared(self._tasks.go_on(self._step))
        command = self._commands.popleft()
        if isinstance(command, PrepareGeneration):
            return self._prepared(self._tasks.begin(command))
        return self._tasks.run(command)

    def _prepared(self, step: PreparationStep) -> JobEvent | None:
        if isinstance(step, GenerationPrepared | GenerationFailed):
            self._step = None
            return step
        self._step = step
        return None

    def _look_at(self, path: str) -> None:
        """A manifest was created: the checkpoint is complete."""
        look = self._job.on_checkpoint
        if look is not None and path.startswith("manifests/"):
            try:
                look(self._job.storage.disk.objects, path)
            except Exception as error:
                self._effects.problem = f"{path}: {error}"


def _nobody_looks(path: str) -> None:
    """It was looked at when it was created first."""


def _nobody_asked(answer: AnswerSavepoint) -> None:
    """No savepoint is requested, so none is answered."""
