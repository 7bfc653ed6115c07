"""The inline runner: a whole job in the caller's thread, to be stepped through in a debugger."""

from __future__ import annotations

import threading
from collections import deque

from minirt.protocol.job import JobProtocol
from minirt.protocol.job_events import (
    AnswerSavepoint,
    EndJob,
    JobEvent,
    Submitted,
    WorkerFailed,
)
from minirt.runtime.cluster.local import LocalCluster
from minirt.runtime.control.messages import portable
from minirt.runtime.control.package import JobPackage
from minirt.runtime.coordinator.observer import JobObserver
from minirt.runtime.coordinator.shell import JobShell
from minirt.runtime.coordinator.storage_tasks import StorageCommand, StorageTasks
from minirt.runtime.subtask.pacer import TimedPacer
from minirt.runtime.subtask.snapshot import SnapshotUpload, store_snapshot
from minirt.runtime.worker.beside import Beside
from minirt.runtime.worker.event_loop import EventLoop
from minirt.runtime.worker.orders import deliver_uploaded

_WAIT_S_MAX = 0.05
_CLOSE_S_MAX = 5.0
"""How long the event loop may take to end what runs in it."""


class InlineRunner:
    """Gives subtasks slices in turn; between any two it handles events, timers, frames and storage."""

    def __init__(
        self, package: JobPackage, protocol: JobProtocol, tasks: StorageTasks, observer: JobObserver
    ) -> None:
        package.choose_kernels()
        self._package = package
        self._tasks = tasks
        self._events: deque[JobEvent] = deque([Submitted()])
        self._awake = threading.Event()
        self._beside = Beside(self._on_call_failed)
        self._event_loop = EventLoop(self._on_call_failed)
        slice_s = package.options.limits.slice_s
        self._cluster = LocalCluster(
            package,
            self._events.append,
            self._upload,
            package.clock,
            lambda: TimedPacer(slice_s),
            lambda subtask: self._awake.set(),
            self._beside.run,
            self._event_loop.run,
        )
        self._shell = JobShell(
            protocol,
            self._cluster,
            tasks,
            self._run_storage,
            package.clock,
            observer,
            _nobody_asked,
        )

    def run(self) -> EndJob:
        """The whole life of the job."""
        try:
            while self._shell.ending is None:
                if not self._turn():
                    self._wait()
        finally:
            self._event_loop.finish(_CLOSE_S_MAX)
            self._tasks.close()
        return self._shell.ending

    def _turn(self) -> bool:
        """Whether anything was done."""
        progress = self._serve()
        for id, subtask in list(self._cluster.subtasks.items()):
            if self._cluster.subtasks.get(id) is not subtask:
                break  # One before it has failed, and all are stopped.
            if subtask.runnable:
                self._cluster.work(subtask)
                self._serve()
                progress = True
        return progress

    def _serve(self) -> bool:
        """Do all that is due apart from slices, so that no barrier waits for more than one of them."""
        served = False
        self._shell.fire_timers()
        self._cluster.on_time()
        while self._serve_events() or self._cluster.move_frames():
            served = True
        return served

    def _serve_events(self) -> bool:
        served = bool(self._events)
        while self._events and self._shell.ending is None:
            self._shell.on_event(self._events.popleft())
        return served and self._shell.ending is None

    def _wait(self) -> None:
        times = [subtask.wake_at for subtask in self._cluster.subtasks.values()]
        known = [at for at in [*times, self._shell.next_timer_at] if at is not None]
        now = self._package.clock.monotonic()
        until = min(known, default=now + _WAIT_S_MAX)
        self._awake.wait(min(_WAIT_S_MAX, max(0.0, until - now)))
        self._awake.clear()

    def _on_call_failed(self, error: BaseException) -> None:
        """Called by a thread beside the record path, as its last deed."""
        self._events.append(WorkerFailed(self._cluster.generation, portable(error)))
        self._awake.set()

    def _upload(self, upload: SnapshotUpload) -> None:
        try:
            result = store_snapshot(upload, self._package.storage, self._package.clock.monotonic)
            deliver_uploaded(result, self._cluster.subtasks)
            self._events.append(result)
        except Exception as error:
            self._events.append(WorkerFailed(upload.generation, error))
        except SystemExit as error:  # A sink may even call `sys.exit`.
            self._events.append(WorkerFailed(upload.generation, portable(error)))

    def _run_storage(self, command: StorageCommand) -> None:
        event = self._tasks.run(command)
        if event is not None:
            self._events.append(event)


def _nobody_asked(answer: AnswerSavepoint) -> None:
    """The thread that could ask for a savepoint is the one that runs the job."""
