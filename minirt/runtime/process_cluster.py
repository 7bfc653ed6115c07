"""Runs subtasks in worker processes, and speaks with them over control connections."""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection, wait

from minirt.errors import ConfigurationError, WorkerLostError
from minirt.graph.execution import ExecutionGraph, SubtaskId
from minirt.protocol.barriers import Barrier
from minirt.protocol.job_events import (
    GenerationFailed,
    JobEvent,
    WorkerFailed,
    WorkersConnected,
    WorkerSeen,
)
from minirt.runtime.assembly import Deployment, JobPackage
from minirt.runtime.entrance import Entrance
from minirt.runtime.messages import (
    Abort,
    Assignment,
    Drain,
    Fork,
    Heartbeat,
    LifelineOpened,
    Resume,
    SourceMessage,
    Stop,
    TemplateReady,
    ToCoordinator,
    ToWorker,
    Trigger,
    WorkerExited,
    WorkerHello,
)
from minirt.runtime.metrics import SubtaskMetrics
from minirt.runtime.sockets import TOKEN_BYTES, Address
from minirt.runtime.template import TemplateStart
from minirt.runtime.template_process import TemplateProcess

_FOLDER_BYTES_MAX = 88
"""The path of a Unix socket has at most 103 bytes on macOS; the name of a socket takes up to 15."""


