"""A simulated worker process: hosts subtasks, stores their snapshots, hears from its coordinator."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from minirt.errors import WorkerLostError
from minirt.operators.common.base import CoroutineStart
from minirt.protocol.drift import Progress
from minirt.protocol.ids import ChannelId, SubtaskId
from minirt.protocol.job_events import (
    JobEvent,
    SnapshotDeclined,
    SourceProgressed,
    StopWorkers,
    SubtaskDrained,
    SubtaskStarted,
    WorkerFailed,
    WorkerSeen,
)
from minirt.protocol.restart_commands import ElementsHad, SubtaskCaughtUp
from minirt.runtime.channels.channels import OutputChannel
from minirt.runtime.channels.frames import Frame
from minirt.runtime.control.messages import PeerBack, PeerLost, SentCommand, ToWorker, portable
from minirt.runtime.control.package import Deployment, JobPackage
from minirt.runtime.input.service_log import LogFiles
from minirt.runtime.subtask.assembly import Assembled, assemble
from minirt.runtime.subtask.snapshot import SnapshotUpload, store_snapshots
from minirt.runtime.worker.orders import CommandReceiver, deliver_uploaded
from minirt.runtime.worker.upload_queue import UploadQueue
from minirt.testing.clock import SeededPacer
from minirt.testing.event_loop import EventLoopActor
from minirt.testing.faults import INJECTED, Chaos, InjectedFaultError, ProcessDiedError
from minirt.testing.noting_mode import noting
from minirt.testing.peers import Ends, Peers
from minirt.testing.schedule import Actor, Schedule
from minirt.testing.simulated_channel import ReceivingEnd
from minirt.testing.subtask_actor import SubtaskActor

_PIECES = ((1, 1), (3, 2), (40, 4))
"""Records a piece and pieces a slice, at most; a worker draws one of them."""

_SLOW_UPLOAD_STEPS = 400
_CALL_STEPS = 200
"""How long a call beside the record path takes, at most."""

LINGER_STEPS = 60
"""Within how many steps a worker ends that was killed, or that does not hear its coordinator any more."""


class WorkerPorts(Ends, Protocol):
    """What a worker asks of the cluster that it is part of."""

    order_files: LogFiles
    """What its subtasks write down for their next lives, in the memory of the host."""

    def post(self, worker: SimulatedWorker, event: JobEvent) -> None:
        """Send a message to the coordinator."""

    def on_hello(self, worker: SimulatedWorker) -> None:
        """The worker is up."""

    def on_assembled(self, worker: SimulatedWorker) -> None:
        """The worker's subtasks are ready to be connected."""

    def on_peer_back(self, worker: SimulatedWorker, peer: int) -> None:
        """The worker sends again to another one, which has come back."""

    def on_died(self, worker: SimulatedWorker, error: Exception | None) -> None:
        """The worker vanished without a word; `error` is for the coordinator, None for nobody."""

    def on_unheard(self, worker: SimulatedWorker) -> None:
        """The connection to the worker is lost; all that it had sent arrives first."""

    def on_unexpected(self, error: Exception) -> None:
        """Something failed that nobody made fail."""


