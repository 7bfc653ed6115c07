"""What goes on beside a job while it runs: metrics, requests, the lease, its load, and whoever watches."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from minirt.clock import Clock
from minirt.config import Limits, Options
from minirt.errors import ConfigurationError, MinirtError
from minirt.graph.execution import ExecutionGraph
from minirt.monitoring.load import LOAD_ENTRIES_MAX, JobSetup, LoadEntries
from minirt.monitoring.monitor import JobMonitor
from minirt.monitoring.status_line import StatusLine
from minirt.notebook import live_text
from minirt.operations.access import (
    TOKEN_FILE_VARIABLE,
    TOKEN_VARIABLE,
    token_given,
    token_of_program,
)
from minirt.operations.port import ControlPort
from minirt.operations.registry import Registry
from minirt.operators.common.checks import check_hooks, check_instance
from minirt.protocol.checkpoint_paths import CheckpointPaths
from minirt.protocol.lease import LeaseTimes
from minirt.run_settings import RunSettings
from minirt.runtime.coordinator.coordinator import Coordinator
from minirt.runtime.coordinator.lease_holder import LeaseHolder
from minirt.runtime.coordinator.observer import JobObserver
from minirt.runtime.coordinator.storage_tasks import RecordEvent
from minirt.runtime.program.job import Recorder
from minirt.storage.checkpoints import CheckpointStorage


def offer_metrics(options: Options, monitor: JobMonitor, while_running: ExitStack) -> str | None:
    """Serve metrics; returns the URL, None if nobody asked. Raises ConfigurationError if that fails."""
    if options.metrics_port is None:
        return None
    from minirt.monitoring.prometheus import MetricsEndpoint

    endpoint = MetricsEndpoint(options.metrics_host, options.metrics_port, monitor.figures)
    while_running.callback(endpoint.close)
    return endpoint.url


def open_control(options: Options, while_running: ExitStack) -> ControlPort | None:
    """Bind the control port, if there is to be one. Raises ConfigurationError if that fails.

    Without a token from the environment there is one in the registry, so there must be a registry.
    """
    if options.control is None:
        return None
    token = token_given()
    if token is None:
        try:
            Registry.of_user()
        except MinirtError as error:
            raise ConfigurationError(
                f"control needs a token in {TOKEN_VARIABLE} or {TOKEN_FILE_VARIABLE}: a new one could be "
                f"told to nobody ({error})"
            ) from error
    port = ControlPort(options.control, token_of_program() if token is None else token)
    while_running.callback(port.close)
    return port


def hold_lease(
    limits: Limits,
    storage: CheckpointStorage | None,
    coordinator: Coordinator,
    recorder: Recorder,
    while_running: ExitStack,
) -> LeaseHolder | None:
    """Have a standby know that the job runs, if it has a storage."""
    if storage is None:
        return None
    times = LeaseTimes(limits.lease_s, limits.lease_timeout_s)
    holder = LeaseHolder(
        *(recorder.name, storage, times), lambda: coordinator.still_s, coordinator.post
    )
    recorder.observers.append(holder)
    while_running.callback(holder.close)
    return holder


def noting_load(
    execution: ExecutionGraph,
    mode: str,
    settings: RunSettings,
    monitor: JobMonitor,
    coordinator: Coordinator,
    clock: Clock,
) -> list[LoadEntries]:
    """Whoever keeps the load of the job on its storage, if it has one."""
    checkpointing, options = settings.checkpointing, settings.options
    if checkpointing is None:
        return []
    times = (checkpointing.interval_s, checkpointing.timeout_s, options.debloat_s)
    setup = JobSetup(mode, *times)

    def record(entry: dict[str, Any]) -> None:
        coordinator.record(RecordEvent(entry, CheckpointPaths.LOAD, LOAD_ENTRIES_MAX))

    return [LoadEntries(monitor, execution, setup, record, clock.monotonic, options.limits.load_s)]


def watching(settings: RunSettings) -> list[JobObserver]:
    """The observer of the user, else the line below the cell of a notebook.

    Raises ConfigurationError if it would not hear.
    """
    if settings.observer is None:
        show = live_text()
        return [] if show is None else [StatusLine(show)]
    check_instance(settings.observer, JobObserver, "observer")
    check_hooks("observer", settings.observer, *vars(JobObserver))
    return [settings.observer]
