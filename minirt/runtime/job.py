"""A job as its user holds it: what it does, what can be asked of it, and how it ended."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from minirt.errors import ConfigurationError, JobFailedError
from minirt.monitoring.figures import JobFigures
from minirt.monitoring.logs import log_fields, logger_of
from minirt.monitoring.monitor import JobMonitor
from minirt.operations.desk import ControlDesk
from minirt.protocol.barriers import CheckpointMode
from minirt.protocol.job import JobProtocol
from minirt.protocol.job_events import EndJob, JobStatus
from minirt.protocol.savepoint_requests import Afterwards, Savepoint
from minirt.runtime.coordinator import Coordinator
from minirt.runtime.observer import JobObserver, JobProgress
from minirt.runtime.savepoints import SavepointDesk

logger = logger_of("job")


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a job ended. `checkpoints` are the newest entries of its history, oldest first.

    They are as many as `Limits.history_entries`; `completed_checkpoints` counts all that were completed.
    """

    name: str
    status: JobStatus
    restarts: int
    duration_s: float
    completed_checkpoints: int
    checkpoints: tuple[Mapping[str, Any], ...] = field(repr=False)
    savepoint: Savepoint | None = None
    """Where a job that was stopped or drained may go on."""


class Recorder(JobObserver):
    """Remembers the checkpoints for the result, logs what went wrong, and passes everything on."""

    def __init__(self, name: str, observers: Sequence[JobObserver], entries_max: int) -> None:
        self.name = name
        self.observers = list(observers)
        self.checkpoints: deque[Mapping[str, Any]] = deque(maxlen=entries_max)
        self.completed = 0

    def on_status(self, status: JobStatus, generation: int) -> None:
        with log_fields(job=self.name, generation=generation):
            logger.info("job %r is %s", self.name, status.value)
        for observer in self.observers:
            observer.on_status(status, generation)

    def on_checkpoint(self, entry: Mapping[str, Any]) -> None:
        self.checkpoints.append(entry)
        self.completed += entry["status"] == "completed"
        id = entry["checkpoint_id"]
        with log_fields(job=self.name, generation=entry["generation"], checkpoint=id):
            if entry["status"] == "failed":
                logger.warning("job %r: checkpoint %d failed: %s", self.name, id, entry["reason"])
            else:
                figures = {name: entry[name] for name in ("mode", "kind", "duration_s", "bytes")}
                logger.info("checkpoint %d is complete", id, extra=figures)
        for observer in self.observers:
            observer.on_checkpoint(entry)

    def on_restart(self, error: Exception, delay_s: float) -> None:
        with log_fields(job=self.name):
            logger.warning("job %r restarts in %.2f s: %s", self.name, delay_s, error)
        for observer in self.observers:
            observer.on_restart(error, delay_s)

    def on_end(self, status: JobStatus, error: Exception | None) -> None:
        for observer in self.observers:
            observer.on_end(status, error)

    def on_progress(self, progress: JobProgress) -> None:
        for observer in self.observers:
            observer.on_progress(progress)


