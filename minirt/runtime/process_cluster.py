"""Runs subtasks in worker processes, and speaks with them over control connections."""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, wait

from minirt.errors import WorkerLostError
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
from minirt.runtime.messages import (
    Abort,
    Assignment,
    Fork,
    Heartbeat,
    KillGeneration,
    LifelineOpened,
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


class ProcessCluster:
    """The workers of a job. `poll` is to be called in turn with everything else; it posts events."""

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
        self._token = secrets.token_bytes(TOKEN_BYTES)
        self._folder = tempfile.mkdtemp(prefix="minirt-")
        self._listener = self._listen()
        self._accepted: queue.SimpleQueue[Connection] = queue.SimpleQueue()
        self._unknown: list[Connection] = []
        self._lifelines: list[Connection] = []
        self._template: Connection | None = None
        self._template_process: subprocess.Popen[bytes] | None = None
        self._forks: list[Fork] = []
        self._deployment: Deployment | None = None
        self._workers: dict[int, Connection] = {}
        self._addresses: dict[int, Address] = {}
        self._exits: dict[int, int] = {}
        self._stopping = False
        self._closed = False
        self.pids: dict[int, int] = {}
        self.metrics: dict[SubtaskId, SubtaskMetrics] = {}
        self.figures_changed = False
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        self._acceptor = threading.Thread(target=self._accept, name="minirt-accept", daemon=True)
        self._acceptor.start()
        self._start_template()

    # What the coordinator orders.

    def deploy(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._stopping = False
        self._addresses, self._exits, self.pids, self.metrics = {}, {}, {}, {}
        for worker in sorted(set(self._placement.values())):
            self._fork(Fork(deployment.generation, worker))

    def stop(self, generation: int, *, kill: bool) -> None:
        if self._deployment is None or generation != self._deployment.generation:
            return
        self._stopping = True
        if kill:
            self._tell_template(KillGeneration(generation))
            self._drop_workers()
            return
        for worker in list(self._workers):
            self._tell(worker, Stop())

    def trigger(self, generation: int, barrier: Barrier) -> None:
        sources = [vertex for vertex in self._graph.vertices if vertex.is_source]
        hosts = {self._placement[id] for vertex in sources for id in vertex.subtasks()}
        for worker in sorted(hosts):
            self._tell(worker, Trigger(barrier))

    def abort(self, generation: int, checkpoint_id: int) -> None:
        for worker in list(self._workers):
            self._tell(worker, Abort(checkpoint_id))

    # What the loop calls.

    def wake(self) -> None:
        """Let `poll` return at once; may be called from any thread."""
        os.write(self._wake_writer, b"\0")

    def poll(self, timeout: float | None) -> None:
        """Wait for messages, at most `timeout` seconds, and post what they mean."""
        self._look_after_template()
        known = {connection: worker for worker, connection in self._workers.items()}
        connections = [*known, *self._unknown, *([self._template] if self._template else [])]
        for ready in wait([self._wake_reader, *connections], timeout):
            if ready == self._wake_reader:
                os.read(self._wake_reader, 4096)
                while not self._accepted.empty():
                    self._unknown.append(self._accepted.get())
                continue
            assert isinstance(ready, Connection)
            try:
                self._on_message(ready, known.get(ready), ready.recv())
                while ready in known and ready.poll():
                    self._on_message(ready, known[ready], ready.recv())
            except (EOFError, OSError):
                self._on_closed(ready, known.get(ready))

    def close(self, timeout: float) -> None:
        """Wait for workers that were told to stop, then end whatever is left."""
        process = self._template_process
        deadline = threading.Event()
        timer = threading.Timer(timeout, deadline.set)
        timer.start()
        while self._workers and not deadline.is_set():
            self.poll(0.05)
        timer.cancel()
        self._drop_workers()
        for connection in [*self._lifelines, *self._unknown, self._template]:
            if connection is not None:
                connection.close()
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._stop_accepting()
        os.close(self._wake_reader)
        os.close(self._wake_writer)
        shutil.rmtree(self._folder, ignore_errors=True)

    # Connections.

    def _stop_accepting(self) -> None:
        """Closing a listener does not end an `accept` that waits on it; a last connection does."""
        self._closed = True
        with contextlib.suppress(OSError, EOFError, AuthenticationError):
            Client(self._listener.address, authkey=self._token).close()
        self._acceptor.join(1.0)
        self._listener.close()

    def _listen(self) -> Listener:
        if self._package.options.transport == "unix":
            path = os.path.join(self._folder, "coordinator")
            return Listener(path, "AF_UNIX", backlog=1024, authkey=self._token)
        return Listener(("127.0.0.1", 0), "AF_INET", backlog=1024, authkey=self._token)

    def _accept(self) -> None:
        """Let in who knows the token. Who fails to prove it, or dies meanwhile, is nobody's loss."""
        while not self._closed:
            try:
                connection = self._listener.accept()
            except Exception:
                continue
            self._accepted.put(connection)
            self.wake()

    def _on_message(self, sender: Connection, worker: int | None, message: ToCoordinator) -> None:
        if sender in self._unknown:
            self._unknown.remove(sender)
        match message:
            case TemplateReady():
                self._template = sender
                forks, self._forks = self._forks, []
                for fork in forks:
                    self._fork(fork)
            case LifelineOpened():
                self._lifelines.append(sender)
            case WorkerHello():
                self._on_hello(sender, message)
            case WorkerExited(generation, number, status):
                self._on_exited(generation, number, status)
            case Heartbeat(generation, number, metrics):
                self.metrics.update(metrics)
                self.figures_changed = True
                self._post(WorkerSeen(generation, number))
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
        if connection is self._template:
            self._template = None
            self._on_template_lost()
        if worker is None or self._workers.get(worker) is not connection:
            return
        del self._workers[worker]
        if self._stopping:
            return
        pid = self.pids.get(worker)
        names = [self._graph.subtask_name(i) for i, at in self._placement.items() if at == worker]
        self._post(
            WorkerFailed(
                self._generation,
                WorkerLostError(f"worker {worker} (process {pid}: {', '.join(names)}) died"),
            )
        )

    def _on_exited(self, generation: int, worker: int, status: int) -> None:
        """A worker that never said hello would otherwise only be noticed by the time-out."""
        if generation != self._generation or self._stopping or worker in self.pids:
            return
        code = os.waitstatus_to_exitcode(status)
        lost = WorkerLostError(f"worker {worker} ended with exit code {code} before it was up")
        self._post(WorkerFailed(generation, lost))

    def _on_template_lost(self) -> None:
        """Without it nothing can be forked."""
        if self._template_process is not None and not self._stopping:
            self._start_template()
            self._post(WorkerFailed(self._generation, WorkerLostError("the template process died")))

    @property
    def _generation(self) -> int:
        return 0 if self._deployment is None else self._deployment.generation

    def _tell(self, worker: int, message: ToWorker) -> None:
        # A worker that is gone is noticed where its connection is read.
        connection = self._workers.get(worker)
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.send(message)

    def _drop_workers(self) -> None:
        for connection in [*self._workers.values(), *self._lifelines]:
            connection.close()
        self._workers, self._lifelines = {}, []

    # The template.

    def _start_template(self) -> None:
        start = TemplateStart(
            coordinator=self._listener.address,
            token=self._token,
            folder=self._folder,
            import_path=sys.path,
            package=pickle.dumps(self._package),
        )
        self._template_process = process = subprocess.Popen(
            [sys.executable, "-c", "from minirt.runtime.template import main; main()"],
            stdin=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin:
            pickle.dump(start, process.stdin)

    def _look_after_template(self) -> None:
        """Notice that it never came up: whatever it printed went to our standard error."""
        process = self._template_process
        if self._template is None and process is not None and process.poll() is not None:
            self._template_process = None
            lost = WorkerLostError(
                f"the template process ended with exit code {process.returncode}"
            )
            self._post(GenerationFailed(lost, fatal=True))

    def _fork(self, fork: Fork) -> None:
        if self._template is None:
            self._forks.append(fork)
        else:
            self._tell_template(fork)

    def _tell_template(self, message: Fork | KillGeneration) -> None:
        if self._template is None:
            self._forks.clear()
            return
        with contextlib.suppress(OSError):
            self._template.send(message)
