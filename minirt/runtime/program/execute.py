"""Runs a job graph: puts storage, protocol and runner together, and hands out the job."""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

from minirt.clock import SYSTEM_CLOCK, Clock
from minirt.config import Checkpointing, Options
from minirt.errors import ConfigurationError
from minirt.graph.drift import drift_groups
from minirt.graph.execution import ExecutionGraph
from minirt.graph.job_graph import JobGraph
from minirt.graph.lateness import lost_lateness
from minirt.graph.planner import build_execution_graph
from minirt.graph.queue_checks import check_queues
from minirt.io.base import Sink
from minirt.modes import DEFAULT_MODE, MODES, check_edges, find_mode, local_snapshots
from minirt.monitoring.description import describe_job
from minirt.monitoring.events import JobEvents
from minirt.monitoring.host_logs import WorkerLogs
from minirt.monitoring.logs import logger_of, set_up_program
from minirt.monitoring.monitor import JobMonitor
from minirt.monitoring.program_logging import ProgramLogging
from minirt.monitoring.report import FiguresReport
from minirt.protocol.barriers import CheckpointMode, may_overlap
from minirt.protocol.checkpoint_settings import CheckpointSettings
from minirt.protocol.ids import SubtaskId
from minirt.protocol.job import JobProtocol
from minirt.protocol.job_events import JobEvent
from minirt.protocol.reactive import UNCHANGING, Parallelism, Reactive
from minirt.protocol.restarts import Restart, RestartStrategy, scope_of
from minirt.protocol.restore import vertex_entries
from minirt.protocol.restore_options import FRESH, RestoreOptions
from minirt.protocol.workers import Patience
from minirt.run_settings import RunSettings
from minirt.runtime.cluster.host_launch import HostLaunch
from minirt.runtime.cluster.launching import Launch
from minirt.runtime.cluster.process_cluster import ProcessCluster
from minirt.runtime.cluster.template_process import LOCAL_LAUNCH
from minirt.runtime.control.package import JobPackage
from minirt.runtime.control.shape import pickled_graph
from minirt.runtime.coordinator.coordinator import Coordinator
from minirt.runtime.coordinator.inline import InlineRunner
from minirt.runtime.coordinator.storage_tasks import RecordEvent, StorageTasks
from minirt.runtime.program.at_exit import wait_at_exit
from minirt.runtime.program.beside import (
    hold_lease,
    noting_load,
    offer_metrics,
    open_control,
    watching,
)
from minirt.runtime.program.comebacks import workers_alone
from minirt.runtime.program.job import Job, JobResult, Recorder, job_result
from minirt.runtime.program.savepoint_desk import SavepointDesk
from minirt.runtime.program.shapes import Shapes, place, reactive_settings, usable_cores
from minirt.runtime.program.signals import SignalWatch, launching
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.store import ObjectStore
from minirt.threads import naming_the_end_of_the_program
from minirt.wording import given, named, uses_flags

Runner = Literal["processes", "inline"]

logger = logger_of("job")


def start_job(graph: JobGraph, settings: RunSettings, clock: Clock = SYSTEM_CLOCK) -> Job:
    """Start a job in worker processes, which all go by `clock`, and return at once.

    The program does not end before the job.
    """
    with naming_the_end_of_the_program():
        job = _launch(graph, settings, clock)
        wait_at_exit(job)
    return job


