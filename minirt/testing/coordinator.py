"""A simulated coordinator process: the real protocol, shell and storage tasks, and a fate."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from minirt.config import Checkpointing, Options
from minirt.graph.execution import ExecutionGraph
from minirt.graph.job_graph import OperatorNode, SinkSpec
from minirt.io.base import Handle, Sink, SinkContext, SinkWriter
from minirt.modes import MODES, find_mode
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
from minirt.protocol.manifest import CheckpointPaths
from minirt.protocol.restarts import RestartStrategy
from minirt.protocol.savepoint_requests import Savepoint
from minirt.run_settings import RestoreOptions
from minirt.runtime.assembly import JobPackage
from minirt.runtime.execute import job_protocol, place
from minirt.runtime.observer import JobObserver
from minirt.runtime.shell import JobShell
from minirt.runtime.storage_tasks import StorageCommand, StorageTasks
from minirt.storage.checkpoints import CheckpointStorage
from minirt.testing.cluster import SimulatedCluster
from minirt.testing.faults import INJECTED, Chaos, InjectedFaultError, ProcessDiedError
from minirt.testing.schedule import Actor, Schedule
from minirt.testing.storage import Disks, Gate, SimulatedStore
from minirt.testing.worker import WorkerGate


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """A job as each of its starts finds it."""

    graph: ExecutionGraph
    pickled: bytes
    checkpointing: Checkpointing
    restart: RestartStrategy
    options: Options


class World:
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

    def __init__(self, world: World, job: SimulatedJob, number: int, observer: JobObserver) -> None:
        self.name = f"coordinator {number}"
        self.dead = False
        self.asleep = False
        self.busy = False
        """Whether a storage command is under way."""
        self.replaced = False
        """Whether another coordinator was started since: what fails here is none of our business."""
        self._world = world
        self._schedule = world.schedule
        self._commands: deque[StorageCommand] = deque()
        gate = CoordinatorGate(self, world)
        mode = find_mode(job.checkpointing.mode)
        package = JobPackage(
            job.pickled,
            job.options,
            {**MODES, mode.name: mode},
            _storage(world, WorkerGate(world.chaos), job),
        )
        self.protocol = job_protocol(
            job.graph, job.checkpointing, mode.name, job.restart, job.options
        )
        self.cluster = SimulatedCluster(
            world.schedule, world.chaos, package, place(job.graph, job.options), self.problem
        )
        self._tasks = StorageTasks(
            _gated(job.graph, gate, world.problems.append),
            _storage(world, gate, job),
            job.checkpointing,
            RestoreOptions("latest" if world.has_checkpoints else world.origin or "latest"),
        )
        self._shell = JobShell(
            self.protocol,
            self.cluster,
            self._tasks,
            self._commands.append,
            world.schedule.clock.now,
            observer,
            self._on_answer,
        )
        self.cluster.on_message = lambda: world.schedule.wake(self)
        self.cluster.send("user", Submitted())

    @property
    def status(self) -> JobStatus:
        return self.protocol.status

    @property
    def savepoint(self) -> Savepoint | None:
        """What the job was stopped with, once it has."""
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
        return self._shell.next_timer_at if turning else None

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
            self._world.on_died(self)

    def problem(self, text: str) -> None:
        """Something went wrong that nobody made go wrong."""
        if not self.replaced:
            self._world.problems.append(f"{self.name}: {text}")

    def _on_answer(self, answer: AnswerSavepoint) -> None:
        self._world.on_answer(self, answer)

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
            if timer_at is not None and timer_at <= self._schedule.clock.now():
                choices.append(self._shell.fire_timers)
        if not choices:
            return False
        running = self._shell.ending is None
        self._schedule.random.choice(choices)()
        if running and self._shell.ending is not None:
            self._world.on_ended(self)
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
            self.cluster.send("storage", event)

    def _check(self, event: JobEvent) -> None:
        match event:
            case GenerationFailed(error) | CommitFailed(error=error):
                reason = str(error)
            case ManifestRefused(reason=reason) | SavepointNotPublished(reason=reason):
                pass
            case _:
                return
        self._schedule.note(self.name, f"{type(event).__name__}: {reason}")
        current = self._world.is_current(self.protocol.generation)
        if current and INJECTED not in reason and "has taken over" not in reason:
            self.problem(f"{type(event).__name__}: {reason}")

    def _note_event(self, event: JobEvent) -> None:
        self._schedule.note(self.name, f"hears {type(event).__name__}")


class CoordinatorGate:
    """Lets the world go on between any two operations of a coordinator; a `Gate`."""

    def __init__(self, coordinator: SimulatedCoordinator, world: World) -> None:
        self._coordinator = coordinator
        self._world = world

    def before(self, action: str) -> None:
        self._world.interleave(self._coordinator)
        self._perhaps_die()
        self._world.schedule.note(self._coordinator.name, action)
        if self._world.chaos.strikes_operation("storage_errors"):
            raise InjectedFaultError(f"cannot {action}")

    def after(self, action: str) -> None:
        self._perhaps_die()
        if self._world.chaos.strikes_operation("storage_errors"):
            raise InjectedFaultError(f"no answer to: {action}")

    def _perhaps_die(self) -> None:
        struck = not self._coordinator.replaced and self._world.chaos.strikes_operation(
            "coordinator_crashes"
        )
        if self._coordinator.dead or struck:
            raise ProcessDiedError


class GatedSink(Sink):
    """A sink whose commits can fail, and be the last thing that its process did."""

    def __init__(self, sink: Sink, gate: Gate, problem: Callable[[str], None]) -> None:
        self._sink = sink
        self._gate = gate
        self._problem = problem

    def open_writer(self, context: SinkContext) -> SinkWriter:
        return self._sink.open_writer(context)

    def commit(self, handles: Sequence[Handle]) -> None:
        for handle in handles:
            self._gate.before("commit a handle")
            self._expect(lambda handle=handle: self._sink.commit([handle]))  # type: ignore[misc]
            self._gate.after("commit a handle")

    def discard_uncommitted(
        self,
        committed: Sequence[Handle],
        operator: str = "",
        before_generation: int | None = None,
    ) -> None:
        self._gate.before("discard uncommitted output")
        self._sink.discard_uncommitted(committed, operator, before_generation)
        self._gate.after("discard uncommitted output")

    def _expect(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            self._problem(f"commit failed: {error}")
            raise


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


def _storage(world: World, gate: Gate, job: SimulatedJob) -> CheckpointStorage:
    store = SimulatedStore(world.storage_url, world.disks, gate)
    limits = job.options.limits
    return CheckpointStorage(store, limits.inline_snapshot_bytes, limits.history_entries)
