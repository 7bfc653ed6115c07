"""Runs a job graph: puts storage, protocol and runner together, and hands out the job."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal

import cloudpickle

from minirt.config import Checkpointing, Options
from minirt.errors import ConfigurationError
from minirt.graph.execution import ExecutionGraph, SubtaskId
from minirt.graph.job_graph import JobGraph, SinkSpec, SourceSpec
from minirt.graph.planner import build_execution_graph
from minirt.io.base import Sink
from minirt.modes import DEFAULT_MODE, MODES, find_mode
from minirt.monitoring.events import JobEvents
from minirt.monitoring.logs import set_up_program
from minirt.monitoring.monitor import JobMonitor
from minirt.monitoring.report import FiguresReport
from minirt.protocol.checkpoints import CheckpointSettings
from minirt.protocol.job import JobProtocol
from minirt.protocol.liveness import Liveness
from minirt.protocol.restarts import Restart, RestartStrategy
from minirt.protocol.restore import vertex_entries
from minirt.run_settings import FRESH, RestoreOptions, RunSettings
from minirt.runtime.assembly import JobPackage
from minirt.runtime.coordinator import Coordinator
from minirt.runtime.inline import InlineRunner
from minirt.runtime.job import Job, JobResult, Recorder, job_result
from minirt.runtime.observer import JobObserver
from minirt.runtime.savepoints import SavepointDesk
from minirt.runtime.storage_tasks import RecordEvent, StorageTasks
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.store import ObjectStore

Runner = Literal["processes", "inline"]


def start_job(graph: JobGraph, settings: RunSettings) -> Job:
    """Start a job in worker processes and return at once."""
    parts, options = _Parts.of(graph, settings), settings.options
    monitor = JobMonitor(parts.execution)
    report = FiguresReport(monitor, options.limits.metrics_log_s)
    observers = [monitor, report, *_watching(settings)]
    recorder = Recorder(graph.name, observers, options.limits.history_entries)
    placement = place(parts.execution, options)
    savepoints = SavepointDesk(parts.package.storage, parts.package.modes, parts.mode)
    with ExitStack() as starting:
        url = _offer_metrics(options, monitor, starting)
        starting.callback(set_up_program(options.log_format, options.log_level))
        coordinator = Coordinator(
            parts.package, placement, parts.protocol, parts.tasks, recorder, savepoints.answer
        )
        recorder.observers.append(JobEvents(monitor, coordinator.record))
        at_end = starting.pop_all()
    return Job(parts.protocol, recorder, monitor, url, coordinator, savepoints, at_end)


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
    if settings.options.metrics_port is not None:
        raise ConfigurationError('metrics_port has no effect with runner="inline"')
    began_at, parts = time.monotonic(), _Parts.of(graph, settings)
    monitor = JobMonitor(parts.execution)
    events = JobEvents(monitor, lambda entry: parts.tasks.run(RecordEvent(entry)))
    observers = [monitor, events, *_watching(settings)]
    recorder = Recorder(graph.name, observers, settings.options.limits.history_entries)
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


def _offer_metrics(options: Options, monitor: JobMonitor, while_running: ExitStack) -> str | None:
    """Where, if anywhere. Raises ConfigurationError if that cannot be."""
    if options.metrics_port is None:
        return None
    from minirt.monitoring.prometheus import MetricsEndpoint

    endpoint = MetricsEndpoint(options.metrics_host, options.metrics_port, monitor.figures)
    while_running.callback(endpoint.close)
    return endpoint.url


def _watching(settings: RunSettings) -> list[JobObserver]:
    return [] if settings.observer is None else [settings.observer]


@dataclass(frozen=True, slots=True)
class _Parts:
    """What every runner needs."""

    execution: ExecutionGraph
    package: JobPackage
    protocol: JobProtocol
    tasks: StorageTasks
    mode: str

    @classmethod
    def of(cls, graph: JobGraph, settings: RunSettings) -> _Parts:
        execution = build_execution_graph(graph)
        checkpointing, options = settings.checkpointing, settings.options
        if checkpointing is None:
            _check_output_shows(execution)
        storage = None
        if checkpointing is not None:
            root = os.fspath(checkpointing.storage)
            limits = options.limits
            store = ObjectStore(
                root, checkpointing.storage_options, timeout_s=limits.storage_timeout_s
            )
            storage = CheckpointStorage(store, limits.inline_snapshot_bytes, limits.history_entries)
            storage.check_writable()
            _check_starting_over(settings.restore, storage)
        if checkpointing is None:
            mode = find_mode(DEFAULT_MODE)
        else:
            mode = find_mode(checkpointing.mode, checkpointing.timeout_s)
        try:
            pickled = cloudpickle.dumps(execution)
        except Exception as error:
            raise ConfigurationError(f"the job cannot be sent to workers: {error}") from error
        return cls(
            execution,
            JobPackage(pickled, options, {**MODES, mode.name: mode}, storage),
            job_protocol(execution, checkpointing, mode.name, settings.restart, options),
            StorageTasks(execution, storage, checkpointing, settings.restore),
            mode.name,
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
            options.limits.savepoint_requests,
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