def _launch(graph: JobGraph, settings: RunSettings, clock: Clock) -> Job:
    _check_ends_are_shared(graph)
    _check_storage_is_shared(settings)
    parts, options = _Parts.of(graph, settings, clock), settings.options
    monitor = JobMonitor(parts.execution, clock.now, options.latency_interval_s)
    report = FiguresReport(monitor, options.limits.metrics_log_s)
    observers = [monitor, report, *watching(settings)]
    recorder = Recorder(graph.name, observers, options.limits.history_entries)
    savepoints = SavepointDesk(parts.package.storage, parts.package.modes, parts.mode)
    with launching() as attach_signals, ExitStack() as starting, ExitStack() as unstarted:
        url = offer_metrics(options, monitor, starting)
        port = open_control(options, starting)
        starting.callback(set_up_program(options.log_format, options.log_level))
        events: queue.SimpleQueue[JobEvent] = queue.SimpleQueue()
        cluster = ProcessCluster(parts.package, parts.placement, events.put, _launch_of(settings))
        unstarted.callback(cluster.close, options.limits.stop_timeout_s, None)
        coordinator = Coordinator(
            *(parts.package, parts.protocol, parts.tasks, cluster, events, recorder),
            savepoints.answer,
        )
        recorder.observers.append(
            JobEvents(monitor, lambda entry: coordinator.record(RecordEvent(entry)))
        )
        loads = noting_load(*(parts.execution, parts.mode, settings, monitor), coordinator, clock)
        recorder.observers += loads
        here = settings.cluster is None
        recorder.observers.append(WorkerLogs(graph.name, on_this_console=here))
        storage = parts.tasks.storage
        lease = hold_lease(options.limits, storage, coordinator, recorder, starting)
        at_end = starting.pop_all()
        unstarted.callback(at_end.close)
        job = Job(
            *(parts.protocol, options, recorder, monitor, url, coordinator, savepoints, at_end),
            describe_job(
                parts.execution,
                settings,
                parts.mode,
                _chosen(settings.restart, settings.checkpointing),
            ),
            port,
            lease,
        )
        unstarted.pop_all()  # From here on the thread of the job closes all of that.
        if parts.shapes is not None:
            parts.shapes.on_taken += [monitor.take_shape, job.take_shape]
            parts.shapes.on_taken += [one.take_shape for one in loads]
            job.desk.offer("rescale", _follows_slots)
        attach_signals(job)
        if port is not None:
            logger.info("job %r: %s", graph.name, job.desk.reached_by)
    return job


def execute_job(
    graph: JobGraph, settings: RunSettings, runner: Runner, clock: Clock = SYSTEM_CLOCK
) -> JobResult:
    """Run a job to its end. Raises JobFailedError if it fails."""
    if runner == "processes":
        with naming_the_end_of_the_program(), SignalWatch() as watch:
            result = _launch(graph, settings, clock).wait()
        watch.pass_on(result.status)
        return result
    for option, is_given in (
        ("metrics_port", settings.options.metrics_port is not None),
        ("control", settings.options.control is not None),
        ("on_signal", settings.options.on_signal != "cancel"),
        ("cluster", settings.cluster is not None),
        ("scope of restart", scope_of(settings.restart) != "job"),
    ):
        if is_given:
            raise ConfigurationError(f'{option} has no effect with runner="inline"')
    began_at, parts = time.monotonic(), _Parts.of(graph, settings, clock)
    monitor = JobMonitor(parts.execution, clock.now, settings.options.latency_interval_s)
    events = JobEvents(monitor, lambda entry: parts.tasks.run(RecordEvent(entry)))
    observers = [monitor, events, *watching(settings)]
    recorder = Recorder(graph.name, observers, settings.options.limits.history_entries)
    ending = InlineRunner(parts.package, parts.protocol, parts.tasks, recorder).run()
    return job_result(graph.name, parts.protocol, recorder, ending, began_at)


def _follows_slots(request: Mapping[str, Any]) -> dict[str, Any]:
    raise ConfigurationError(
        "the parallelism of this job follows the slots of its hosts: start agents, or stop some"
    )


def _check_ends_are_shared(graph: JobGraph) -> None:
    """What a worker reads and writes must be where the coordinator looks for it."""
    for node in graph.operators.values():
        end = node.spec.reads_from or node.spec.writes_to
        if end is not None and end.in_one_process:
            raise ConfigurationError(
                f"{node.label} reads or writes in the memory of one process, and the workers of a job are "
                'others; use a folder, or runner="inline"'
            )


