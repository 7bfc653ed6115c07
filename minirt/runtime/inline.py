"""The inline runner: a whole job in the caller's thread, to be stepped through in a debugger."""

from __future__ import annotations

import time
from collections import deque
from functools import partial

from minirt.protocol.job import JobProtocol
from minirt.protocol.job_events import (
    AnswerSavepoint,
    EndJob,
    JobEvent,
    Submitted,
    WorkerFailed,
)
from minirt.runtime.assembly import JobPackage
from minirt.runtime.local import LocalCluster
from minirt.runtime.observer import JobObserver
from minirt.runtime.orders import deliver_stored
from minirt.runtime.pacer import TimedPacer
from minirt.runtime.shell import JobShell
from minirt.runtime.snapshot import SnapshotUpload
from minirt.runtime.storage_tasks import StorageCommand, StorageTasks
from minirt.runtime.subtask import Subtask

_WAIT_S_MAX = 0.05


class InlineRunner:
    """Turns: events, timers, frames, a slice for each subtask. Storage is waited for."""

    def __init__(
        self, package: JobPackage, protocol: JobProtocol, tasks: StorageTasks, observer: JobObserver
    ) -> None:
        self._package = package
        self._tasks = tasks
        self._events: deque[JobEvent] = deque([Submitted()])
        slice_s = package.options.limits.slice_s
        self._cluster = LocalCluster(
            package, self._events.append, self._upload, time.time, lambda: TimedPacer(slice_s)
        )
        self._shell = JobShell(
            protocol, self._cluster, tasks, self._run_storage, time.time, observer, _nobody_asked
        )

    def run(self) -> EndJob:
        """The whole life of the job."""
        while self._shell.ending is None:
            if not self._turn():
                self._wait()
        return self._shell.ending

    def _turn(self) -> bool:
        """Whether anything was done."""
        progress = bool(self._events)
        while self._events and self._shell.ending is None:
            self._shell.on_event(self._events.popleft())
        self._shell.fire_timers()
        for subtask in list(self._cluster.subtasks.values()):
            if subtask.id not in self._cluster.subtasks:
                break  # One before it has failed, and all are stopped.
            progress |= bool(self._cluster.attempt(partial(self._take_turn, subtask)))
        links = self._cluster.links
        for link in links:
            while links is self._cluster.links and self._cluster.attempt(link.move):
                progress = True
        return progress or bool(self._events)

    @staticmethod
    def _take_turn(subtask: Subtask) -> bool:
        """Whether it had anything to work on."""
        subtask.on_time()
        if not subtask.runnable:
            return False
        subtask.run_slice()
        return True

    def _wait(self) -> None:
        times = [subtask.wake_at for subtask in self._cluster.subtasks.values()]
        known = [at for at in [*times, self._shell.next_timer_at] if at is not None]
        until = min(known, default=time.time() + _WAIT_S_MAX)
        time.sleep(min(_WAIT_S_MAX, max(0.0, until - time.time())))

    def _upload(self, upload: SnapshotUpload) -> None:
        try:
            result = upload.run(self._package.storage, time.time)
            deliver_stored(result, self._cluster.subtasks.values())
            self._events.append(result)
        except Exception as error:
            self._events.append(WorkerFailed(upload.generation, error))

    def _run_storage(self, command: StorageCommand) -> None:
        event = self._tasks.run(command)
        if event is not None:
            self._events.append(event)


def _nobody_asked(answer: AnswerSavepoint) -> None:
    """The thread that could ask for a savepoint is the one that runs the job."""
