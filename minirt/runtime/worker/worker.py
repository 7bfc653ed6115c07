"""A worker process: one or more subtasks in one cooperative loop."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from minirt.config import Limits
from minirt.errors import WorkerLostError
from minirt.kernels.choice import chosen
from minirt.monitoring.log_lines import LineHandler
from minirt.monitoring.logs import keep_lines, logger_of, set_up_worker
from minirt.monitoring.subtask_metrics import Activity, TimeAccount
from minirt.operators.common.base import CoroutineStart, chain_error
from minirt.operators.common.mailbox import Mailbox
from minirt.protocol.drift import Progress
from minirt.protocol.ids import SubtaskId
from minirt.protocol.job_events import (
    SourceProgressed,
    StopWorkers,
    SubtaskDrained,
    SubtaskStarted,
    WorkerFailed,
)
from minirt.protocol.restart_commands import SubtaskCaughtUp
from minirt.runtime.channels.channels import OutputChannel
from minirt.runtime.control.connection import connect_to
from minirt.runtime.control.control import ORPHANED_EXIT, Control, end_broken, end_with_coordinator
from minirt.runtime.control.messages import (
    Assignment,
    ClockAnswer,
    ClockQuestion,
    FiguresOfCall,
    PeerBack,
    PeerLost,
    SentCommand,
    ToCoordinator,
    ToWorker,
    WorkerEvent,
    WorkerHello,
    WorkerRestored,
    portable,
)
from minirt.runtime.control.package import JobPackage
from minirt.runtime.network.trunks import TrunkReceiver, TrunkSender
from minirt.runtime.subtask.assembly import assemble
from minirt.runtime.subtask.pacer import TimedPacer
from minirt.runtime.subtask.snapshot import SnapshotUpload
from minirt.runtime.subtask.subtask import Subtask
from minirt.runtime.worker.beside import Beside
from minirt.runtime.worker.event_loop import EventLoop
from minirt.runtime.worker.long_calls import Figures, LongCalls
from minirt.runtime.worker.orders import CommandReceiver, deliver_uploaded
from minirt.runtime.worker.place import WorkerPlace
from minirt.runtime.worker.roster import Roster
from minirt.runtime.worker.uploader import Uploader
from minirt.runtime.worker.waker import Waker
from minirt.runtime.worker.wiring import Wiring

_HEARD_FIRST_S = 2.0
"""How long the coordinator may take to hear why another worker ended, before it hears that it did."""
_CLOSE_S_MAX = 5.0
"""How long the event loop may take to end what runs in it."""

logger = logger_of("worker")


def run_worker(package: JobPackage, place: WorkerPlace) -> None:
    """The whole life of a worker, in its own process."""
    try:
        control = Control(connect_to(place.coordinator, place.network))
        end_with_coordinator(place.coordinator, place.network)
    except (OSError, WorkerLostError):
        os._exit(ORPHANED_EXIT)
    listener, address = place.network.listen(place.name)
    control.send(WorkerHello(place.generation, place.worker, os.getpid(), address, place.life))
    try:
        assignment = control.receive()
        if isinstance(assignment, Assignment):
            with control.repeating(place.heartbeat({}), package.options.limits.heartbeat_s):
                worker = Worker(package, place, control, listener, assignment)
            try:
                worker.run()
            except BaseException:
                control.send(place.heartbeat({}, worker.lines.take()))
                raise
            worker.finish()
    except BaseException as error:
        # A worker that finds another one gone is not the first to fail: let it be heard first.
        if not (isinstance(error, WorkerLostError) and control.is_told_to_stop(_HEARD_FIRST_S)):
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
        self.clock = package.clock
        self._place = place
        self._control = control
        self._limits: Limits = package.options.limits
        self._selector = selectors.DefaultSelector()
        self._working: list[Subtask] = []
        """Those in the middle of a slice: one may have to wait there until others have worked."""
        self._wiring = Wiring(
            self._selector,
            self._limits,
            place.network,
            place.generation,
            self.clock.monotonic,
            self._working,
        )
        self._stopping = False
        self._served = False
        """Whether nobody has worked since the worker last looked at what has arrived."""
        self._heartbeat_at = 0.0
        self.lines = LineHandler()
        self._serve_at = 0.0
        self._warned: set[SubtaskId] = set()
        """The subtasks that were blocked within a record: each is logged once."""
        hosted = sum(host == place.worker for host in assignment.peers.placement.values())
        uploads_max = self._limits.waiting_snapshots * hosted
        self._waker = Waker()
        self._selector.register(self._waker.receiver, selectors.EVENT_READ, self._waker.calm)
        self._uploaded: Mailbox[WorkerEvent] = Mailbox()
        """For subtasks, which hear of it before the coordinator does."""
        self._uploader = Uploader(
            *(package, uploads_max, self._uploaded.put, self._waker.wake),
            *(self._tell, self._on_thread_failed),
        )
        self._commands = CommandReceiver(self.clock.monotonic, self._uploader.give_up)
        self._beside = Beside(self._on_thread_failed)
        self._event_loop = EventLoop(self._on_thread_failed)
        self._mail: deque[SubtaskId] = deque()
        """Subtasks that other threads have something for."""
        self.subtasks = self._assemble(assignment, listener)
        self._by_id = {subtask.id: subtask for subtask in self.subtasks}
        self._roster = Roster(self.subtasks)
        began = time.perf_counter()
        self._time = {one.id: TimeAccount(one.metrics, began) for one in self.subtasks}
        self._long_calls = LongCalls(
            self._time, self._limits.heartbeat_s, self._report_call, self._on_thread_failed
        )

    # Ports of the subtasks.

    def upload(self, upload: SnapshotUpload) -> None:
        self._uploader.put(upload)

    def drained(self, subtask: SubtaskId) -> None:
        self._report()  # Whoever hears that all is read must not know older figures.
        self._tell(SubtaskDrained(self._place.generation, subtask))

    def caught_up(self, subtask: SubtaskId) -> None:
        self._tell(SubtaskCaughtUp(self._place.generation, subtask))

    def progressed(self, subtask: SubtaskId, progress: Progress) -> None:
        self._tell(SourceProgressed(self._place.generation, subtask, progress))

    def wake(self, subtask: SubtaskId) -> None:
        self._mail.append(subtask)
        self._waker.wake()

    def run_beside(self, call: Callable[[], None]) -> None:
        self._beside.run(call)

    def run_async(self, start: CoroutineStart) -> None:
        self._event_loop.run(start)

    # Start.

    def _assemble(self, assignment: Assignment, listener: socket.socket) -> list[Subtask]:
        graph, options = self._package.load_graph(), self._package.options
        generation, logging = self._place.generation, self._package.logging
        set_up_worker(
            options.log_format,
            options.log_level,
            None if logging is None else logging.set_up,
            job=graph.name,
            generation=generation,
        )
        keep_lines(self.lines)
        logger.info("column keys are worked on by kernels of %s", chosen())
        mine = [id for id, host in assignment.peers.placement.items() if host == self._place.worker]
        built = {
            id: assemble(
                self._package,
                assignment.deployment,
                id,
                self,
                TimedPacer(self._limits.slice_s),
                partial(self._make_room, id),
                self._place.network.folder,
            )
            for id in sorted(mine)
        }
        if self._place.life:
            self._tell(WorkerRestored(generation, self._place.worker))
        self._wiring.connect(self._place, graph, built, assignment, listener)
        listener.close()
        self._selector.register(self._control.fileno(), selectors.EVENT_READ, self._on_control)
        for id in built:
            self._tell(SubtaskStarted(generation, id))
        return [assembled.subtask for assembled in built.values()]

    # The loop.

    def run(self) -> None:
        """Take turns until the coordinator tells the worker to stop."""
        self._on_control()  # What has come along with the assignment makes its socket readable no more.
        with self._long_calls.watched():
            while not self._stopping:
                # What the last slice has emitted may be work for others here: so it goes before the wait.
                self._wiring.move_frames()
                self._serve(self._patience_s())
                self._take_turns()
        for subtask in self.subtasks:
            subtask.close()
        self._report()

    def finish(self) -> None:
        """Let coroutines end that subtasks have begun when they were closed."""
        self._event_loop.finish(_CLOSE_S_MAX)

    def _patience_s(self) -> float:
        """How long to wait for what may arrive: not at all if a subtask has anything else to do."""
        for subtask in self._roster.stirred():
            self._note_wait(subtask)
            self._roster.expect(subtask, subtask.wake_at)
        if self._roster.any_can(lambda subtask: subtask.runnable):
            return 0.0
        wakes = [self._heartbeat_at, self._roster.next_alarm_at]
        return waiting_s(wakes, self.clock.monotonic())

    def _serve(self, timeout: float) -> None:
        """Handle what has arrived, or arrives within `timeout` seconds, and what the clock asks for.

        Then send what this and the last slice have put into the queues: so barriers and records are on
        their way before the next call of a function of the user begins.
        """
        ready = self._selector.select(timeout)
        while (stored := self._uploaded.take()) is not None:
            deliver_uploaded(stored, self._by_id)
        self._uploader.tell_results()
        for key, mask in ready:
            self._dispatch(key, mask)
        while self._mail:
            self._roster.stir(self._mail.popleft())
        for subtask in self._roster.look(self.clock.monotonic(), self._working):
            subtask.on_time()
            self._roster.expect(subtask, subtask.wake_at)
        self._wiring.move_frames()
        self._beat()
        self._served = True

    def _take_turns(self) -> None:
        """A slice for each that can work. Between two slices others are served."""
        while (subtask := self._roster.next()) is not None:
            self._take_turn(subtask)

    def _take_turn(self, subtask: Subtask) -> bool:
        """A slice for this one, if it can work; whether it could."""
        if not self._served:
            self._serve(0)
        if subtask.runnable and not self._stopping:
            self._work(subtask)
            return True
        self._note_wait(subtask)
        return False

    def _dispatch(self, key: selectors.SelectorKey, mask: int) -> None:
        if isinstance(key.data, TrunkReceiver | TrunkSender):
            self._wiring.on_ready(key, mask)
        else:
            key.data()

    def _work(self, subtask: Subtask) -> None:
        self._time[subtask.id].turn_to(Activity.BUSY, time.perf_counter())
        self._working.append(subtask)
        try:
            subtask.run_slice()
        except BaseException as error:
            raise chain_error(subtask.name, error) from error
        finally:
            self._working.pop()
            self._served = False
            self._roster.stir(subtask.id)
        if self._working:  # Else it is done with the next turn.
            self._note_wait(subtask)

    def _note_wait(self, subtask: Subtask) -> None:
        """What its time counts as until it works, or until this is looked at again."""
        held, full = subtask.input.held_by_drift, subtask.outputs.full
        waits = Activity.of_wait(has_input=subtask.has_input, full=full, held_by_drift=held)
        self._time[subtask.id].turn_to(waits, time.perf_counter())

    def _make_room(self, id: SubtaskId, channel: OutputChannel) -> None:
        """Inside one record that emits more than memory has room for: send what the receivers take.

        The record may run for long, so that is done once a slice. Outside of a slice there is no
        need: only buffers are flushed then, which hold little.

        Barriers and commands for the subtasks that are in the middle of a record wait until its end.
        """
        if not self._working or self._working[-1].id != id:
            return
        if not channel.overdrawn and time.perf_counter() < self._serve_at:
            return
        with self._control_paused():
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

    def _run_downstream(self, subtask: Subtask) -> bool:
        below = [other for other in self.subtasks if other.id.vertex > subtask.id.vertex]
        ran = False
        for other in [each for each in below if each not in self._working]:
            ran |= self._take_turn(other)
        return ran

    # Coordinator.

    def _on_thread_failed(self, error: BaseException) -> None:
        """Called by a thread beside the record path, as its last deed."""
        try:
            self._tell(WorkerFailed(self._place.generation, portable(error)))
        except BaseException:
            end_broken(error)

    def _tell(self, message: ToCoordinator) -> None:
        """Also called by threads beside the record path."""
        self._control.send(message)

    def _on_control(self) -> None:
        for message in self._control.arrived():
            self._obey(message)

    @contextlib.contextmanager
    def _control_paused(self) -> Iterator[None]:
        """Leave the messages of the coordinator alone."""
        descriptor = self._control.fileno()
        key = self._selector.get_map().get(descriptor)
        if key is not None:  # Else it is paused already.
            self._selector.unregister(descriptor)
        try:
            yield
        finally:
            if key is not None:
                self._selector.register(descriptor, key.events, key.data)

    def _obey(self, message: ToWorker) -> None:
        match message:
            case SentCommand():
                self._commands.receive(message, self.subtasks)
            case ClockQuestion(asked_at):
                place, now = self._place, self.clock.monotonic()
                self._tell(ClockAnswer(place.generation, place.worker, asked_at, now))
            case PeerLost(worker):
                self._tell(self._wiring.park(worker))
                self._roster.stir_all()
            case PeerBack():
                self._wiring.rejoin(message)
                self._roster.stir_all()
            case StopWorkers():
                self._stopping = True

    def _beat(self) -> None:
        now = self.clock.monotonic()
        if now < self._heartbeat_at:
            return
        self._heartbeat_at = now + self._limits.heartbeat_s
        self._roster.stir_all()  # It says something of all of them anyway.
        # Else it has not heard what the coordinator says.
        if not (self._working or self._stopping):
            self._wiring.check_trunks()
        self._report()

    def _report(self) -> None:
        now = time.perf_counter()
        for subtask in self.subtasks:
            self._time[subtask.id].settle(now)
            subtask.metrics.queued_out_bytes = subtask.outputs.queued_bytes
            subtask.metrics.output_queue_use = subtask.outputs.fill
            subtask.metrics.queued_in_bytes = subtask.input.queued_bytes
            subtask.metrics.input_window_bytes = subtask.input.room_bytes
        figures = {subtask.id: subtask.metrics for subtask in self.subtasks}
        self._tell(self._place.heartbeat(figures, self.lines.take()))
        self._long_calls.reported()

    def _report_call(self, figures: Figures) -> None:
        self._tell(FiguresOfCall(self._place.generation, figures))
