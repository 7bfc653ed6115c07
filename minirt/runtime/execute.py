"""Runs a job graph: puts storage, protocol and runner together, and hands out the job."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import cloudpickle

from minirt.config import Checkpointing, Options
from minirt.errors import ConfigurationError, JobFailedError
from minirt.graph.execution import ExecutionGraph, SubtaskId
from minirt.graph.job_graph import JobGraph, SinkSpec, SourceSpec
from minirt.graph.planner import build_execution_graph
from minirt.io.base import Sink
from minirt.modes import DEFAULT_MODE, find_mode
from minirt.protocol.checkpoints import CheckpointSettings
from minirt.protocol.job import JobProtocol
from minirt.protocol.job_events import EndJob, JobStatus
from minirt.protocol.liveness import Liveness
from minirt.protocol.restarts import Restart, RestartStrategy
from minirt.protocol.restore import vertex_entries
from minirt.run_settings import FRESH, RestoreOptions, RunSettings
from minirt.runtime.assembly import JobPackage
from minirt.runtime.coordinator import Coordinator
from minirt.runtime.inline import InlineRunner
from minirt.runtime.observer import JobObserver, JobProgress
from minirt.runtime.storage_tasks import StorageTasks
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.store import ObjectStore

logger = logging.getLogger("minirt.job")

Runner = Literal["processes", "inline"]


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a job ended. `checkpoints` are its history entries, oldest first."""

    name: str
    status: JobStatus
    restarts: int
    duration_s: float
    checkpoints: tuple[Mapping[str, Any], ...] = field(repr=False)

    @property
    def completed_checkpoints(self) -> int:
        return sum(entry["status"] == "completed" for entry in self.checkpoints)


class _Recorder(JobObserver):
    """Remembers the checkpoints for the result, logs what went wrong, and passes everything on."""

    def __init__(self, name: str, observer: JobObserver) -> None:
        self._name = name
        self._observer = observer
        self.checkpoints: list[Mapping[str, Any]] = []

    def on_status(self, status: JobStatus, generation: int) -> None:
        self._observer.on_status(status, generation)

    def on_checkpoint(self, entry: Mapping[str, Any]) -> None:
        self.checkpoints.append(entry)
        if entry["status"] == "failed":
            logger.warning(
                "job %r: checkpoint %d failed: %s",
                self._name,
                entry["checkpoint_id"],
                entry["reason"],
            )
        self._observer.on_checkpoint(entry)

    def on_restart(self, error: Exception, delay_s: float) -> None:
        logger.warning("job %r restarts in %.2f s: %s", self._name, delay_s, error)
        self._observer.on_restart(error, delay_s)

    def on_progress(self, progress: JobProgress) -> None:
        self._observer.on_progress(progress)


class Job:
    """A running job. Its methods may be called from any thread."""

    def __init__(
        self, name: str, protocol: JobProtocol, recorder: _Recorder, coordinator: Coordinator
    ) -> None:
        self.name = name
        self._protocol = protocol
        self._recorder = recorder
        self._coordinator = coordinator
        self._began_at = time.monotonic()
        self._ending: EndJob | None = None
        self._crash: BaseException | None = None
        self._over = threading.Event()
        """Unlike `Thread.join`, waiting for it may be interrupted and begun again."""
        threading.Thread(target=self._run, name=f"minirt-{name}", daemon=True).start()

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

    def cancel(self) -> None:
        """End the job now, without a last checkpoint."""
        self._coordinator.cancel()

    def wait(self, timeout: float | None = None) -> JobResult:
        """Until the job has ended.

        Raises JobFailedError if it failed, TimeoutError if it still runs after `timeout` seconds.
        """
        if not self._over.wait(timeout):
            raise TimeoutError(f"job {self.name!r} still runs after {timeout} s")
        if self._crash is not None:
            raise self._crash
        assert self._ending is not None
        return job_result(self.name, self._protocol, self._recorder, self._ending, self._began_at)

    def _run(self) -> None:
        try:
            self._ending = self._coordinator.run()
        except BaseException as error:
            self._crash = error
        finally:
            self._over.set()


def start_job(graph: JobGraph, settings: RunSettings) -> Job:
    """Start a job in worker processes and return at once."""
    recorder = _Recorder(graph.name, settings.observer or JobObserver())
    parts = _Parts.of(graph, settings)
    placement = place(parts.execution, settings.options)
    coordinator = Coordinator(parts.package, placement, parts.protocol, parts.tasks, recorder)
    return Job(graph.name, parts.protocol, recorder, coordinator)


