"""A simulated coordinator process: the real protocol, shell and storage tasks, with faults."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from minirt.config import Checkpointing, Options
from minirt.errors import SupersededError
from minirt.graph.comebacks import alone_by_worker
from minirt.graph.execution import ExecutionGraph
from minirt.graph.job_graph import OperatorNode
from minirt.modes import MODES, find_mode, local_snapshots
from minirt.operators.sink import SinkSpec
from minirt.protocol.barriers import may_overlap
from minirt.protocol.checkpoint_paths import CheckpointPaths
from minirt.protocol.job_events import (
    AnswerSavepoint,
    CommitFailed,
    GenerationFailed,
    JobEvent,
    JobStatus,
    ManifestRefused,
    SavepointNotPublished,
    Submitted,
)
from minirt.protocol.restarts import RestartStrategy, scope_of
from minirt.protocol.restore_options import RestoreOptions
from minirt.protocol.savepoint_requests import Savepoint
from minirt.runtime.control.package import JobPackage
from minirt.runtime.coordinator.observer import JobObserver
from minirt.runtime.coordinator.shell import JobShell
from minirt.runtime.coordinator.storage_tasks import StorageCommand, StorageTasks
from minirt.runtime.program.execute import job_protocol
from minirt.runtime.program.shapes import place
from minirt.storage.checkpoints import CheckpointStorage
from minirt.testing.cluster import SimulatedCluster
from minirt.testing.faults import INJECTED, Chaos, ProcessDiedError
from minirt.testing.gated_sink import GatedSink
from minirt.testing.gates import CoordinatorGate, WorkerGate
from minirt.testing.schedule import Actor, Schedule
from minirt.testing.storage import Disks, Gate, SimulatedStore


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """A job as each of its starts finds it."""

    graph: ExecutionGraph
    pickled: bytes
    checkpointing: Checkpointing
    restart: RestartStrategy
    options: Options


class Surroundings:
    """What a coordinator finds outside of itself; `interleave` lets the world go on meanwhile.

    `storage_url` is where the job has its checkpoints now, `origin` the savepoint that it came from.
    """

    def __init__(self, schedule: Schedule, chaos: Chaos) -> None:
        self.schedule = schedule
        self.chaos = chaos
        self.disks = Disks()
        self.storage_url = "simulated://1"
        self.origin: str | None = None
        self.problems: list[str] = []

    @property
    def has_checkpoints(self) -> bool:
        """Whether any checkpoint was completed where the job has its checkpoints now."""
        paths = self.disks[self.storage_url].objects
        return any(path.startswith(CheckpointPaths.MANIFESTS) for path in paths)

    def is_current(self, generation: int) -> bool:
        """Whether nobody has claimed a later generation of the job."""
        claim = CheckpointPaths.claim(generation + 1)
        return claim not in self.disks[self.storage_url].objects

    def interleave(self, coordinator: SimulatedCoordinator) -> None:
        """Called before each operation of a storage command: let others have their turns."""

    def on_ended(self, coordinator: SimulatedCoordinator) -> None:
        """The job of a coordinator is over, as far as it can tell."""

    def on_answer(self, coordinator: SimulatedCoordinator, answer: AnswerSavepoint) -> None:
        """A request for a savepoint was answered."""

    def on_died(self, coordinator: SimulatedCoordinator) -> None:
        """The process of a coordinator is no more."""


class SimulatedCoordinator(Actor):
    """Handles messages, timers and storage commands, one a step.

    It may sleep, and be replaced meanwhile; it may die, also in the middle of a storage command: at any
    operation on storage or on a sink.
    """

    def __init__(
        self, surroundings: Surroundings, job: SimulatedJob, number: int, observer: JobObserver
    ) -> None:
        self.name = f"coordinator {number}"
        self.dead = False
        self.asleep = False
        self.busy = False
        """Whether a storage command is under way."""
        self.replaced = False
        """Whether another coordinator was started since: what fails here is none of our business."""
        self._surroundings = surroundings
        self._schedule = surroundings.schedule
        self._clock = surroundings.schedule.new_process()
        self._commands: deque[StorageCommand] = deque()
        gate = CoordinatorGate(self, surroundings)
        mode = find_mode(job.checkpointing.mode)
        modes = {**MODES, mode.name: mode}
        placement = place(job.graph, job.options)
        alone = alone_by_worker(job.graph, placement, scope_of(job.restart))
        package = JobPackage(
            job.pickled,
            job.options,
            modes,
            _storage(surroundings, WorkerGate(surroundings.chaos), job),
            local=local_snapshots(mode, job.checkpointing),
            alone=frozenset().union(*alone.values()),
            prunes=may_overlap(mode),
        )
        self.protocol = job_protocol(
            *(job.graph, job.checkpointing, modes, mode.name, job.restart, job.options), alone=alone
        )
        self.cluster = SimulatedCluster(
            surroundings.schedule,
            self._clock,
            surroundings.chaos,
            package,
            placement,
            self.problem,
        )
        self._tasks = StorageTasks(
            _gated(job.graph, gate, surroundings.problems.append),
            _storage(surroundings, gate, job),
            job.checkpointing,
            RestoreOptions(
                "latest" if surroundings.has_checkpoints else surroundings.origin or "latest"
            ),
        )
        self._shell = JobShell(
            self.protocol,
            self.cluster,
            self._tasks,
            self._commands.append,
            self._clock,
            observer,
            self._on_answer,
            brings_back=self.cluster,
        )
        self.cluster.on_message = lambda: surroundings.schedule.wake(self)
        self.cluster.to_coordinator("user", Submitted())

    @property
    def status(self) -> JobStatus:
        return self.protocol.status

    @property
    def savepoint(self) -> Savepoint | None:
        """The savepoint with which the job was stopped, once it has."""
        return self._shell.ending.savepoint if self._shell.ending else None

    @property
    def error(self) -> Exception | None:
        """Why the job failed, once it has."""
        return self._shell.ending.error if self._shell.ending else None

    @property
    def gone(self) -> bool:
        return self.dead or (self._shell.ending is not None and not self._commands)

    @property
    def wake_at(self) -> float | None:
        turning = not (self.dead or self.asleep) and self._shell.ending is None
        return self._clock.scheduled(self._shell.next_timer_at) if turning else None

    def wake(self) -> None:
        """Go on after sleep."""
        self.asleep = False
        self._schedule.wake(self)

    def die(self) -> None:
        """Its memory is gone; a storage command under way ends at its next operation."""
        if not self.dead:
            self.dead = True
            self._schedule.note(self.name, "dies")
            self.cluster.abandon()
            self._surroundings.on_died(self)

    def problem(self, text: str) -> None:
        """Something went wrong that nobody made go wrong."""
        if not self.replaced:
            self._surroundings.problems.append(f"{self.name}: {text}")

    def _on_answer(self, answer: AnswerSavepoint) -> None:
        self._surroundings.on_answer(self, answer)

    def act(self) -> bool:
        if self.gone or self.asleep:
            return False
        choices: list[Callable[[], None]] = []
        if self._commands and not self.busy:
            choices.append(self._run_storage)
        if self._shell.ending is None:
            if any(self.cluster.messages.values()):
                choices.append(self._hear)
            timer_at = self._shell.next_timer_at
            if timer_at is not None and timer_at <= self._clock.monotonic():
                choices.append(self._shell.fire_timers)
        if not choices:
            return False
        running = self._shell.ending is None
        self._schedule.random.choice(choices)()
        if running and self._shell.ending is not None:
            self._surroundings.on_ended(self)
        return True

    def _hear(self) -> None:
        messages = [queue for queue in self.cluster.messages.values() if queue]
        event = self._schedule.random.choice(messages).popleft()
        self._note_event(event)
        self._shell.on_event(event)

    def _run_storage(self) -> None:
        command = self._commands.popleft()
        self._schedule.note(self.name, f"begins {type(command).__name__}")
        self.busy = True
        try:
            event = self._tasks.run(command)
        except ProcessDiedError:
            self.die()
            return
        finally:
            self.busy = False
        if event is not None:
            self._check(event)
            self.cluster.to_coordinator("storage", event)

    def _check(self, event: JobEvent) -> None:
        match event:
            case (
                GenerationFailed(error=error)
                | CommitFailed(error=error)
                | ManifestRefused(error=error)
                | SavepointNotPublished(error=error)
            ):
                pass
            case _:
                return
        said = f"{type(event).__name__}: {error}"
        self._schedule.note(self.name, said)
        expected = INJECTED in said or isinstance(error, SupersededError)
        if self._surroundings.is_current(self.protocol.generation) and not expected:
            self.problem(said)

    def _note_event(self, event: JobEvent) -> None:
        self._schedule.note(self.name, f"hears {type(event).__name__}")


def _gated(graph: ExecutionGraph, gate: Gate, problem: Callable[[str], None]) -> ExecutionGraph:
    def gated(node: OperatorNode) -> OperatorNode:
        if not isinstance(node.spec, SinkSpec):
            return node
        return replace(node, spec=SinkSpec(GatedSink(node.spec.sink, gate, problem)))

    vertices = tuple(
        replace(vertex, operators=tuple(gated(node) for node in vertex.operators))
        for vertex in graph.vertices
    )
    return replace(graph, vertices=vertices)


class _SimulatedStorage(CheckpointStorage):
    """Names no process of this machine: what a run says follows from its seed alone."""

    def _holder(self) -> str:
        return "a simulated process"


def _storage(surroundings: Surroundings, gate: Gate, job: SimulatedJob) -> CheckpointStorage:
    store = SimulatedStore(surroundings.storage_url, surroundings.disks, gate)
    limits = job.options.limits
    return _SimulatedStorage(store, limits.inline_snapshot_bytes, limits.history_entries)