class ProcessCluster:
    """The workers of a job. `poll` is to be called in turn with everything else; it posts events.

    A worker has ended when the template, whose child it is, says so: then it is known how, and all
    that it had to tell has arrived. Only if the template dies as well do all its workers count as lost.
    """

    def __init__(
        self,
        package: JobPackage,
        placement: Mapping[SubtaskId, int],
        post: Callable[[JobEvent], None],
    ) -> None:
        self._package = package
        self._graph: ExecutionGraph = package.load_graph()
        self._placement = placement
        self._post = post
        self._folder = _private_folder(package.options.transport)
        self._admitted: queue.SimpleQueue[Connection] = queue.SimpleQueue()
        self._unknown: list[Connection] = []
        self._lifelines: list[Connection] = []
        self._deployment: Deployment | None = None
        self._workers: dict[int, Connection] = {}
        self._addresses: dict[int, Address] = {}
        self._stopping = False
        self.pids: dict[int, int] = {}
        self.metrics: dict[SubtaskId, SubtaskMetrics] = {}
        self.figures_changed = False
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        self._wake_sender.setblocking(False)
        token = secrets.token_bytes(TOKEN_BYTES)
        self._entrance = Entrance(self._folder, package.options.transport, token, self._admit)
        self._template = TemplateProcess(
            TemplateStart(
                coordinator=self._entrance.address,
                token=token,
                folder=self._folder,
                import_path=sys.path,
                package=pickle.dumps(package),
            )
        )

    # What the coordinator orders.

    def deploy(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._stopping = False
        self._addresses, self.pids, self.metrics = {}, {}, {}
        for worker in sorted(set(self._placement.values())):
            self._template.fork(Fork(deployment.generation, worker))

    def stop(self, generation: int, *, kill: bool) -> None:
        if generation != self._generation:
            return
        self._stopping = True
        if kill:
            self._template.kill_generation(generation)
            self._drop_workers()
            return
        for worker in list(self._workers):
            self._tell(worker, Stop())

    def trigger(self, generation: int, barrier: Barrier, *, pause: bool) -> None:
        self._tell_sources(Trigger(barrier, pause))

    def resume(self, generation: int) -> None:
        self._tell_sources(Resume())

    def drain(self, generation: int) -> None:
        self._tell_sources(Drain())

    def abort(self, generation: int, checkpoint_id: int) -> None:
        for worker in list(self._workers):
            self._tell(worker, Abort(checkpoint_id))

    # What the loop calls.

    def wake(self) -> None:
        """Let `poll` return at once; may be called from any thread, also when all is closed."""
        with contextlib.suppress(OSError):
            self._wake_sender.send(b"\0")

    def poll(self, timeout: float | None) -> None:
        """Wait for messages, at most `timeout` seconds, and post what they mean."""
        if self._template.exit_code is not None:
            self._on_template_ended(self._template.exit_code)
            return
        known = {connection: worker for worker, connection in self._workers.items()}
        template = self._template.connection
        connections = [*known, *self._unknown, *([template] if template else [])]
        for ready in wait([self._wake_receiver, self._entrance.listener, *connections], timeout):
            if ready is self._wake_receiver:
                self._wake_receiver.recv(4096)
                while not self._admitted.empty():
                    self._unknown.append(self._admitted.get())
            elif ready is self._entrance.listener:
                self._entrance.accept()
            elif isinstance(ready, Connection) and not ready.closed:
                self._receive(ready, known.get(ready))

    def close(self, timeout: float) -> None:
        """Wait for workers that were told to stop, then end whatever is left."""
        deadline = time.monotonic() + timeout
        while self._workers and self._stopping and time.monotonic() < deadline:
            self.poll(0.05)
        self._template.close()
        self._drop_workers()
        self._entrance.close()
        while not self._admitted.empty():
            self._unknown.append(self._admitted.get())
        for connection in self._unknown:
            connection.close()
        self._wake_receiver.close()
        self._wake_sender.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # Connections.

    def _admit(self, connection: Connection) -> None:
        """Called by the threads of the entrance."""
        self._admitted.put(connection)
        self.wake()

    def _receive(self, connection: Connection, worker: int | None) -> None:
        """Take what has arrived; from a worker all of it, from others one message."""
        try:
            self._on_message(connection, connection.recv())
            while worker is not None and not connection.closed and connection.poll():
                self._on_message(connection, connection.recv())
        except (EOFError, OSError):
            self._on_closed(connection, worker)

    def _on_message(self, sender: Connection, message: ToCoordinator) -> None:
        if sender in self._unknown:
            self._unknown.remove(sender)
        match message:
            case TemplateReady():
                self._template.on_ready(sender)
            case LifelineOpened():
                self._lifelines.append(sender)
            case WorkerHello():
                self._on_hello(sender, message)
            case WorkerExited():
                self._on_exited(message)
            case Heartbeat(generation, worker, metrics):
                self.metrics.update(metrics)
                self.figures_changed = True
                self._post(WorkerSeen(generation, worker))
            case Exception():
                self._post(GenerationFailed(message, fatal=True))
            case _:
                self._post(message)

    def _on_hello(self, sender: Connection, hello: WorkerHello) -> None:
        if hello.generation != self._generation or self._stopping:
            sender.close()
            return
        assert self._deployment is not None
        self._workers[hello.worker] = sender
        self._addresses[hello.worker] = hello.address
        self.pids[hello.worker] = hello.pid
        self._post(WorkerSeen(hello.generation, hello.worker))
        if len(self._addresses) < len(set(self._placement.values())):
            return
        for worker in list(self._workers):
            mine = {id for id, host in self._placement.items() if host == worker}
            deployment = self._deployment.only(mine)
            self._tell(worker, Assignment(deployment, self._placement, self._addresses))
        self._post(WorkersConnected(self._generation))

    def _on_closed(self, connection: Connection, worker: int | None) -> None:
        connection.close()
        if connection in self._unknown:
            self._unknown.remove(connection)
        elif connection is self._template.connection:
            self._on_template_lost("the template process died")
        elif worker is not None and self._workers.get(worker) is connection:
            del self._workers[worker]

    def _on_exited(self, exited: WorkerExited) -> None:
        if exited.generation != self._generation or self._stopping:
            return
        connection = self._workers.get(exited.worker)
        while connection is not None and not connection.closed and connection.poll():
            self._receive(connection, exited.worker)
        self._lose(exited.worker, how_it_ended(os.waitstatus_to_exitcode(exited.status)))

    def _lose(self, worker: int, how: str) -> None:
        names = [self._graph.subtask_name(i) for i, at in self._placement.items() if at == worker]
        process = f"process {self.pids[worker]}" if worker in self.pids else "not yet up"
        lost = WorkerLostError(f"worker {worker} ({process}: {', '.join(names)}) {how}")
        self._post(WorkerFailed(self._generation, lost))

    def _tell_sources(self, message: SourceMessage) -> None:
        sources = [vertex for vertex in self._graph.vertices if vertex.is_source]
        hosts = {self._placement[id] for vertex in sources for id in vertex.subtasks()}
        for worker in sorted(hosts):
            self._tell(worker, message)

    def _tell(self, worker: int, message: ToWorker) -> None:
        connection = self._workers.get(worker)
        if connection is None:
            return
        try:
            connection.send(message)
        except BlockingIOError:  # Half of a message may be on its way: nothing can follow it.
            connection.close()
            del self._workers[worker]
            self._lose(worker, "takes no more messages")
        except OSError:
            pass  # It is gone, as the template will tell.

    def _drop_workers(self) -> None:
        for connection in [*self._workers.values(), *self._lifelines]:
            connection.close()
        self._workers, self._lifelines = {}, []

    @property
    def _generation(self) -> int:
        return 0 if self._deployment is None else self._deployment.generation

    # The template.

    def _on_template_ended(self, code: int) -> None:
        """It never came up: if it was not killed, what it printed went to our standard error."""
        how = f"the template process {how_it_ended(code)} before it was up"
        if code < 0:
            self._on_template_lost(how)
        else:
            self._post(GenerationFailed(WorkerLostError(how), fatal=True))

    def _on_template_lost(self, how: str) -> None:
        """Its workers cannot be told apart from living ones any more, and die with it."""
        self._template.restart()
        self._post(WorkerFailed(self._generation, WorkerLostError(how)))


def _private_folder(transport: str) -> str:
    """A new folder that only this user can enter. Raises ConfigurationError if sockets cannot be there."""
    folder = tempfile.mkdtemp(prefix="minirt-")
    if transport == "unix" and len(os.fsencode(folder)) > _FOLDER_BYTES_MAX:
        os.rmdir(folder)
        raise ConfigurationError(
            f"the folder for temporary files has too long a path for sockets: {folder}; set TMPDIR to a "
            'shorter one, or use Options(transport="tcp")'
        )
    return folder


def how_it_ended(code: int) -> str:
    """What became of a process, by its exit code as `subprocess` gives it."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
