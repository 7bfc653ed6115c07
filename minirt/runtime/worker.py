"""A worker process: one or more subtasks in one cooperative loop."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Client

from minirt.config import Limits
from minirt.graph.execution import SubtaskId
from minirt.monitoring.logs import logger_of, set_up_worker
from minirt.protocol.job_events import JobEvent, SubtaskDrained, SubtaskStarted, WorkerFailed
from minirt.runtime.assembly import JobPackage, assemble
from minirt.runtime.channels import OutputChannel
from minirt.runtime.control import ORPHANED_EXIT, Control, end_with_coordinator
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
from minirt.runtime.metrics import Activity, TimeAccount
from minirt.runtime.operators.base import user_error
from minirt.runtime.orders import deliver, deliver_stored
from minirt.runtime.pacer import TimedPacer
from minirt.runtime.snapshot import SnapshotUpload
from minirt.runtime.sockets import Address, SocketReceiver, SocketSender, listen
from minirt.runtime.subtask import Subtask
from minirt.runtime.uploader import Uploader
from minirt.runtime.wiring import Wiring

logger = logger_of("worker")


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
    options = package.options
    listener, address = listen(
        place.folder, f"w{place.generation}-{place.worker}", options.transport
    )
    control.send(WorkerHello(place.generation, place.worker, os.getpid(), address))
    assignment = control.receive()
    if isinstance(assignment, Assignment):
        try:
            life = Heartbeat(place.generation, place.worker, {})
            with control.repeating(life, options.limits.heartbeat_s):
                worker = Worker(package, place, control, listener, assignment)
            worker.run()
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            control.send(WorkerFailed(place.generation, portable(error)))
    # The connection still is open: once it is closed this process may be killed.
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()


def waiting_s(wakes: Iterable[float | None], now: float) -> float:
    """How long until the first of these moments; 0 if it has come.

    It may have come since the caller looked for work: then to wait for a later one would leave it undone.
    """
    return max(0.0, min(at for at in wakes if at is not None) - now)


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
        self._wiring = Wiring(self._selector, self._limits, place.token, place.generation)
        self._working: list[Subtask] = []
        self._stopping = False
        self._heartbeat_at = 0.0
        self._serve_at = 0.0
        self._warned: set[SubtaskId] = set()
        """Those that were blocked within a record."""
        self._uploader = Uploader(package, self._on_uploaded)
        self.subtasks = self._assemble(assignment, listener)
        began = time.perf_counter()
        self._time = {one.id: TimeAccount(one.metrics, began) for one in self.subtasks}

    # Ports of the subtasks.

    def now(self) -> float:
        return time.time()

    def upload(self, upload: SnapshotUpload) -> None:
        self._uploader.put(upload)

    def drained(self, subtask: SubtaskId) -> None:
        self._tell(SubtaskDrained(self._place.generation, subtask))

    # Start.

    def _assemble(self, assignment: Assignment, listener: socket.socket) -> list[Subtask]:
        graph, options = self._package.load_graph(), self._package.options
        generation = self._place.generation
        set_up_worker(options.log_format, options.log_level, job=graph.name, generation=generation)
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
                self._place.folder,
            )
            for id in sorted(mine)
        }
        self._wiring.connect(self._place.worker, graph, built, assignment, listener)
        listener.close()
        self._selector.register(self._control.fileno(), selectors.EVENT_READ, self._on_control)
        for id in built:
            self._tell(SubtaskStarted(generation, id))
        return [assembled.subtask for assembled in built.values()]

    # The loop.

    def run(self) -> None:
        """Until told to stop."""
        while not self._stopping:
            for subtask in self.subtasks:
                self._note_wait(subtask)
            self._wait()
            for subtask in self.subtasks:
                subtask.on_time()
                if subtask.runnable:
                    self._work(subtask)
            self._wiring.move_frames(self._working)
            self._beat()
        for subtask in self.subtasks:
            subtask.close()
        self._report()

    def _wait(self) -> None:
        """Handle what has arrived; wait for it if no subtask has anything else to do."""
        timeout = 0.0
        if not any(subtask.runnable for subtask in self.subtasks):
            wakes = [subtask.wake_at for subtask in self.subtasks]
            timeout = waiting_s([self._heartbeat_at, *wakes], time.time())
        for key, mask in self._selector.select(timeout):
            self._dispatch(key, mask)

    def _dispatch(self, key: selectors.SelectorKey, mask: int) -> None:
        if isinstance(key.data, SocketReceiver | SocketSender):
            self._wiring.on_ready(key, mask)
        else:
            key.data()

    def _work(self, subtask: Subtask) -> None:
        self._time[subtask.id].turn_to(Activity.BUSY, time.perf_counter())
        self._working.append(subtask)
        try:
            subtask.run_slice()
        except SystemExit as error:
            raise user_error(subtask.name, error) from error
        finally:
            self._working.pop()
        if self._working:  # Else it is done with the next turn.
            self._note_wait(subtask)

    def _note_wait(self, subtask: Subtask) -> None:
        """What its time counts as until it works, or until this is looked at again."""
        if not subtask.has_input:
            activity = Activity.IDLE
        elif subtask.outputs.full:
            activity = Activity.SOFT_BACKPRESSURE
        else:
            activity = Activity.BUSY
        self._time[subtask.id].turn_to(activity, time.perf_counter())

    def _make_room(self, id: SubtaskId, channel: OutputChannel) -> None:
        """Inside one record that emits more than memory has room for: send what the receivers take.

        The record may run for long, so that is done once a slice. Outside of a slice there is no
        need: only buffers are flushed then, which hold little.
        """
        if not self._working or self._working[-1].id != id:
            return
        if not channel.overdrawn and time.perf_counter() < self._serve_at:
            return
        ids = [working.id for working in self._working]
        with self._wiring.upstream_paused(ids, self._control.fileno()):
            self._serve(0)
            if channel.overdrawn:
                self._block(self._working[-1], channel)
        self._serve_at = time.perf_counter() + self._limits.slice_s

    def _block(self, subtask: Subtask, channel: OutputChannel) -> None:
        """Hard backpressure: wait until the channel is no longer overdrawn.

        Barriers and records for this subtask wait as well; only what lies downstream goes on.
        """
        if subtask.id not in self._warned:
            self._warned.add(subtask.id)
            logger.warning(
                "%s has to wait within one record, and with it all barriers: %s",
                subtask.name,
                channel.spill.refusal,
            )
        account = self._time[subtask.id]
        account.turn_to(Activity.HARD_BACKPRESSURE, time.perf_counter())
        while channel.overdrawn:
            ran = self._run_downstream(subtask)
            self._serve(0 if ran else self._limits.heartbeat_s)
        account.turn_to(Activity.BUSY, time.perf_counter())

    def _serve(self, timeout: float) -> None:
        """Move frames and handle what has arrived, or arrives within `timeout` seconds."""
        self._wiring.move_frames(self._working)
        for key, mask in self._selector.select(timeout):
            self._dispatch(key, mask)
        self._beat()

    def _run_downstream(self, subtask: Subtask) -> bool:
        ran = False
        for other in self.subtasks:
            below = other.id.vertex > subtask.id.vertex
            if below and other not in self._working and other.runnable:
                self._work(other)
                ran = True
        return ran

    # Coordinator.

    def _on_uploaded(self, result: JobEvent) -> None:
        """Called by the uploader's thread."""
        deliver_stored(result, self.subtasks)
        self._tell(result)

    def _tell(self, message: ToCoordinator) -> None:
        """Also called by the uploader's thread."""
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

    def _beat(self) -> None:
        now = time.time()
        if now < self._heartbeat_at:
            return
        self._heartbeat_at = now + self._limits.heartbeat_s
        self._report()

    def _report(self) -> None:
        now = time.perf_counter()
        for subtask in self.subtasks:
            self._time[subtask.id].settle(now)
            subtask.metrics.queued_out_bytes = subtask.outputs.queued_bytes
            subtask.metrics.output_queue_use = subtask.outputs.fill
            if subtask.gate is not None:
                subtask.metrics.queued_in_bytes = subtask.gate.gate.queued_bytes
                subtask.metrics.input_window_bytes = subtask.gate.gate.window_bytes
        figures = {subtask.id: subtask.metrics for subtask in self.subtasks}
        self._tell(Heartbeat(self._place.generation, self._place.worker, figures))
