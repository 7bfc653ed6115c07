"""Runs a job whose subtasks are in worker processes: one loop over messages, timers and storage."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from minirt.graph.execution import SubtaskId
from minirt.protocol.job import JobProtocol
from minirt.protocol.job_events import (
    AnswerSavepoint,
    CancelRequested,
    EndJob,
    JobEvent,
    JobStatus,
    Submitted,
)
from minirt.runtime.assembly import JobPackage
from minirt.runtime.observer import JobObserver, JobProgress
from minirt.runtime.process_cluster import ProcessCluster
from minirt.runtime.shell import JobShell
from minirt.runtime.storage_tasks import RecordEvent, StorageCommand, StorageTasks

_POLL_S_MAX = 1.0


class StorageThread:
    """Carries out storage commands in order, outside the coordinator's loop."""

    def __init__(self, tasks: StorageTasks, post: Callable[[JobEvent], None]) -> None:
        self._tasks = tasks
        self._post = post
        self._commands: queue.SimpleQueue[StorageCommand | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="minirt-storage", daemon=True)
        self._thread.start()

    def put(self, command: StorageCommand) -> None:
        self._commands.put(command)

    def close(self, timeout: float) -> None:
        """Finish what was ordered."""
        self._commands.put(None)
        self._thread.join(timeout)

    def _run(self) -> None:
        while (command := self._commands.get()) is not None:
            event = self._tasks.run(command)
            if event is not None:
                self._post(event)


class Coordinator:
    """The loop. `run` is called in a thread of its own; the other methods from any thread."""

    def __init__(
        self,
        package: JobPackage,
        placement: dict[SubtaskId, int],
        protocol: JobProtocol,
        tasks: StorageTasks,
        observer: JobObserver,
        answer: Callable[[AnswerSavepoint], None],
    ) -> None:
        graph = package.load_graph()
        self._package = package
        self._placement = placement
        self._names = {id: graph.subtask_name(id) for id in placement}
        self._protocol = protocol
        self._observer = observer
        self._events: queue.SimpleQueue[JobEvent] = queue.SimpleQueue()
        self._cluster = ProcessCluster(package, placement, self._events.put)
        self._storage = StorageThread(tasks, self.post)
        self._shell = JobShell(
            protocol, self._cluster, tasks, self._storage.put, time.time, observer, answer
        )
        self._closed = False

    @property
    def status(self) -> JobStatus:
        return self._protocol.status

    def cancel(self) -> None:
        self.post(CancelRequested())

    def post(self, event: JobEvent) -> None:
        """Have an event handled soon."""
        self._events.put(event)
        self._cluster.wake()

    def record(self, entry: dict[str, Any]) -> None:
        """Have something that happened to the job kept in its history."""
        self._storage.put(RecordEvent(entry))

    def progress(self) -> JobProgress:
        pids = self._cluster.pids  # A restart replaces it.
        return JobProgress(
            metrics=dict(self._cluster.metrics),
            names=self._names,
            pids={id: pids[worker] for id, worker in self._placement.items() if worker in pids},
        )

    def run(self) -> EndJob:
        """The whole life of the job."""
        try:
            self._events.put(Submitted())
            while self._shell.ending is None:
                self._turn()
        finally:
            stop_timeout_s = self._package.options.limits.stop_timeout_s
            self._cluster.close(stop_timeout_s)
            self._storage.close(stop_timeout_s)
        self._report_figures()
        return self._shell.ending

    def _turn(self) -> None:
        while not self._events.empty() and self._shell.ending is None:
            self._shell.on_event(self._events.get())
        self._shell.fire_timers()
        self._report_figures()
        if self._shell.ending is None and self._events.empty():
            at = self._shell.next_timer_at
            wait = _POLL_S_MAX if at is None else min(_POLL_S_MAX, max(0.0, at - time.time()))
            self._cluster.poll(wait)

    def _report_figures(self) -> None:
        if self._cluster.figures_changed:
            self._cluster.figures_changed = False
            self._observer.on_progress(self.progress())