class Job:
    """A running job. Its methods may be called from any thread."""

    def __init__(
        self,
        protocol: JobProtocol,
        recorder: Recorder,
        monitor: JobMonitor,
        metrics_url: str | None,
        coordinator: Coordinator,
        savepoints: SavepointDesk,
        at_end: ExitStack,
    ) -> None:
        self.name = recorder.name
        self.metrics_url = metrics_url
        """Where Prometheus reads the metrics, if the job offers any."""
        self._protocol = protocol
        self._recorder = recorder
        self._monitor = monitor
        self._coordinator = coordinator
        self._savepoints = savepoints
        self._at_end = at_end
        self._began_at = time.monotonic()
        self._ending: EndJob | None = None
        self._crash: BaseException | None = None
        self._over = threading.Event()
        """Unlike `Thread.join`, waiting for it may be interrupted and begun again."""
        self._left = threading.Event()
        self.desk = ControlDesk(self)
        """Where other processes of the same user ask for the job."""
        threading.Thread(target=self._run, name=f"minirt-{self.name}", daemon=True).start()

    @property
    def status(self) -> JobStatus:
        return self._protocol.status

    @property
    def restarts(self) -> int:
        return self._protocol.restarts

    @property
    def progress(self) -> JobProgress:
        """The newest figures of all subtasks, and their processes."""
        return self._coordinator.progress()

    @property
    def figures(self) -> JobFigures:
        """The newest figures with rates: where time goes, what flows, how checkpoints went."""
        return self._monitor.figures()

    def savepoint(
        self,
        path: str | os.PathLike[str] | None = None,
        mode: str | CheckpointMode | None = None,
        *,
        timeout: float | None = None,
    ) -> Savepoint:
        """Take a checkpoint that is kept until you delete it, while the job goes on.

        It is copied to `path`, a folder or URL with nothing in it, and can be restored from there without
        the original, also after it was moved. Without a path it stays in the job's own storage. `mode` is
        that of the job unless given. It waits for the checkpoint under way, and goes before the next one.

        Raises ConfigurationError if it cannot work, StorageError if nothing can be stored at `path`,
        SavepointFailedError if the checkpoint or the copy fails, or if the job restarts or ends
        meanwhile; and TimeoutError if it takes longer than `timeout` seconds, though it may still come.
        """
        return self._ask(path, mode, Afterwards.GO_ON, timeout)

    def stop(
        self,
        path: str | os.PathLike[str] | None = None,
        mode: str | CheckpointMode | None = None,
        *,
        timeout: float | None = None,
    ) -> Savepoint:
        """End the job with a savepoint, behind which its sources emit nothing.

        Returns once its output is committed and the job has ended. If the savepoint fails, the job goes
        on. Arguments and errors are those of `savepoint`.
        """
        return self._ask(path, mode, Afterwards.STOP, timeout)

    def drain(
        self, path: str | os.PathLike[str] | None = None, *, timeout: float | None = None
    ) -> Savepoint:
        """End the job as if its input were read to the end: event time ends, all output is committed.

        The last state is kept as a savepoint. A job that is restored from it reads on where the sources
        were, but its operators have seen the end of time. Arguments and errors are those of `savepoint`.
        """
        return self._ask(path, None, Afterwards.DRAIN, timeout)

    def cancel(self) -> None:
        """End the job now, without a last checkpoint."""
        self._coordinator.cancel()

    def wait(self, timeout: float | None = None) -> JobResult:
        """Until the job has ended.

        Raises JobFailedError if it failed, TimeoutError if it still runs after `timeout` seconds.
        """
        if not self._over.wait(timeout):
            raise TimeoutError(f"job {self.name!r} still runs after {timeout} s")
        self._left.wait()  # or the program may end before others have their answers
        if self._crash is not None:
            raise self._crash
        assert self._ending is not None
        return job_result(self.name, self._protocol, self._recorder, self._ending, self._began_at)

    def wait_for_end(self) -> None:
        """Until the job has ended, however it did."""
        self._over.wait()

    def _ask(
        self,
        path: str | os.PathLike[str] | None,
        mode: str | CheckpointMode | None,
        afterwards: Afterwards,
        timeout: float | None,
    ) -> Savepoint:
        answer = self._savepoints.ask(self._coordinator.post, path, mode, afterwards)
        try:
            savepoint = answer.result(timeout)
        except TimeoutError:
            raise TimeoutError(
                f"job {self.name!r} has no savepoint after {timeout} s; it may still come"
            ) from None
        if afterwards is not Afterwards.GO_ON:
            self._over.wait()
        return savepoint

    def _run(self) -> None:
        try:
            self._ending = self._coordinator.run()
        except BaseException as error:
            self._crash = error
        finally:
            self._savepoints.close(f"the job has ended: {self.status.value}")
            self._over.set()
            self.desk.close()
            self._at_end.close()
            self._left.set()


def job_result(
    name: str, protocol: JobProtocol, recorder: Recorder, ending: EndJob, began_at: float
) -> JobResult:
    """The result of a job that has ended. Raises JobFailedError if it failed."""
    if ending.status is JobStatus.FAILED:
        error = ending.error
        if isinstance(error, ConfigurationError):
            raise error
        restarted = f" after {protocol.restarts} restarts" if protocol.restarts else ""
        raise JobFailedError(f"job {name!r} failed{restarted}: {error}") from error
    return JobResult(
        name,
        ending.status,
        protocol.restarts,
        time.monotonic() - began_at,
        recorder.completed,
        tuple(recorder.checkpoints),
        ending.savepoint,
    )
