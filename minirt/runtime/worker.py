"""A worker process: one or more subtasks in one cooperative loop."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Client

from minirt.config import Limits
from minirt.errors import WorkerLostError
from minirt.graph.execution import ChannelId, SubtaskId
from minirt.protocol.job_events import SubtaskDrained, SubtaskStarted, WorkerFailed
from minirt.runtime.assembly import Assembled, JobPackage, assemble
from minirt.runtime.channels import InputChannel, OutputChannel
from minirt.runtime.control import ORPHANED_EXIT, Control, end_with_coordinator
from minirt.runtime.local import LocalLink
from minirt.runtime.messages import (
    Abort,
    Assignment,
    Drain,
    Heartbeat,
    Resume,
    Stop,
    ToCoordinator,
    ToWorker,
    Trigger,
    WorkerHello,
    portable,
)
from minirt.runtime.operators.base import user_error
from minirt.runtime.orders import deliver, deliver_stored
from minirt.runtime.pacer import TimedPacer
from minirt.runtime.snapshot import SnapshotUpload
from minirt.runtime.sockets import (
    Address,
    SocketReceiver,
    SocketSender,
    accept_channel,
    connect_channel,
    listen,
)
from minirt.runtime.subtask import Subtask
from minirt.runtime.uploader import Uploader

_RECEIVE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """Who a worker is and how it finds its coordinator."""

    generation: int
    worker: int
    coordinator: Address
    token: bytes
    folder: str


def run_worker(package: JobPackage, place: WorkerPlace) -> None:
    """The whole life of a worker, in its own process."""
    try:
        control = Control(Client(place.coordinator, authkey=place.token))
        end_with_coordinator(place.coordinator, place.token)
    except (OSError, EOFError):
        os._exit(ORPHANED_EXIT)
    listener, address = listen(
        place.folder, f"w{place.generation}-{place.worker}", package.options.transport
    )
    control.send(WorkerHello(place.generation, place.worker, os.getpid(), address))
    assignment = control.receive()
    if isinstance(assignment, Assignment):
        try:
            life = Heartbeat(place.generation, place.worker, {})
            with control.repeating(life, package.options.limits.heartbeat_s):
                worker = Worker(package, place, control, listener, assignment)
            worker.run()
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            control.send(WorkerFailed(place.generation, portable(error)))
    # The connection still is open: once it is closed this process may be killed.
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()


class Worker:
    """Hosts subtasks: sockets, timers and slices in turn. It is its subtasks' port to the world."""

    def __init__(
        self,
        package: JobPackage,
        place: WorkerPlace,
        control: Control,
        listener: socket.socket,
        assignment: Assignment,
    ) -> None:
        self._package = package
        self._place = place
        self._control = control
        self._limits: Limits = package.options.limits
        self._selector = selectors.DefaultSelector()
        self._buffer = memoryview(bytearray(_RECEIVE_BYTES))
        self._links: list[LocalLink] = []
        self._woken: set[SocketSender] = set()
        self._blocked_senders: set[SocketSender] = set()
        self._upstream: defaultdict[SubtaskId, list[SocketReceiver]] = defaultdict(list)
        self._working: list[Subtask] = []
        self._accounted_s: defaultdict[SubtaskId, float] = defaultdict(float)
        self._stopping = False
        self._heartbeat_at = 0.0
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        self._uploader = Uploader(package, self._wake)
        self.subtasks = self._assemble(assignment, listener)

    # Ports of the subtasks.

    def now(self) -> float:
        return time.time()

    def upload(self, upload: SnapshotUpload) -> None:
        self._uploader.put(upload)

    def drained(self, subtask: SubtaskId) -> None:
        self._tell(SubtaskDrained(self._place.generation, subtask))

    def _wake(self) -> None:
        """Called by the uploader's thread."""
        self._wake_sender.send(b"\0")

    # Start.

    def _assemble(self, assignment: Assignment, listener: socket.socket) -> list[Subtask]:
        mine = [id for id, host in assignment.placement.items() if host == self._place.worker]
        pace = self._limits.slice_s
        built = {
            id: assemble(
                self._package,
                assignment.deployment,
                id,
                self,
                TimedPacer(pace),
                partial(self._make_room, id),
            )
            for id in sorted(mine)
        }
        self._connect(built, assignment, listener)
        listener.close()
        self._selector.register(self._control.fileno(), selectors.EVENT_READ, self._on_control)
        self._selector.register(self._wake_receiver, selectors.EVENT_READ, self._on_uploaded)
        for id in built:
            self._tell(SubtaskStarted(self._place.generation, id))
        return [assembled.subtask for assembled in built.values()]

    def _connect(
        self, built: Mapping[SubtaskId, Assembled], assignment: Assignment, listener: socket.socket
    ) -> None:
        graph = self._package.load_graph()
        inputs: dict[ChannelId, tuple[Subtask, int, InputChannel]] = {
            id: (assembled.subtask, index, end)
            for assembled in built.values()
            for id, (index, end) in assembled.inputs.items()
        }
        for assembled in built.values():
            for id, output in assembled.outputs.items():
                target = SubtaskId(graph.links[id.link].target, id.receiver)
                host = assignment.placement[target]
                if host == self._place.worker:
                    subtask, index, end = inputs.pop(id)
                    self._links.append(LocalLink(output, end, subtask, index))
                else:
                    self._open_sender(id, output, assignment.addresses[host])
        listener.settimeout(self._limits.connect_timeout_s)
        while inputs:
            sock, id = self._accept(listener)
            if id in inputs:
                self._open_receiver(sock, *inputs.pop(id))
            else:
                sock.close()

    def _accept(self, listener: socket.socket) -> tuple[socket.socket, ChannelId]:
        while True:
            try:
                accepted = accept_channel(listener, self._place.token, self._place.generation)
            except TimeoutError as error:
                raise WorkerLostError("other workers have not opened their channels") from error
            if accepted is not None:
                return accepted

    def _open_sender(self, id: ChannelId, output: OutputChannel, address: Address) -> None:
        sock = connect_channel(address, self._place.token, self._place.generation, id)
        sender = SocketSender(sock, output)
        output.wake = lambda: self._woken.add(sender)
        self._selector.register(sock, selectors.EVENT_READ, sender)

    def _open_receiver(
        self, sock: socket.socket, subtask: Subtask, index: int, channel: InputChannel
    ) -> None:
        receiver = SocketReceiver(
            sock,
            channel,
            lambda frame: subtask.on_frame(index, frame),
            self._limits.frame_bytes_max,
            self._on_stuck_credit,
        )
        self._upstream[subtask.id].append(receiver)
        self._selector.register(sock, selectors.EVENT_READ, receiver)

    # The loop.

    def run(self) -> None:
        """Until told to stop."""
        mark = time.perf_counter()
        while not self._stopping:
            held_up = {s.id for s in self.subtasks if s.has_input and s.outputs.full}
            self._wait()
            for subtask in self.subtasks:
                subtask.on_time()
                if subtask.runnable:
                    self._work(subtask)
            self._move_frames()
            now = time.perf_counter()
            self._account(now - mark, held_up)
            mark = now
            self._beat()
        for subtask in self.subtasks:
            subtask.close()
        self._report()

    def _wait(self) -> None:
        """Handle what has arrived; wait for it if no subtask has anything else to do."""
        timeout = 0.0
        if not any(subtask.runnable for subtask in self.subtasks):
            wakes = [at for subtask in self.subtasks if (at := subtask.wake_at) is not None]
            now = time.time()
            until = min([self._heartbeat_at, *(at for at in wakes if at > now)])
            timeout = max(0.0, until - now)
        for key, mask in self._selector.select(timeout):
            self._dispatch(key, mask)

    def _dispatch(self, key: selectors.SelectorKey, mask: int) -> None:
        handler = key.data
        if isinstance(handler, SocketReceiver):
            self._on_receiver(key, handler, mask)
        elif isinstance(handler, SocketSender):
            self._on_sender(key, handler, mask)
        else:
            handler()

    def _on_receiver(self, key: selectors.SelectorKey, receiver: SocketReceiver, mask: int) -> None:
        try:
            if mask & selectors.EVENT_WRITE and not receiver.flush_credit():
                self._selector.modify(receiver.sock, selectors.EVENT_READ, receiver)
            alive = receiver.on_readable(self._buffer) if mask & selectors.EVENT_READ else True
        except ConnectionError:
            alive = False
        if not alive:
            self._selector.unregister(key.fileobj)

    def _on_stuck_credit(self, receiver: SocketReceiver) -> None:
        """The sender does not read: send the rest when it does."""
        if receiver.sock in self._selector.get_map():
            events = selectors.EVENT_READ | selectors.EVENT_WRITE
            self._selector.modify(receiver.sock, events, receiver)

    def _on_sender(self, key: selectors.SelectorKey, sender: SocketSender, mask: int) -> None:
        try:
            alive = sender.on_readable() if mask & selectors.EVENT_READ else True
        except ConnectionError:
            alive = False
        if not alive:
            self._blocked_senders.discard(sender)
            self._selector.unregister(key.fileobj)
            return
        self._woken.add(sender)

    def _work(self, subtask: Subtask) -> None:
        metrics = subtask.metrics
        began, blocked_s = time.perf_counter(), metrics.hard_backpressure_s
        self._working.append(subtask)
        try:
            subtask.run_slice()
        except SystemExit as error:
            raise user_error(subtask.name, error) from error
        finally:
            self._working.pop()
        blocked_s = metrics.hard_backpressure_s - blocked_s
        metrics.busy_s += time.perf_counter() - began - blocked_s

    def _move_frames(self) -> None:
        """Send whatever credit and sockets take."""
        moved = True
        while moved:
            moved = False
            for link in self._links:
                # Inside a record nothing may arrive: a barrier could not be handled there.
                if link.receiver not in self._working:
                    moved |= link.move()
        woken, self._woken = self._woken, set()
        for sender in woken:
            self._send(sender)

    def _send(self, sender: SocketSender) -> None:
        try:
            blocked = sender.send()
        except ConnectionError:
            return  # The receiver's worker died: the coordinator knows, and will end this one too.
        if blocked != (sender in self._blocked_senders):
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if blocked else 0)
            self._selector.modify(sender.sock, events, sender)
            (self._blocked_senders.add if blocked else self._blocked_senders.discard)(sender)

    def _make_room(self, id: SubtaskId, channel: OutputChannel) -> None:
        """Hard backpressure: inside one record, wait until the channel is no longer overdrawn.

        Barriers and records for this subtask wait as well; only what lies downstream goes on. Outside
        of a slice nothing waits: only buffers are flushed then, which hold little.
        """
        if not self._working or self._working[-1].id != id:
            return
        subtask, began = self._working[-1], time.perf_counter()
        with self._upstream_paused():
            while channel.queued_bytes > channel.queue_bytes_max + self._limits.overdraft_bytes:
                self._move_frames()
                ran = self._run_downstream(subtask)
                for key, mask in self._selector.select(0 if ran else self._limits.heartbeat_s):
                    self._dispatch(key, mask)
                self._beat()
        subtask.metrics.hard_backpressure_s += time.perf_counter() - began

    @contextmanager
    def _upstream_paused(self) -> Iterator[None]:
        """Leave alone what would feed the subtasks that are at work, and the coordinator."""
        ids = [subtask.id for subtask in self._working]
        sockets = [receiver.sock for id in ids for receiver in self._upstream[id]]
        keys = self._selector.get_map()
        feeding = [*(sock.fileno() for sock in sockets), self._control.fileno()]
        paused = [keys[descriptor] for descriptor in feeding if descriptor in keys]
        for key in paused:
            self._selector.unregister(key.fileobj)
        try:
            yield
        finally:
            for key in paused:
                self._selector.register(key.fileobj, key.events, key.data)

    def _run_downstream(self, subtask: Subtask) -> bool:
        ran = False
        for other in self.subtasks:
            below = other.id.vertex > subtask.id.vertex
            if below and other not in self._working and other.runnable:
                self._work(other)
                ran = True
        return ran

    # Coordinator.

    def _tell(self, message: ToCoordinator) -> None:
        self._control.send(message)

    def _on_control(self) -> None:
        while self._control.waiting:
            self._obey(self._control.receive())

    def _obey(self, message: ToWorker) -> None:
        match message:
            case Trigger() | Resume() | Drain() | Abort():
                deliver(message, self.subtasks)
            case Stop():
                self._stopping = True

    def _on_uploaded(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake_receiver.recv(4096)
        while not self._uploader.results.empty():
            result = self._uploader.results.get()
            deliver_stored(result, self.subtasks)
            self._tell(result)

    def _account(self, passed: float, held_up: Collection[SubtaskId]) -> None:
        """Of the time since the last call, what a subtask did not work it waited.

        `held_up` had no room for output when the wait began; room is what ends such a wait.
        """
        for subtask in self.subtasks:
            metrics = subtask.metrics
            worked = metrics.busy_s + metrics.hard_backpressure_s
            waited = max(0.0, passed - (worked - self._accounted_s[subtask.id]))
            self._accounted_s[subtask.id] = worked
            if subtask.id in held_up:
                metrics.soft_backpressure_s += waited
            else:
                metrics.idle_s += waited

    def _beat(self) -> None:
        now = time.time()
        if now < self._heartbeat_at:
            return
        self._heartbeat_at = now + self._limits.heartbeat_s
        self._report()

    def _report(self) -> None:
        for subtask in self.subtasks:
            subtask.metrics.queued_out_bytes = subtask.outputs.queued_bytes
            if subtask.gate is not None:
                subtask.metrics.queued_in_bytes = subtask.gate.gate.queued_bytes
        figures = {subtask.id: subtask.metrics for subtask in self.subtasks}
        self._tell(Heartbeat(self._place.generation, self._place.worker, figures))
