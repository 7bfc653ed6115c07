"""Runs subtasks in worker processes, and speaks with them over control connections."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from minirt.errors import WorkerLostError
from minirt.graph.comebacks import hosted
from minirt.graph.execution import ExecutionGraph
from minirt.monitoring.log_lines import LINES_MAX, LogLine
from minirt.monitoring.logs import logger_of
from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.protocol.ids import SubtaskId
from minirt.protocol.job_events import (
    GenerationFailed,
    JobEvent,
    SnapshotAcknowledged,
    StopWorkers,
    WorkerFailed,
    WorkersConnected,
    WorkerSeen,
)
from minirt.protocol.restart_commands import KeepFor
from minirt.protocol.slots import AwaitSlots
from minirt.protocol.subtask_commands import SubtaskCommand
from minirt.protocol.trace import SubtaskTrace
from minirt.runtime.cluster.addresses import entrance_of, private_folder
from minirt.runtime.cluster.cluster import Receivers
from minirt.runtime.cluster.hosts import slots_of
from minirt.runtime.cluster.inbox import Inbox
from minirt.runtime.cluster.launching import Launch
from minirt.runtime.cluster.reception import Reception
from minirt.runtime.cluster.template_process import LOCAL_LAUNCH, how_it_ended
from minirt.runtime.cluster.watch import Readable, Watch
from minirt.runtime.control.clock_offsets import ClockOffsets
from minirt.runtime.control.connection import MessageConnection, UnreadableError, UnsendableError
from minirt.runtime.control.control import ORPHANED_EXIT
from minirt.runtime.control.messages import (
    Assignment,
    ClockAnswer,
    ClockQuestion,
    FiguresOfCall,
    Heartbeat,
    HostBeat,
    JobOver,
    LifelineOpened,
    OfGeneration,
    PeerBack,
    PeerLost,
    Peers,
    SentCommand,
    TemplateReady,
    ToCoordinator,
    Together,
    ToWorker,
    WorkerExited,
    WorkerHello,
    WorkerRestored,
)
from minirt.runtime.control.package import Deployment, JobPackage
from minirt.runtime.control.shape import Shape
from minirt.runtime.network.sockets import TOKEN_BYTES, Address

logger = logger_of("coordinator")

_EXPLAINED_S_MAX = 2.0
"""How long the template may take to say how a worker ended whose connection has closed."""

_UNHEARD = "has lost its connection to the coordinator"


class ProcessCluster:
    """Worker processes that templates fork, on this machine or on others; a `WorkerCluster`.

    A worker is lost when its connection closes, or when the template, whose child it is, says that it
    ended. Either way all that it had told is posted first. A connection alone does not tell what happened,
    so the template gets a moment to say it. If the template dies as well, all its workers count as lost.
    """

    def __init__(
        self,
        package: JobPackage,
        placement: Mapping[SubtaskId, int],
        post: Callable[[JobEvent], None],
        launch: Launch = LOCAL_LAUNCH,
    ) -> None:
        self._package = package
        self._graph: ExecutionGraph = package.load_graph()
        self.placement = placement
        self.names: Mapping[SubtaskId, str] = self._graph.subtask_names()
        self._post = post
        transport = package.options.transport
        self._folder = private_folder(launch is LOCAL_LAUNCH and transport == "unix")
        self._inbox = Inbox()
        self._watch = Watch()
        self._unknown: list[MessageConnection] = []
        self._lifelines: list[MessageConnection] = []
        self._deployment: Deployment | None = None
        self._receivers = Receivers(self._graph, placement)
        self._workers: dict[int, MessageConnection] = {}
        self._addresses: dict[int, Address] = {}
        self._back: dict[int, Deployment] = {}
        """What those were given that have come back alone, or are on their way."""
        self._unexplained: dict[int, float] = {}
        """Workers whose connection has closed, and until when the template may say why."""
        self._stopping = False
        self._clocks = ClockOffsets()
        self.pids: dict[int, int] = {}
        self.metrics: dict[SubtaskId, SubtaskMetrics] = {}
        self.logs: deque[LogLine] = deque(maxlen=LINES_MAX)
        self.figures_changed = False
        with contextlib.ExitStack() as undo:
            undo.callback(shutil.rmtree, self._folder, ignore_errors=True)
            undo.callback(self._inbox.close)
            undo.callback(self._watch.close)
            token = secrets.token_bytes(TOKEN_BYTES)
            network, port = launch.network(token, self._folder, transport)
            self._entrance = entrance_of(network, self._admit, port)
            undo.callback(self._entrance.close)
            slots = slots_of(placement)
            launcher = launch.start(
                package, network, self._entrance.address, len(set(slots.values()))
            )
            self._reception = Reception(
                *(package.options, slots, launch, launcher, post), self._inbox.leave
            )
            undo.pop_all()

    # What the coordinator orders.

    def deploy(self, deployment: Deployment) -> None:
        self._deployment = deployment
        if deployment.shape is not None:
            self._take_shape(deployment.shape)
        self._stopping = False
        self._unexplained, self._back = {}, {}
        self._addresses, self.pids, self.metrics = {}, {}, {}
        self._clocks.clear()
        self._reception.deploy(deployment.generation)

    def await_slots(self, command: AwaitSlots) -> None:
        """Post `SlotsAwaited` once the hosts that are there are enough, or the time is over."""
        self._reception.await_slots(command)

    def _take_shape(self, shape: Shape) -> None:
        self._graph, self.placement = shape.graph, shape.placement
        self._receivers = Receivers(shape.graph, shape.placement)
        self.names = shape.graph.subtask_names()
        self._reception.take_shape(slots_of(shape.placement), shape.pickled)

    def send(self, command: SubtaskCommand) -> None:
        if command.generation != self._generation:
            return
        sent = SentCommand(command, self._package.clock.monotonic())
        self._tell(self._receivers.of(command), sent)

    def keep_for(self, command: KeepFor) -> None:
        if command.generation == self._generation:
            self._tell(list(self._workers), PeerLost(command.worker))

    def bring_back(self, worker: int, deployment: Deployment) -> None:
        if deployment.generation == self._generation and not self._stopping:
            self._back[worker] = deployment
            self._reception.fork_again(worker, deployment.life)

    def stop(self, command: StopWorkers) -> None:
        if command.generation != self._generation:
            return
        self._stopping = True
        self._unexplained = {}
        self._reception.call_off()
        if command.kill:
            self._reception.kill(command.generation)
            self._drop_workers()
            return
        self._tell(list(self._workers), command)

    # What the loop calls.

    def wake(self) -> None:
        """Let `poll` return at once; may be called from any thread, also when all is closed."""
        self._inbox.wake()

    def poll(self, timeout: float | None) -> None:
        """Wait for messages, at most `timeout` seconds, and post what they mean."""
        if not self._reception.starts():
            return
        self._report_unexplained()
        known = {connection: worker for worker, connection in self._workers.items()}
        waking: list[Readable] = [self._inbox, self._entrance.listener, *known, *self._unknown]
        waking += [host.connection for host in self._reception.hosts]
        for ready in self._watch.readable(waking, self._patience_s(timeout)):
            if ready is self._inbox:
                self._inbox.serve()
            elif ready is self._entrance.listener:
                self._entrance.accept()
            elif isinstance(ready, MessageConnection) and not ready.closed:
                self._receive(ready, known.get(ready))
        self._reception.look_around()

    def close(self, timeout: float, last_word: JobOver | None) -> None:
        """Wait for workers that were told to stop, then end whatever is left."""
        deadline = time.monotonic() + timeout
        while self._workers and self._stopping and time.monotonic() < deadline:
            self.poll(0.05)
        for worker in self._workers if self._stopping else ():
            logger.warning("worker %d did not end within %g s: it is killed", worker, timeout)
        self._entrance.close()
        self._inbox.do_all()  # Else whoever was admitted last would stay when all others have gone.
        self._reception.close(last_word)
        self._drop_workers()
        self._watch.close()
        self._inbox.close()
        for connection in self._unknown:
            connection.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # Connections.

    def _admit(self, connection: MessageConnection) -> None:
        """Called by the threads of the entrance."""
        self._inbox.leave(partial(self._on_admitted, connection))

    def _on_admitted(self, connection: MessageConnection) -> None:
        self._unknown.append(connection)
        self._receive(connection, None)  # What came with the handshake makes no socket readable.

    def _receive(self, connection: MessageConnection, worker: int | None) -> bool:
        """Take the messages that have arrived; one that has come in part waits for its rest.

        Returns whether there were any.
        """
        try:
            messages = connection.arrived()
            for message in messages:
                self._on_message(connection, message)
            return bool(messages)
        except (EOFError, OSError):
            self._on_closed(connection, worker)
        except UnreadableError as error:
            self._on_closed(connection, worker)
            self._post(WorkerFailed(self._generation, error))
        return False

    def _on_message(
        self, sender: MessageConnection, message: ToCoordinator | dict[str, Any]
    ) -> None:
        if sender in self._unknown:
            self._unknown.remove(sender)
        match message:
            case dict():
                self._reception.on_hello(sender, message)
            case TemplateReady():
                self._reception.on_ready(sender, message)
            case HostBeat():
                self._reception.on_beat(sender)
            case LifelineOpened():
                self._lifelines.append(sender)
            case WorkerHello():
                self._on_hello(sender, message)
            case WorkerRestored(generation, worker):
                self._on_restored(generation, worker)
            case WorkerExited():
                self._on_exited(message)
            case Together(events):
                for event in events:
                    self._on_message(sender, event)
            case Exception():
                self._reception.on_error(sender, message)
            case _:
                self._on_told(message)

    def _on_told(self, message: OfGeneration) -> None:
        """A worker tells how it is. Of a generation that is over, only what was logged is news."""
        if isinstance(message, Heartbeat):
            self.logs.extend(message.logs)
        if message.generation != self._generation:
            return
        match message:
            case Heartbeat(generation, worker, metrics):
                self._take_figures(metrics)
                self._post(WorkerSeen(generation, worker))
                if self._package.options.trace:
                    self._tell([worker], ClockQuestion(self._package.clock.monotonic()))
            case FiguresOfCall(metrics=metrics):
                self._take_figures(metrics)
            case ClockAnswer(_, worker, asked_at, answered_at):
                now = self._package.clock.monotonic()
                self._clocks.note(worker, asked_at, answered_at, now)
            case SnapshotAcknowledged(subtask=subtask, trace=SubtaskTrace() as trace):
                aligned = self._clocks.aligned(trace, self.placement[subtask])
                self._post(replace(message, trace=aligned))
            case _:
                self._post(message)

    def _take_figures(self, metrics: Mapping[SubtaskId, SubtaskMetrics]) -> None:
        self.metrics.update(metrics)
        self.figures_changed = True

    def _on_hello(self, sender: MessageConnection, hello: WorkerHello) -> None:
        if not self._is_news(hello):
            sender.close()
            return
        assert self._deployment is not None
        self._workers[hello.worker] = sender
        self._addresses[hello.worker] = hello.address
        self.pids[hello.worker] = hello.pid
        self._post(WorkerSeen(hello.generation, hello.worker))
        if hello.life:
            peers = Peers(self.placement, self._addresses)
            self._tell([hello.worker], Assignment(self._back[hello.worker], peers))
            return
        if len(self._addresses) < len(set(self.placement.values())):
            return
        peers = Peers(self.placement, self._addresses)
        for worker, mine in hosted(self.placement).items():
            self._tell([worker], Assignment(self._deployment.only(mine), peers))
        self._post(WorkersConnected(self._generation))

    def _on_restored(self, generation: int, worker: int) -> None:
        """Only by now do others call it, as it answers at once."""
        if generation == self._generation and worker in self._back:
            at = self._back[worker]
            back = PeerBack(worker, self._addresses[worker], at.processed, at.marks)
            self._tell([other for other in self._workers if other != worker], back)

    def _is_news(self, told: WorkerHello | WorkerExited) -> bool:
        """Whether it is about the last life of a worker, and nobody has told it to stop."""
        life = self._back[told.worker].life if told.worker in self._back else 0
        return (told.generation, told.life) == (self._generation, life) and not self._stopping

    def _on_closed(self, connection: MessageConnection, worker: int | None) -> None:
        connection.close()
        if connection in self._unknown:
            self._unknown.remove(connection)
        elif self._reception.on_closed(connection):
            pass
        elif worker is not None and self._workers.get(worker) is connection:
            del self._workers[worker]
            if not self._stopping:
                self._unexplained[worker] = time.monotonic() + _EXPLAINED_S_MAX

    def _on_exited(self, exited: WorkerExited) -> None:
        if not self._is_news(exited):
            return
        self._hear_out(exited.worker)
        self._unexplained.pop(exited.worker, None)
        code = os.waitstatus_to_exitcode(exited.status)
        how = _UNHEARD if code == ORPHANED_EXIT else how_it_ended(code)
        self._lose(exited.worker, how, has_ended=True)

    def _hear_out(self, worker: int) -> None:
        """Take all that has arrived from a worker that says no more."""
        connection = self._workers.get(worker)
        while connection is not None and not connection.closed:
            if not self._receive(connection, worker):
                break

    def _patience_s(self, timeout: float | None) -> float | None:
        """How long to wait at most, so that no worker stays unexplained for longer than it may."""
        until = min(self._unexplained.values(), default=None)
        if until is None:
            return timeout
        left_s = max(0.0, until - time.monotonic())
        return left_s if timeout is None else min(left_s, timeout)

    def _report_unexplained(self) -> None:
        """Report workers lost whose end the template did not explain: they may live, unheard."""
        now = time.monotonic()
        for worker in [one for one, until in self._unexplained.items() if until <= now]:
            del self._unexplained[worker]
            self._lose(worker, _UNHEARD)

    def _lose(self, worker: int, how: str, *, has_ended: bool = False) -> None:
        names = [self._graph.subtask_name(i) for i, at in self.placement.items() if at == worker]
        process = f"process {self.pids[worker]}" if worker in self.pids else "not yet up"
        process += self._reception.name_of(worker)
        lost = WorkerLostError(f"worker {worker} ({process}: {', '.join(names)}) {how}")
        self._post(WorkerFailed(self._generation, lost, worker if has_ended else None))

    def _tell(self, workers: Iterable[int], message: ToWorker) -> None:
        try:  # Packed once for all of them: a checkpoint begins with this.
            packed = MessageConnection.sealed(message)
        except UnsendableError as error:
            self._post(GenerationFailed(error, fatal=True))
            return
        for worker in workers:
            if (connection := self._workers.get(worker)) is not None:
                self._send_sealed(worker, connection, packed)

    def _send_sealed(self, worker: int, connection: MessageConnection, packed: bytes) -> None:
        try:
            connection.send_sealed(packed)
        except (BlockingIOError, TimeoutError):
            # Half of a message may be on its way: nothing can follow.
            self._hear_out(worker)
            connection.close()
            self._workers.pop(worker, None)
            self._unexplained.pop(worker, None)
            self._lose(worker, "takes no more messages")
        except OSError:
            pass  # The connection is broken, as will show where it is read.

    def _drop_workers(self) -> None:
        for connection in [*self._workers.values(), *self._lifelines]:
            connection.close()
        self._workers, self._lifelines = {}, []

    @property
    def _generation(self) -> int:
        return 0 if self._deployment is None else self._deployment.generation