def _check_storage_is_shared(settings: RunSettings) -> None:
    """What a worker stores must be there for the others, and for the coordinator."""
    checkpointing, restored = settings.checkpointing, settings.restore.which
    if checkpointing is None:
        return
    store = ObjectStore(os.fspath(checkpointing.storage), checkpointing.storage_options)
    places = [store]
    if isinstance(restored, str) and "://" in restored:
        places.append(store.at(restored))
    for store in places:
        if store.is_of_one_process:
            raise ConfigurationError(
                f"{store.root} is in the memory of one process, and the workers of a job are others: "
                'checkpoints there cannot be restored; use a folder, or runner="inline"'
            )


def _launch_of(settings: RunSettings) -> Launch:
    return LOCAL_LAUNCH if settings.cluster is None else HostLaunch(settings.cluster)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What every runner needs."""

    execution: ExecutionGraph
    package: JobPackage
    protocol: JobProtocol
    tasks: StorageTasks
    mode: str
    placement: Mapping[SubtaskId, int]
    """Which worker runs which subtask, where there are any."""
    shapes: Shapes | None
    """Of a job whose parallelism follows its slots."""

    @classmethod
    def of(cls, graph: JobGraph, settings: RunSettings, clock: Clock) -> _Parts:
        execution = build_execution_graph(graph)
        checkpointing, options = settings.checkpointing, settings.options
        for node in check_queues(execution, options):
            logger.warning(
                "job %r: queues of %s have no effect at this parallelism, at which %s is chained",
                *(graph.name, node.uid, node.label),
            )
        for uid, problem in lost_lateness(execution).items():
            logger.warning("job %r, operator %s: %s", graph.name, uid, problem)
        if checkpointing is None:
            if options.trace:
                raise ConfigurationError(
                    f"{given('options.trace', True)} needs {named('checkpointing')}: it notes what "
                    "checkpoints do"
                )
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
        if storage is None or _starts_over(settings.restore, storage):
            for sink in _sinks(execution):
                sink.on_fresh_start()
        if checkpointing is None:
            mode = find_mode(DEFAULT_MODE)
        else:
            most = checkpointing.max_concurrent
            mode = find_mode(checkpointing.mode, checkpointing.timeout_s, most)
            _check_snapshots_may_wait(most, options.limits.waiting_snapshots)
        check_edges(mode, execution.topology)
        modes = {**MODES, mode.name: mode}
        local = local_snapshots(mode, checkpointing)
        placement = place(execution, options, None if settings.cluster else usable_cores())
        alone = workers_alone(execution, placement, settings, mode)
        pickled = pickled_graph(execution)
        reactive = reactive_settings(graph, settings)
        shapes = None if reactive is None else Shapes(graph, options, mode)
        return cls(
            execution,
            JobPackage(
                *(pickled, options, modes, storage, clock),
                ProgramLogging.of_this_process(options),
                local,
                frozenset().union(*alone.values()),
                prunes=may_overlap(mode),  # Then its checkpoints hold nothing in flight.
                in_flags=uses_flags(),
            ),
            job_protocol(
                *(execution, checkpointing, modes, mode.name, settings.restart, options),
                hosts_wait_s=_launch_of(settings).wait_s or 0.0,
                parallelism=UNCHANGING if reactive is None else Reactive(reactive),
                alone=alone,
            ),
            StorageTasks(
                *(execution, storage, checkpointing, settings.restore),
                None if shapes is None else shapes.at,
            ),
            mode.name,
            placement,
            shapes,
        )


def _check_snapshots_may_wait(max_concurrent: int, waiting_snapshots: int) -> None:
    """A storage that is slow must not restart a job that keeps to its own limits."""
    if max_concurrent > waiting_snapshots:
        raise ConfigurationError(
            f"{named('checkpointing.max_concurrent')} ({max_concurrent}) lets more snapshots of a "
            f"subtask wait to be stored than the limit {named('limits.waiting_snapshots')} "
            f"({waiting_snapshots}) allows: raise that, or take fewer at a time"
        )


def _check_output_shows(graph: ExecutionGraph) -> None:
    """Sinks commit with checkpoints: without any, a job that never ends would never show output."""
    nodes = [node for vertex in graph.vertices for node in vertex.operators]
    sources = ((node, node.spec.reads_from) for node in nodes)
    endless = [node for node, source in sources if source is not None and not source.bounded]
    for node in nodes:
        sink = node.spec.writes_to
        if not endless or sink is None:
            continue
        if type(sink).commit is not Sink.commit:
            raise ConfigurationError(
                f"sink {node.label} shows its output with each checkpoint, but this job takes none "
                f"and source {endless[0].label} never ends; give the job {named('checkpointing')}"
            )


def _check_starting_over(restore: RestoreOptions, storage: CheckpointStorage) -> None:
    """Starting over must be said: it makes the checkpoints that are there worthless."""
    keys = storage.manifest_keys() if restore.which is None else []
    if keys:
        raise ConfigurationError(
            f"{storage.store.root} holds {len(keys)} checkpoints of an earlier run, the newest is "
            f"{keys[-1].checkpoint_id}; go on from it with {given('restore', 'latest')}, or give "
            f"them up with {given('restore', FRESH)}"
        )


def _starts_over(restore: RestoreOptions, storage: CheckpointStorage) -> bool:
    """Whether the job goes on from no checkpoint."""
    return restore.which in (None, FRESH) or (
        restore.which == "latest" and not storage.manifest_keys()
    )


def _sinks(execution: ExecutionGraph) -> Iterator[Sink]:
    nodes = (node for vertex in execution.vertices for node in vertex.operators)
    return (node.spec.writes_to for node in nodes if node.spec.writes_to is not None)


def _chosen(
    restart: RestartStrategy | None, checkpointing: Checkpointing | None
) -> RestartStrategy:
    """The restart strategy, or the default, which depends on whether there are checkpoints."""
    if restart is not None:
        return restart
    return Restart.none() if checkpointing is None else Restart.exponential_delay()


def job_protocol(
    execution: ExecutionGraph,
    checkpointing: Checkpointing | None,
    modes: Mapping[str, CheckpointMode],
    mode: str,
    restart: RestartStrategy | None,
    options: Options,
    hosts_wait_s: float = 0.0,
    parallelism: Parallelism = UNCHANGING,
    alone: Mapping[int, frozenset[SubtaskId]] | None = None,
) -> JobProtocol:
    """The protocol of a job that has not begun, with the defaults filled in.

    `mode` is that of its checkpoints, `modes` are all that its workers know. These may wait
    `hosts_wait_s` for hosts before they can connect. `parallelism` chooses that of each generation.
    `alone` are the subtasks of workers that may come back alone.
    """
    if checkpointing is None:
        settings = CheckpointSettings(mode, interval_s=None, modes=modes)
    else:
        settings = CheckpointSettings(
            mode,
            checkpointing.interval_s,
            checkpointing.timeout_s,
            checkpointing.min_pause_s,
            checkpointing.tolerable_failures,
            options.limits.savepoint_requests,
            modes,
            local_snapshots(modes[mode], checkpointing),
            checkpointing.max_concurrent,
        )
    return JobProtocol(
        execution.name,
        vertex_entries(execution.topology),
        frozenset(execution.subtasks()),
        settings,
        _chosen(restart, checkpointing).start(),
        Patience(
            hosts_wait_s + options.limits.connect_timeout_s,
            options.limits.start_timeout_s,
            options.heartbeat_timeout_s,
        ),
        parallelism,
        drift_groups(execution),
        alone,
    )
