"""Runs a job whose subtasks are in worker processes: one loop over messages, timers and storage."""

from __future__ import annotations

import queue
from collections.abc import Callable

from minirt.errors import MinirtError
from minirt.monitoring.logs import logger_of
from minirt.protocol.job import JobProtocol
from minirt.protocol.job_events import (
    AnswerSavepoint,
    CancelRequested,
    EndJob,
    GenerationFailed,
    JobEvent,
    JobStatus,
    Submitted,
)
from minirt.protocol.reasons import GenerationFailureReason
from minirt.runtime.cluster.cluster import WorkerCluster
from minirt.runtime.control.messages import JobOver
from minirt.runtime.control.package import JobPackage
from minirt.runtime.coordinator.observer import JobObserver, JobProgress
from minirt.runtime.coordinator.shell import JobShell
from minirt.runtime.coordinator.storage_tasks import RecordEvent, StorageCommand, StorageTasks
from minirt.threads import start_thread

logger = logger_of("coordinator")

_POLL_S_MAX = 1.0

_FIGURES_SHARE = 0.1
"""Of the coordinator's time, for telling observers the figures of all subtasks."""


class StorageThread:
    """Carries out storage commands in order, outside the coordinator's loop."""

    def __init__(self, tasks: StorageTasks, post: Callable[[JobEvent], None]) -> None:
        self._tasks = tasks
        self._post = post
        self._commands: queue.SimpleQueue[StorageCommand | None] = queue.SimpleQueue()
        self._thread = start_thread("minirt-storage", self._run, self._on_error)

    def put(self, command: StorageCommand) -> None:
        self._commands.put(command)

    def close(self, timeout: float) -> None:
        """Finish what was ordered, within a time."""
        self._commands.put(None)
        self._thread.join(timeout)
        if self._thread.is_alive():
            logger.warning(
                "storage did not finish within %g s: what was still to be done is left", timeout
            )

    def _on_error(self, error: BaseException) -> None:
        """Fail the job, which would wait for ever for the answers of this thread."""
        lost = MinirtError(f"the storage thread has ended: {type(error).__name__}: {error}")
        lost.__cause__ = error
        self._post(GenerationFailed(lost, fatal=True))

    def _run(self) -> None:
        while (command := self._commands.get()) is not None:
            event = self._tasks.run(command)
            if event is not None:
                self._post(event)
        self._tasks.close()


class Coordinator:
    """The loop. `run` is called in a thread of its own; the other methods from any thread.

    The cluster puts what happens to its workers into `events`.
    """

    def __init__(
        self,
        package: JobPackage,
        protocol: JobProtocol,
        tasks: StorageTasks,
        cluster: WorkerCluster,
        events: queue.SimpleQueue[JobEvent],
        observer: JobObserver,
        answer: Callable[[AnswerSavepoint], None],
    ) -> None:
        self._package = package
        self._protocol = protocol
        self._observer = observer
        self._events = events
        self._cluster = cluster
        self.goes_on = False
        """Whether its program begins a job that was stopped anew: agents wait for that."""
        self._turned_at = package.clock.monotonic()
        self._figures_at = 0.0
        """Before that observers hear no figures, by the monotonic clock."""
        self._storage = StorageThread(tasks, self.post)
        self._shell = JobShell(
            *(protocol, cluster, tasks, self._storage.put, package.clock, observer, answer),
            await_slots=cluster.await_slots,
            brings_back=cluster,
        )

    @property
    def status(self) -> JobStatus:
        return self._protocol.status

    @property
    def still_s(self) -> float:
        """For how many seconds the loop has not turned."""
        return self._package.clock.monotonic() - self._turned_at

    def cancel(self, reason: str | None) -> None:
        self.post(CancelRequested(reason))

    def post(self, event: JobEvent) -> None:
        """Have an event handled soon."""
        self._events.put(event)
        self._cluster.wake()

    def record(self, event: RecordEvent) -> None:
        """Have something that happened to the job kept in its history."""
        self._storage.put(event)

    def progress(self) -> JobProgress:
        pids = self._cluster.pids  # A restart replaces it.
        return JobProgress(
            metrics=dict(self._cluster.metrics),
            names=self._cluster.names,
            pids={id: pids[at] for id, at in self._cluster.placement.items() if at in pids},
        )

    def run(self) -> EndJob:
        """The whole life of the job."""
        try:
            self._events.put(Submitted())
            while self._shell.ending is None:
                self._turn()
        finally:
            stop_timeout_s = self._package.options.limits.stop_timeout_s
            self._cluster.close(stop_timeout_s, self._last_word)
            self._storage.close(stop_timeout_s)
        self._figures_at = 0.0
        self._report_figures()
        return self._shell.ending

    @property
    def _last_word(self) -> JobOver | None:
        """None if this program only has no part in the job any more."""
        ending = self._shell.ending
        if ending is None:
            return None
        if ending.failure is None:
            return JobOver(self.goes_on and ending.status is JobStatus.STOPPED)
        superseded = ending.failure.reason is GenerationFailureReason.SUPERSEDED
        return None if superseded else JobOver()

    def _turn(self) -> None:
        self._turned_at = self._package.clock.monotonic()
        while not self._events.empty() and self._shell.ending is None:
            self._shell.on_event(self._events.get())
        self._shell.fire_timers()
        self._report_figures()
        if self._shell.ending is None and self._events.empty():
            at, now = self._shell.next_timer_at, self._package.clock.monotonic()
            wait = _POLL_S_MAX if at is None else min(_POLL_S_MAX, max(0.0, at - now))
            self._cluster.poll(wait)

    def _report_figures(self) -> None:
        if self._cluster.logs:
            lines = tuple(self._cluster.logs)
            self._cluster.logs.clear()
            self._observer.on_logs(lines)
        began = self._package.clock.monotonic()
        if self._cluster.figures_changed and began >= self._figures_at:
            self._cluster.figures_changed = False
            self._observer.on_progress(self.progress())
            took_s = self._package.clock.monotonic() - began
            self._figures_at = began + took_s / _FIGURES_SHARE
