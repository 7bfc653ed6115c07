"""A job as its user holds it: what it does, what can be asked of it, and how it ended."""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from minirt.config import Options
from minirt.errors import ConfigurationError, JobFailedError, ProtocolError
from minirt.graph.execution import ExecutionGraph
from minirt.monitoring.description import describe_graph
from minirt.monitoring.figures import JobFigures
from minirt.monitoring.log_lines import LogLine
from minirt.monitoring.logs import log_fields, logger_of
from minirt.monitoring.monitor import JobMonitor, RestartRecord
from minirt.monitoring.queued import queued_in_words
from minirt.notebook import facts, table
from minirt.operations.desk import ControlDesk
from minirt.operations.port import ControlPort
from minirt.protocol.barriers import CheckpointMode
from minirt.protocol.giving_up import GivenUpOutput
from minirt.protocol.job import JobProtocol
from minirt.protocol.job_events import EndJob, JobStatus
from minirt.protocol.reasons import (
    CheckpointFailureReason,
    SavepointFailure,
    SavepointFailureReason,
)
from minirt.protocol.reports import CheckpointReport, CheckpointUnderWay
from minirt.protocol.savepoint_requests import Afterwards, Savepoint
from minirt.protocol.trace import CheckpointTrace
from minirt.runtime.coordinator.coordinator import Coordinator
from minirt.runtime.coordinator.lease_holder import LeaseHolder
from minirt.runtime.coordinator.observer import JobObserver, JobProgress
from minirt.runtime.program.repeated_errors import RepeatedErrors
from minirt.runtime.program.savepoint_desk import SavepointDesk
from minirt.runtime.program.signals import OF_SERVICES, SignalWatch
from minirt.threads import start_thread

logger = logger_of("job")

_SAYS_AFTER_S = 5.0
"""How long a savepoint may take until the log says what it waits for; it then says so ever more rarely."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a job ended. `checkpoints` are the newest that completed or failed, oldest first.

    They are as many as `Limits.history_entries`; `completed_checkpoints` counts all that were completed.
    """

    name: str
    status: JobStatus
    restarts: int
    duration_s: float
    completed_checkpoints: int
    checkpoints: tuple[CheckpointReport, ...] = field(repr=False)
    savepoint: Savepoint | None = None
    """Where a job that was stopped or drained may go on."""

    def _repr_html_(self) -> str:
        named = {
            "status": self.status.value,
            "seconds": f"{self.duration_s:.2f}",
            "restarts": self.restarts,
            "completed checkpoints": self.completed_checkpoints,
            "savepoint": None if self.savepoint is None else self.savepoint.path,
        }
        known = {name: value for name, value in named.items() if value is not None}
        shown = facts(f"job {self.name}", known)
        if not self.checkpoints:
            return shown
        rows = (
            (one.checkpoint_id, one.status.value, one.mode, f"{one.duration_s:.3f}", one.bytes)
            for one in self.checkpoints[-10:]
        )
        head = ("id", "status", "mode", "seconds", "bytes")
        return shown + table("newest checkpoints", head, rows)