class SimulatedWorker(Actor):
    """Runs the subtasks that were assigned to it until it stops, fails, or is made to vanish."""

    def __init__(
        self,
        schedule: Schedule,
        chaos: Chaos,
        cluster: WorkerPorts,
        package: JobPackage,
        deployment: Deployment,
        number: int,
        ids: Sequence[SubtaskId],
    ) -> None:
        self.number = number
        self.generation = deployment.generation
        self.life = deployment.life
        again = f", life {self.life}" if self.life else ""
        self.name = f"worker {number} of generation {deployment.generation}{again}"
        self.heard = True
        """Whether messages still reach the coordinator."""
        self.hanging = False
        self._may_start = False
        self.assembled: dict[SubtaskId, Assembled] = {}
        self._peers = Peers(self.assembled, cluster)
        self.actors: dict[SubtaskId, SubtaskActor] = {}
        self._inbox: deque[ToWorker] = deque()
        self._schedule = schedule
        self.clock = schedule.new_process()
        self._event_loop: EventLoopActor | None = None
        self._chaos = chaos
        self._cluster = cluster
        self._package = package
        self._deployment = deployment
        self._ids = ids
        self._alive = True
        self._greeted = False
        self._uploads = UploadQueue(package.options.limits.waiting_snapshots * len(ids))
        self._commands = CommandReceiver(self.clock.monotonic, self._uploads.give_up)
        self._upload_slow = False
        self._heartbeat_at: float | None = None
        self._heartbeat_s = package.options.limits.heartbeat_s

    @property
    def gone(self) -> bool:
        return not self._alive

    @property
    def turning(self) -> bool:
        return self._alive and not self.hanging

    @property
    def wake_at(self) -> float | None:
        return self._heartbeat_at if self.turning else None

    # What happens to it.

    @property
    def processed(self) -> Mapping[ChannelId, int]:
        """What its subtasks had processed of their channels where they begin."""
        return self._deployment.processed

    @property
    def marks(self) -> Mapping[ChannelId, tuple[int, int]]:
        """Where its subtasks begin, as those know it that receive from them."""
        return self._deployment.marks

    @property
    def key(self) -> Hashable:
        """What its messages are known by."""
        return (self.generation, self.number, self.life)

    def tell(self, message: ToWorker) -> None:
        """The coordinator sends a message."""
        self._inbox.append(message)
        self._schedule.wake(self)

    def start(self) -> None:
        """All workers are up: subtasks may be built."""
        self._may_start = True
        self._schedule.wake(self)

    def vanish(self) -> None:
        """Die by SIGKILL."""
        if self._alive:
            self._die()
            self._schedule.note(self.name, "dies")
            lost = WorkerLostError(f"{INJECTED}: {self.name} crashed")
            self._cluster.on_died(self, lost if self.heard else None)

    def end_within(self, steps: int) -> None:
        """Nobody listens to it any more; it goes on for so many steps at most before it ends itself."""
        self.heard = False
        self._schedule.later(steps, self._end)

    def lose_connection(self) -> None:
        """From now on neither it nor the coordinator hears the other."""
        if self._alive and self.heard:
            self._schedule.note(self.name, "loses its connection")
            self._inbox.clear()
            self._cluster.on_unheard(self)
            self.end_within(LINGER_STEPS)

    def hang(self, steps: int | None) -> None:
        """Do nothing for some steps, or until somebody ends it."""
        self.hanging = True
        if steps is not None:
            self._schedule.later(steps, self._unhang)

    def raise_in_user_code(self) -> bool:
        """Let one operator raise in the middle of its next batch; False if there is none to raise."""
        operators = [
            operator
            for built in self.assembled.values()
            for operator in built.subtask.chain.operators
        ]
        if not operators:
            return False
        operator = self._schedule.random.choice(operators)
        process = operator.process

        def fail(batch, input_index):  # type: ignore[no-untyped-def]
            process(batch.slice(0, len(batch) // 2), input_index)
            raise InjectedFaultError(f"operator {operator.ctx.label} raises")

        setattr(operator, "process", fail)  # noqa: B010 - a method is replaced
        return True

    def send(self, output: OutputChannel) -> list[Frame]:
        frames: list[Frame] = []

        def send_all() -> None:
            while (frame := output.poll()) is not None:
                frames.append(frame)

        self.guard(send_all)
        return frames

    def receive(self, end: ReceivingEnd, frame: Frame) -> None:
        self.guard(lambda: end.on_frame(frame))

    def on_connected(self) -> None:
        """Those that send to it do, or soon will."""
        for id in self._ids:
            self._cluster.post(self, SubtaskStarted(self.generation, id))

    # What it does.

    def act(self) -> bool:
        if not self.turning:
            return False
        choices: list[Callable[[], None]] = []
        if not self._greeted:
            choices.append(self._greet)
        elif self._may_start and not self.assembled:
            choices.append(self._assemble)
        if self._inbox:
            choices.append(self._obey)
        if self._uploads and not self._upload_slow:
            choices.append(self._store)
        if (
            self._heartbeat_at is not None
            and self._heartbeat_at <= self._schedule.clock.monotonic()
        ):
            choices.append(self._beat)
        if not choices:
            return False
        self.guard(self._schedule.random.choice(choices))
        return True

    def work(self, actor: SubtaskActor) -> bool:
        """One slice of a subtask, or what it has to do by the clock."""
        subtask = actor.subtask
        if not self.turning:
            actor.next_at = None
            return False
        if subtask.runnable:
            self.guard(subtask.on_time)
            self.guard(subtask.run_slice)
            return True
        before = actor.next_at = self.clock.scheduled(subtask.wake_at)
        if before is None or before > self._schedule.clock.monotonic():
            return False
        self.guard(subtask.on_time)
        actor.next_at = self.clock.scheduled(subtask.wake_at)
        return actor.next_at != before

    # The ports of its subtasks.

    def upload(self, upload: SnapshotUpload) -> None:
        self._schedule.note(
            self.name, f"{upload.name} has its part of checkpoint {upload.checkpoint_id}"
        )
        self._uploads.put(upload)
        self._schedule.wake(self)
        if self._chaos.strikes_operation("slow_storage"):
            self._upload_slow = True
            self._schedule.later(_SLOW_UPLOAD_STEPS, self._speed_up)

    def drained(self, subtask: SubtaskId) -> None:
        self._cluster.post(self, SubtaskDrained(self.generation, subtask))

    def caught_up(self, subtask: SubtaskId) -> None:
        self._cluster.post(self, SubtaskCaughtUp(self.generation, subtask))

    def progressed(self, subtask: SubtaskId, progress: Progress) -> None:
        self._cluster.post(self, SourceProgressed(self.generation, subtask, progress))

    def wake(self, subtask: SubtaskId) -> None:
        actor = self.actors.get(subtask)
        if actor is not None:
            self._schedule.wake(actor)

    def run_beside(self, call: Callable[[], None]) -> None:
        self._schedule.later(_CALL_STEPS, lambda: self._make(call))

    def run_async(self, start: CoroutineStart) -> None:
        if self._event_loop is None:
            self._event_loop = EventLoopActor(self)
            self._schedule.add(self._event_loop)
        self._event_loop.begin(start)
        self._schedule.wake(self._event_loop)

    # How it works.

    def _make(self, call: Callable[[], None]) -> None:
        if self.turning:
            self.guard(call)
        elif self._alive:
            self.run_beside(call)

    def _greet(self) -> None:
        self._greeted = True
        self._cluster.on_hello(self)

    def _assemble(self) -> None:
        deployment = self._deployment
        if deployment.restored_from is not None:
            storage, key = deployment.restored_from
            assert self._package.storage is not None
            storage = self._package.storage.at(storage.store.root)
            deployment = replace(deployment, restored_from=(storage, key))
        random = self._schedule.random
        pace = random.choice(_PIECES)
        self.assembled = {
            id: assemble(
                *(self._noting(id), deployment, id, self, SeededPacer(random, *pace), _no_limit),
                order_files=self._cluster.order_files,
            )
            for id in self._ids
        }
        self.actors = {id: SubtaskActor(self, b.subtask) for id, b in self.assembled.items()}
        self._peers = Peers(self.assembled, self._cluster)
        self._cluster.on_assembled(self)
        self._beat()
        if not self.life:
            self.on_connected()
        self._schedule.add(*self.actors.values())

    def _noting(self, id: SubtaskId) -> JobPackage:
        """The package, with modes that note what they order this subtask to do."""

        def note(orders: str) -> None:
            self._schedule.note(self.assembled[id].subtask.name, orders)

        modes = {name: noting(mode, note) for name, mode in self._package.modes.items()}
        return replace(self._package, modes=modes)

    def _obey(self) -> None:
        message = self._inbox.popleft()
        subtasks = [built.subtask for built in self.assembled.values()]
        for actor in self.actors.values():
            self._schedule.wake(actor)
        match message:
            case SentCommand():
                self._commands.receive(message, subtasks)
            case PeerLost(peer):
                if had := self._peers.park(peer):
                    self._cluster.post(self, ElementsHad(self.generation, peer, had))
            case PeerBack():
                self._peers.rejoin(
                    message, lambda: self._cluster.on_peer_back(self, message.worker)
                )
            case StopWorkers():
                for subtask in subtasks:
                    subtask.close()
                self._die()

    def _store(self) -> None:
        taken = self._uploads.take()
        storage, monotonic = self._package.storage, self.clock.monotonic
        results = store_snapshots(taken, storage, monotonic, self._uploads.is_given_up)
        for (_, upload), result in zip(taken, results, strict=True):
            self._schedule.note(
                self.name, f"{type(result).__name__} {upload.name} {upload.checkpoint_id}"
            )
            if isinstance(result, SnapshotDeclined) and not self._uploads.is_given_up(upload):
                error = result.error or "nobody gave it up"
                if INJECTED not in error:
                    self._cluster.on_unexpected(RuntimeError(error))
            deliver_uploaded(result, {id: one.subtask for id, one in self.assembled.items()})
            self._cluster.post(self, result)

    def _beat(self) -> None:
        self._heartbeat_at = self._schedule.clock.monotonic() + self._heartbeat_s
        self._cluster.post(self, WorkerSeen(self.generation, self.number))

    def guard(self, action: Callable[[], object]) -> None:
        """What happens to the process happens to the worker: it fails as a whole."""
        try:
            action()
        except ProcessDiedError:
            self.vanish()
        except (Exception, SystemExit) as error:
            self._schedule.note(self.name, f"fails: {error}")
            known = portable(error)
            if INJECTED not in str(error) and self.heard:
                self._cluster.on_unexpected(known)
            self._cluster.post(self, WorkerFailed(self.generation, known))
            self._die()

    def _die(self) -> None:
        self._alive = False
        if self._event_loop is not None:
            self._event_loop.drop()

    def _end(self) -> None:
        self._die()

    def _unhang(self) -> None:
        self.hanging = False
        self._schedule.wake_all()  # Also the channels, which had found nobody to send or receive.

    def _speed_up(self) -> None:
        self._upload_slow = False
        self._schedule.wake(self)


def _no_limit(channel: OutputChannel) -> None:
    """Everything runs in one thread: a record has to finish whatever it emits."""