def execute_job(graph: JobGraph, settings: RunSettings, runner: Runner) -> JobResult:
    """Run a job to its end. Raises JobFailedError if it fails."""
    if runner == "processes":
        job = start_job(graph, settings)
        try:
            return job.wait()
        except KeyboardInterrupt:
            job.cancel()
            job.wait()
            raise
    recorder, began_at = _Recorder(graph.name, settings.observer or JobObserver()), time.monotonic()
    parts = _Parts.of(graph, settings)
    ending = InlineRunner(parts.package, parts.protocol, parts.tasks, recorder).run()
    return job_result(graph.name, parts.protocol, recorder, ending, began_at)


def place(graph: ExecutionGraph, options: Options) -> dict[SubtaskId, int]:
    """Which worker runs which subtask."""
    if options.placement == "subtask":
        return {id: worker for worker, id in enumerate(graph.subtasks())}
    widest = max(vertex.parallelism for vertex in graph.vertices)
    workers = options.workers or widest
    if workers > widest:
        raise ConfigurationError(
            f"{workers} workers have no effect: the highest parallelism of the job is {widest}"
        )
    return {id: id.index % workers for id in graph.subtasks()}


def job_result(
    name: str, protocol: JobProtocol, recorder: _Recorder, ending: EndJob, began_at: float
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
        tuple(recorder.checkpoints),
    )


@dataclass(frozen=True, slots=True)
class _Parts:
    """What every runner needs."""

    execution: ExecutionGraph
    package: JobPackage
    protocol: JobProtocol
    tasks: StorageTasks

    @classmethod
    def of(cls, graph: JobGraph, settings: RunSettings) -> _Parts:
        execution = build_execution_graph(graph)
        checkpointing, options = settings.checkpointing, settings.options
        if checkpointing is None:
            _check_output_shows(execution)
        storage = None
        if checkpointing is not None:
            root = os.fspath(checkpointing.storage)
            store = ObjectStore(root, checkpointing.storage_options)
            limits = options.limits
            storage = CheckpointStorage(store, limits.inline_snapshot_bytes, limits.history_entries)
            storage.check_writable()
            _check_starting_over(settings.restore, storage)
        mode = find_mode(DEFAULT_MODE if checkpointing is None else checkpointing.mode)
        try:
            pickled = cloudpickle.dumps(execution)
        except Exception as error:
            raise ConfigurationError(f"the job cannot be sent to workers: {error}") from error
        return cls(
            execution,
            JobPackage(pickled, options, mode, storage),
            job_protocol(execution, checkpointing, mode.name, settings.restart, options),
            StorageTasks(execution, storage, checkpointing, settings.restore),
        )


def _check_output_shows(graph: ExecutionGraph) -> None:
    """Sinks commit with checkpoints: without any, a job that never ends would never show output."""
    nodes = [node for vertex in graph.vertices for node in vertex.operators]
    endless = [
        node for node in nodes if isinstance(node.spec, SourceSpec) and not node.spec.source.bounded
    ]
    for node in nodes:
        if not endless or not isinstance(node.spec, SinkSpec):
            continue
        if type(node.spec.sink).commit is not Sink.commit:
            raise ConfigurationError(
                f"sink {node.label} shows its output with each checkpoint, but this job takes none and "
                f"source {endless[0].label} never ends; give the job checkpointing"
            )


def _check_starting_over(restore: RestoreOptions, storage: CheckpointStorage) -> None:
    """Starting over must be said: it makes the checkpoints that are there worthless."""
    keys = storage.manifest_keys() if restore.which is None else []
    if keys:
        raise ConfigurationError(
            f"{storage.store.root} holds {len(keys)} checkpoints of an earlier run, the newest is "
            f'{keys[-1].checkpoint_id}; go on from it with restore="latest", or give them up '
            f'with restore="{FRESH}"'
        )


def job_protocol(
    execution: ExecutionGraph,
    checkpointing: Checkpointing | None,
    mode: str,
    restart: RestartStrategy | None,
    options: Options,
) -> JobProtocol:
    """The protocol of a job that has not begun, with the defaults filled in."""
    if checkpointing is None:
        settings = CheckpointSettings(mode, interval_s=None)
    else:
        settings = CheckpointSettings(
            mode,
            checkpointing.interval_s,
            checkpointing.timeout_s,
            checkpointing.min_pause_s,
            checkpointing.tolerable_failures,
        )
    if restart is None:
        restart = Restart.none() if checkpointing is None else Restart.exponential_delay()
    return JobProtocol(
        execution.name,
        vertex_entries(execution),
        frozenset(execution.subtasks()),
        settings,
        restart.start(),
        Liveness(options.heartbeat_timeout_s),
        options.limits.connect_timeout_s,
        options.limits.start_timeout_s,
    )