class Recorder(JobObserver):
    """Remembers the checkpoints for the result, logs what went wrong, and passes everything on."""

    def __init__(self, name: str, observers: Sequence[JobObserver], entries_max: int) -> None:
        self.name = name
        self.observers = list(observers)
        self.checkpoints: deque[CheckpointReport] = deque(maxlen=entries_max)
        self.completed = 0
        self._lock = threading.Lock()
        self._over = 0
        """How many checkpoints have completed or failed."""
        self._errors = RepeatedErrors()

    @property
    def remembered(self) -> tuple[int, tuple[CheckpointReport, ...]]:
        """How many checkpoints have completed or failed, and the newest of them; for any thread."""
        with self._lock:
            return self._over, tuple(self.checkpoints)

    def on_status(self, status: JobStatus, generation: int) -> None:
        with log_fields(job=self.name, generation=generation):
            logger.info("job %r is %s", self.name, status.value)
        for observer in self.observers:
            observer.on_status(status, generation)

    def on_checkpoint(self, report: CheckpointReport) -> None:
        with self._lock:
            self.checkpoints.append(report)
            self._over += 1
        self.completed += report.completed
        id = report.checkpoint_id
        with log_fields(job=self.name, generation=report.generation, checkpoint=id):
            if report.failure is not None:
                text = str(report.failure)
                if report.failure.reason is CheckpointFailureReason.GENERATION_FAILED:
                    text = text.partition("\n")[0]  # `on_restart` and the end of the job say more.
                logger.warning("job %r: checkpoint %d failed: %s", self.name, id, text)
            else:
                logged = ("mode", "kind", "duration_s", "bytes")
                figures = {name: getattr(report, name) for name in logged}
                logger.info("checkpoint %d is complete", id, extra=figures)
        for observer in self.observers:
            observer.on_checkpoint(report)

    def on_checkpoints_under_way(self, checkpoints: Sequence[CheckpointUnderWay]) -> None:
        for observer in self.observers:
            observer.on_checkpoints_under_way(checkpoints)

    def on_trace(self, trace: CheckpointTrace) -> None:
        for observer in self.observers:
            observer.on_trace(trace)

    def on_restart(self, error: Exception, delay_s: float) -> None:
        with log_fields(job=self.name):
            text = self._errors.in_short(str(error))
            logger.warning("job %r restarts in %.2f s: %s", self.name, delay_s, text)
        for observer in self.observers:
            observer.on_restart(error, delay_s)

    def on_comeback(self, error: Exception, delay_s: float) -> None:
        with log_fields(job=self.name):
            text = self._errors.in_short(str(error))
            logger.warning(
                "job %r goes on, and brings a worker back in %.2f s: %s", self.name, delay_s, text
            )
        for observer in self.observers:
            observer.on_comeback(error, delay_s)

    def on_output_given_up(self, given_up: GivenUpOutput) -> None:
        for observer in self.observers:
            observer.on_output_given_up(given_up)

    def on_logs(self, lines: Sequence[LogLine]) -> None:
        for observer in self.observers:
            observer.on_logs(lines)

    def on_told_to_end(self, reason: str) -> None:
        for observer in self.observers:
            observer.on_told_to_end(reason)

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
        options: Options,
        recorder: Recorder,
        monitor: JobMonitor,
        metrics_url: str | None,
        coordinator: Coordinator,
        savepoints: SavepointDesk,
        at_end: ExitStack,
        description: Mapping[str, Any],
        port: ControlPort | None = None,
        lease: LeaseHolder | None = None,
    ) -> None:
        self.name = recorder.name
        self.options = options
        self.description = description
        """Its graph and its configuration, as JSON carries them; it holds no secrets."""
        self.metrics_url = metrics_url
        """Where Prometheus reads the metrics, if the job offers any."""
        self._protocol = protocol
        self._recorder = recorder
        self._monitor = monitor
        self._coordinator = coordinator
        self._savepoints = savepoints
        self._at_end = at_end
        self.storage = savepoints.storage_root
        """Where it stores its checkpoints; None if it takes none."""
        self._began_at = time.monotonic()
        self._ending: EndJob | None = None
        self._crash: BaseException | None = None
        self._over = threading.Event()
        """Unlike `Thread.join`, waiting for it may be interrupted and begun again."""
        self._left = threading.Event()
        self.control_url = None if port is None else port.url
        """Where commands such as `minirt top` on other hosts ask it, if `Options.control` says so."""
        self.desk = ControlDesk(self, port, lease)
        """Answers other processes, such as `minirt top`."""
        start_thread(f"minirt-{self.name}", self._run, self._on_error)

    def take_shape(self, graph: ExecutionGraph) -> None:
        """The job is planned like this from now on."""
        self.description = {**self.description, **describe_graph(graph)}

    @property
    def status(self) -> JobStatus:
        """Where the job is in its life, as of now."""
        return self._protocol.status

    @property
    def restarts(self) -> int:
        """How often the whole job has restarted by now; workers that came back alone do not count."""
        return self._protocol.restarts

    @property
    def progress(self) -> JobProgress:
        """The newest figures of all subtasks, and their processes."""
        return self._coordinator.progress()

    @property
    def figures(self) -> JobFigures:
        """The newest figures with rates: where time goes, what flows, how checkpoints went."""
        return self._monitor.figures()

    @property
    def restart_records(self) -> tuple[RestartRecord, ...]:
        """The newest restarts with their errors, oldest first."""
        return self._monitor.restart_records

    def logs_since(self, known: int) -> tuple[int, Sequence[LogLine]]:
        """How many messages have been logged, and those after number `known`; the newest are remembered."""
        return self._monitor.log_book.since(known)

    @property
    def checkpoint_reports(self) -> tuple[int, tuple[CheckpointReport, ...]]:
        """How many checkpoints have completed or failed, and the newest of them, oldest first."""
        return self._recorder.remembered

    @property
    def checkpoints_under_way(self) -> tuple[CheckpointUnderWay, ...]:
        """The checkpoints that are being taken, the oldest first, with the parts that have come."""
        return self._monitor.under_way

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
        reason: str | None = None,
        goes_on: bool = False,
    ) -> Savepoint:
        """End the job with a savepoint, behind which its sources emit nothing.

        Returns once its output is committed and the job has ended. If the savepoint fails, the job goes
        on. `reason` is what the history gives as the cause. If the program then `goes_on` with the job, its
        agents wait for that. Other arguments and errors are those of `savepoint`.
        """
        self._coordinator.goes_on = goes_on
        return self._ask(path, mode, Afterwards.STOP, timeout, reason)

    def drain(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        timeout: float | None = None,
        reason: str | None = None,
    ) -> Savepoint:
        """End the job as if its input were read to the end: event time ends, all output is committed.

        The last state is kept as a savepoint. A job that is restored from it reads on where the sources
        were, but its operators have seen the end of time. Arguments and errors are those of `stop`.
        """
        return self._ask(path, None, Afterwards.DRAIN, timeout, reason)

    def cancel(self, *, reason: str | None = None) -> None:
        """End the job now, without a last checkpoint. `reason` is what the history gives as the cause."""
        self._coordinator.cancel(reason)

    def wait(self, timeout: float | None = None) -> JobResult:
        """Wait until the job has ended.

        Raises JobFailedError if it failed, TimeoutError if it still runs after `timeout` seconds. In the
        main thread, SIGTERM and SIGHUP end the job meanwhile, as `Options.on_signal` says, and then the
        program. Ctrl-C raises KeyboardInterrupt and leaves the job to you; it is cancelled when the
        program ends.
        """
        with SignalWatch(OF_SERVICES, self) as watch:
            over = self._over.wait(timeout) or (watch.came is not None and self._over.wait())
            if not over:
                raise TimeoutError(f"job {self.name!r} still runs after {timeout} s")
            self._left.wait()  # or the program may end before others have their answers
        if self._crash is not None:
            raise self._crash
        if self._ending is None:
            raise ProtocolError(f"job {self.name!r} is over, and nobody says how it ended")
        result = job_result(self.name, self._protocol, self._recorder, self._ending, self._began_at)
        watch.pass_on(result.status)
        return result

    def wait_for_end(self) -> None:
        """Wait until the job has ended, however it did."""
        self._over.wait()

    def _ask(
        self,
        path: str | os.PathLike[str] | None,
        mode: str | CheckpointMode | None,
        afterwards: Afterwards,
        timeout: float | None,
        reason: str | None = None,
    ) -> Savepoint:
        answer = self._savepoints.ask(self._coordinator.post, path, mode, afterwards, reason)
        savepoint = self._await(answer, timeout)
        if afterwards is not Afterwards.GO_ON:
            self._over.wait()
        return savepoint

    def _await(self, answer: Future[Savepoint], timeout: float | None) -> Savepoint:
        """The savepoint once it is there; meanwhile the log says ever more rarely what it waits for."""
        began_at, says_at = time.monotonic(), _SAYS_AFTER_S
        while True:
            left_s = math.inf if timeout is None else timeout
            try:
                return answer.result(max(0.0, min(left_s, says_at) - (time.monotonic() - began_at)))
            except TimeoutError:
                if answer.done():
                    raise  # It is the answer itself.
                if left_s <= says_at:
                    raise TimeoutError(
                        f"job {self.name!r} has no savepoint after {timeout} s; it may still come"
                    ) from None
            with log_fields(job=self.name):
                logger.warning(
                    "job %r has no savepoint after %.0f s: %s",
                    self.name,
                    says_at,
                    queued_in_words(self.progress),
                )
            says_at *= 2

    def _run(self) -> None:
        with ExitStack() as ending:  # Whatever fails of it, the rest is done, and `wait` returns.
            ending.callback(self._left.set)
            ending.callback(self._at_end.close)
            ending.callback(self.desk.close)
            ending.callback(self._over.set)
            ending.callback(self._refuse_savepoints)
            try:
                self._ending = self._coordinator.run()
            except BaseException as error:
                self._crash = error

    def _refuse_savepoints(self) -> None:
        over = SavepointFailureReason.JOB_ENDED
        self._savepoints.close(SavepointFailure(over, status=self.status.value))

    def _on_error(self, error: BaseException) -> None:
        logger.error(
            "job %r has ended, but not in good order: %s", self.name, error, exc_info=error
        )


def job_result(
    name: str, protocol: JobProtocol, recorder: Recorder, ending: EndJob, began_at: float
) -> JobResult:
    """The result of a job that has ended. Raises JobFailedError if it failed."""
    if ending.status is JobStatus.FAILED:
        assert ending.failure is not None
        error = ending.failure.error
        if isinstance(error, ConfigurationError):
            raise error
        restarted = f" after {protocol.restarts} restarts" if protocol.restarts else ""
        raise JobFailedError(
            f"job {name!r} failed{restarted}: {error}", ending.failure.reason
        ) from error
    return JobResult(
        name,
        ending.status,
        protocol.restarts,
        time.monotonic() - began_at,
        recorder.completed,
        tuple(recorder.checkpoints),
        ending.savepoint,
    )
