"""The options and limits that users can set, with unit and default, checked when they are constructed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from minirt.clusters import parse_address
from minirt.errors import ConfigurationError
from minirt.keywords import refusing_unknown_keywords
from minirt.protocol.lease import LeaseTimes
from minirt.units import Duration, positive, seconds
from minirt.wording import given, named

DEFAULT_MAX_PARALLELISM = 128
METRICS_HOST = "127.0.0.1"
LATENCY_INTERVAL_S_MIN = 0.001
"""Latency markers that come more often would be a load of their own."""


@refusing_unknown_keywords
@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of memory and time. Sizes in bytes, durations in seconds."""

    input_queue_bytes: int = 512 * 1024
    """What a channel holds at the receiver; also the credit that its sender gets."""
    output_queue_bytes: int = 256 * 1024
    """What a subtask may hold for one channel before it takes no further input (soft backpressure)."""
    row_input_queue_bytes: int = 64 * 1024
    """How much of `input_queue_bytes` rows may fill, whose frames are smaller than those of columns."""
    row_output_queue_bytes: int = 32 * 1024
    """How much of `output_queue_bytes` rows may fill."""
    overdraft_bytes: int = 16 * 1024 * 1024
    """How much memory one record's output may add on top, and recovered in-flight data may take; the rest
    waits on local disk."""
    spill_bytes_max: int = 4 * 1024 * 1024 * 1024
    """What a subtask may hold on disk before it blocks within a record (hard backpressure)."""
    order_log_bytes: int = 16 * 1024 * 1024
    """How long the log may be of the order in which a subtask reads its channels, 16 bytes for each batch;
    with more, it cannot come back alone before the next checkpoint."""
    frame_bytes: int = 32 * 1024
    """The size at which a buffer is sent on before its timeout."""
    frame_records: int = 4096
    """The number of records at which a buffer is sent on before its timeout."""
    column_frame_bytes: int = 256 * 1024
    """The size of frames of columns: smaller pieces are gathered until their timeout, larger ones cut."""
    frame_bytes_max: int = 256 * 1024 * 1024
    """A single frame larger than this is refused."""
    debloat_period_s: float = 0.2
    """How often debloating sizes a channel's credit window."""
    debloat_samples: int = 20
    """Over about how many periods debloating averages."""
    debloat_threshold: float = 0.25
    """By which part of itself a credit window must change before the sender hears of it."""
    debloat_window_bytes_min: int = 256
    """The least credit window of debloating, and the first; `input_queue_bytes` is the largest."""
    slice_s: float = 0.002
    """How long a subtask works before its worker looks around."""
    watermark_interval_s: float = 0.02
    """How often a source emits watermarks at most."""
    source_poll_s: float = 0.01
    """How long a source with nothing to read waits before it asks again."""
    inline_snapshot_bytes: int = 20 * 1024
    """A snapshot up to this size travels in the acknowledgement and is stored in the manifest."""
    local_copies_bytes: int = 0
    """How much of its last checkpoints a host keeps on its own disk too, to restart from; 0 for nothing."""
    heartbeat_s: float = 0.2
    """How often a worker reports to the coordinator."""
    connect_timeout_s: float = 30.0
    """How long starting workers may take to come up and connect."""
    start_timeout_s: float = 600.0
    """How long connected workers may take to restore their state and start."""
    stop_timeout_s: float = 5.0
    """How long a worker may take to end in an orderly way before it is killed."""
    signal_stop_s: float = 20.0
    """How long the savepoint of `on_signal` "stop" may take before the job is cancelled instead."""
    storage_timeout_s: float = 300.0
    """How long one access to a storage other than local files may take, with all attempts of its client."""
    history_entries: int = 1000
    """How many checkpoints the history on storage remembers."""
    metrics_log_s: float = 10.0
    """How often the figures of all subtasks are logged, with `log_level` "info" or "debug"."""
    waiting_snapshots: int = 32
    """How many snapshots of a subtask may wait to be stored; with more, the job restarts."""
    lease_s: float = 5.0
    """How often a job with checkpoints renews its lease in their storage, for a standby."""
    lease_timeout_s: float = 20.0
    """How long the lease may stay as it is before a standby takes the job over."""
    load_s: float = 10.0
    """How often the load of all operators is stored beside the checkpoints, for advice."""
    trace_events: int = 1000
    """How many events of a checkpoint the trace of a subtask holds; channels whose barrier came early are
    left out of larger ones."""
    savepoint_requests: int = 16
    """How many requests for savepoints may wait at a time; further ones are refused."""
    route_cache_entries: int = 1 << 20
    """How many keys a partitioner remembers the target of."""


@refusing_unknown_keywords
@dataclass(frozen=True, slots=True)
class Queues:
    """Sizes of the channels into one operator that differ from those of the job; None: as in the job."""

    input_bytes: int | None = None
    """What each channel holds at the operator, of rows as of columns, instead of what the limits say."""
    output_bytes: int | None = None
    """What a sender may hold for each channel, likewise."""
    debloat: Duration | Literal["off"] | None = None
    """How long the data in a channel should last, instead of `Options.debloat`; "off" leaves it alone."""

    def __post_init__(self) -> None:
        if (self.input_bytes, self.output_bytes, self.debloat) == (None, None, None):
            raise ConfigurationError(
                "Queues() has no effect: give input_bytes, output_bytes or debloat"
            )
        for name in ("input_bytes", "output_bytes"):
            if getattr(self, name) is not None:
                positive(f"Queues: {name}", getattr(self, name))
        if self.debloat is None or self.debloat == "off":
            return
        if seconds(self.debloat, "Queues: debloat") == 0:
            raise ConfigurationError('Queues: debloat must be positive, or "off"')


@refusing_unknown_keywords
@dataclass(frozen=True, slots=True)
class Options:
    """How a job runs. Durations are seconds or strings such as "10ms", sizes bytes or "64KiB"."""

    buffer_timeout: Duration = "10ms"
    """How long a record waits at most for its buffer to fill."""
    flush: Literal["timeout", "on_demand"] = "timeout"
    """When buffers leave that are not full: "timeout", once `buffer_timeout` is over; "on_demand", as soon
    as sender and receiver have nothing else to do, which gains latency for CPU time."""
    heartbeat_timeout: Duration = "20s"
    """A worker that is silent for this long is killed; must exceed the slowest single function call."""
    placement: Literal["subtask", "slots"] = "subtask"
    """One worker process per subtask, or `workers` processes with one subtask of every operator each."""
    workers: int | None = None
    """With placement "slots": how many worker processes at most. By default, as many as the highest
    parallelism; without a cluster, no more than this machine has cores."""
    transport: Literal["unix", "tcp"] = "unix"
    """How processes reach each other: Unix domain sockets, or TCP over the loopback address."""
    allow_pickle: bool = False
    """Let records that msgpack cannot carry travel as pickle."""
    share_records: bool = False
    """Copy no records between functions, state and buffers: you promise that no function changes a record
    or a value of state that it was given, or that it has returned, yielded or stored."""
    detect_mutation: bool = False
    """For tests: fail a job that breaks the promise of `share_records`, and name the operator. Slow."""
    kernels: Literal["auto", "numba", "numpy"] = "auto"
    """What works on keys in columns: "numba" needs the extra `fast`; "auto" takes it where it is there."""
    debloat: Duration | None = None
    """How long the data in a channel should last; queues of slow consumers shrink. None: they do not."""
    queues: Mapping[str, Queues] = field(default_factory=dict)
    """By uid, the sizes of the channels into single operators."""
    metrics_port: int | None = None
    """Where Prometheus reads the metrics of the job; 0 is any free port, None offers no metrics."""
    metrics_host: str = METRICS_HOST
    """The address that `metrics_port` is on. By default only this machine can read the metrics."""
    control: str | None = None
    """The "HOST:PORT" at which commands on other hosts reach the job, as by `minirt savepoint URL`; port 0
    is any free port, None offers none."""
    log_format: Literal["text", "json"] = "text"
    """How messages are written to standard error: as lines of text, or as one JSON object a line."""
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    """Which messages are written: those of this level and above."""
    trace: bool = False
    """Note what each checkpoint does, event by event, and keep that beside it: for pictures of it."""
    latency_interval: Duration | None = None
    """How often each source sends a latency marker along, which measures how long records are on the way;
    None: never."""
    on_signal: Literal["cancel", "stop"] = "cancel"
    """What SIGTERM, SIGHUP and Ctrl-C do: cancel the job, or stop it with a savepoint in its storage."""
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        seconds(self.buffer_timeout, "buffer_timeout")
        if self.debloat is not None:
            _check_debloat(self.debloat)
        self._check_debloat_limits()
        self._check_queues()
        if self.latency_interval is not None:
            _check_latency_interval(self.latency_interval)
        if seconds(self.heartbeat_timeout, "heartbeat_timeout") <= 2 * self.limits.heartbeat_s:
            raise ConfigurationError(
                f"{named('options.heartbeat_timeout')} must exceed {2 * self.limits.heartbeat_s} "
                "s, twice the heartbeat"
            )
        _one_of("placement", self.placement, ("subtask", "slots"))
        _one_of("flush", self.flush, ("timeout", "on_demand"))
        _one_of("log_format", self.log_format, ("text", "json"))
        _one_of("log_level", self.log_level, ("debug", "info", "warning", "error"))
        _one_of("kernels", self.kernels, ("auto", "numba", "numpy"))
        _one_of("transport", self.transport, ("unix", "tcp"))
        _one_of("on_signal", self.on_signal, ("cancel", "stop"))
        if self.workers is not None:
            if self.placement != "slots":
                raise ConfigurationError(
                    f"{named('options.workers')} has no effect unless "
                    f"{given('options.placement', 'slots')}"
                )
            positive("workers", self.workers)
        self._check_metrics()
        if self.control is not None:
            parse_address(self.control, "control")
        LeaseTimes(self.limits.lease_s, self.limits.lease_timeout_s)

    @property
    def buffer_timeout_s(self) -> float:
        return seconds(self.buffer_timeout)

    @property
    def latency_interval_s(self) -> float | None:
        return None if self.latency_interval is None else seconds(self.latency_interval)

    @property
    def debloat_s(self) -> float | None:
        return None if self.debloat is None else seconds(self.debloat)

    def of_channels_into(self, uid: str, queue_s: float | None) -> tuple[Limits, float | None]:
        """The limits of the channels that an operator reads from, and their target of debloating.

        `queue_s` is what its chain itself asks for.
        """
        own, limits = self.queues.get(uid), self.limits
        targets = [target for target in (queue_s, self.debloat_s) if target is not None]
        target_s = min(targets, default=None)
        if own is None:
            return limits, target_s
        limits = replace(
            limits,
            input_queue_bytes=own.input_bytes or limits.input_queue_bytes,
            output_queue_bytes=own.output_bytes or limits.output_queue_bytes,
            row_input_queue_bytes=own.input_bytes or limits.row_input_queue_bytes,
            row_output_queue_bytes=own.output_bytes or limits.row_output_queue_bytes,
        )
        if own.debloat is None:
            return limits, target_s
        return limits, None if own.debloat == "off" else seconds(own.debloat)

    @property
    def heartbeat_timeout_s(self) -> float:
        return seconds(self.heartbeat_timeout)

    def _check_queues(self) -> None:
        for uid, queues in self.queues.items():
            if not isinstance(uid, str) or not isinstance(queues, Queues):
                raise ConfigurationError(f"queues are Queues by uid, not {uid!r}: {queues!r}")
            if queues.debloat not in (None, "off"):
                _check_debloat(queues.debloat)

    def _check_metrics(self) -> None:
        port: Any = self.metrics_port
        if not isinstance(self.metrics_host, str) or not self.metrics_host:
            raise ConfigurationError(
                f"{named('options.metrics_host')} is a host name, not {self.metrics_host!r}"
            )
        if port is None:
            if self.metrics_host != METRICS_HOST:
                raise ConfigurationError(
                    f"{named('options.metrics_host')} has no effect without "
                    f"{named('options.metrics_port')}"
                )
        elif not isinstance(port, int) or isinstance(port, bool) or not 0 <= port <= 65535:
            raise ConfigurationError(
                f"{named('options.metrics_port')} is a number from 0 to 65535, not {port!r}"
            )

    def _check_debloat_limits(self) -> None:
        """Also an operator may ask for debloating."""
        limits = self.limits
        positive("debloat_samples", limits.debloat_samples)
        positive("debloat_window_bytes_min", limits.debloat_window_bytes_min)
        if limits.debloat_period_s <= 0 or limits.debloat_threshold < 0:
            raise ConfigurationError(
                f"{named('limits.debloat_period_s')} must be above 0 and "
                f"{named('limits.debloat_threshold')} not negative, got "
                f"{limits.debloat_period_s!r} and {limits.debloat_threshold!r}"
            )


@refusing_unknown_keywords
@dataclass(frozen=True, slots=True)
class Checkpointing:
    """Where, when and how checkpoints are taken.

    `storage` is a path or URL that fsspec understands, `mode` a name from the registry of modes or a
    mode object. Raises ConfigurationError for values that cannot work.
    """

    storage: str | os.PathLike[str]
    interval: Duration = "10s"
    """From the start of one checkpoint to the start of the next; from its end if sources wait for it.
    Behind a checkpoint there is none for as long as it took."""
    mode: Any = "aligned"
    timeout: Duration = "10min"
    """A checkpoint that takes longer is given up."""
    min_pause: Duration = 0
    """Rest between the end of one checkpoint and the start of the next."""
    max_concurrent: int = 1
    """How many checkpoints may be under way at a time, savepoints among them; more than one only in modes
    whose barriers stay in their place."""
    tolerable_failures: int = 10
    """How many checkpoints in a row may fail before the job does."""
    retain: int = 3
    """How many completed checkpoints are kept."""
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Passed to fsspec."""
    watermarks: Literal["regenerated", "restored"] = "regenerated"
    """What a restored operator starts from: no watermark, or the one it had at the checkpoint."""

    def __post_init__(self) -> None:
        if not isinstance(self.storage, str | os.PathLike) or not os.fspath(self.storage):
            raise ConfigurationError(f"storage is a path or URL, not {self.storage!r}")
        if seconds(self.interval, "interval") < 0.001:
            raise ConfigurationError(f"interval must be at least 1ms, got {self.interval!r}")
        if seconds(self.timeout, "timeout") == 0:
            raise ConfigurationError("timeout must be positive")
        seconds(self.min_pause, "min_pause")
        if isinstance(self.mode, str):
            from minirt.modes import check_name  # Modes of other packages are looked up for it.

            check_name(self.mode)
        positive("max_concurrent", self.max_concurrent)
        if self.max_concurrent > 1 and self.min_pause_s > 0:
            raise ConfigurationError(
                f"{named('checkpointing.min_pause')} ({self.min_pause_s:g} s) keeps one checkpoint "
                "away from the next, and "
                f"{given('checkpointing.max_concurrent', self.max_concurrent)} has them overlap: "
                "leave one of them out"
            )
        positive("retain", self.retain)
        _one_of("watermarks", self.watermarks, ("regenerated", "restored"))
        if not isinstance(self.tolerable_failures, int) or self.tolerable_failures < 0:
            raise ConfigurationError(
                f"{named('checkpointing.tolerable_failures')} must be 0 or more, got "
                f"{self.tolerable_failures!r}"
            )

    @property
    def interval_s(self) -> float:
        return seconds(self.interval)

    @property
    def timeout_s(self) -> float:
        return seconds(self.timeout)

    @property
    def min_pause_s(self) -> float:
        return seconds(self.min_pause)


def _check_debloat(target: Duration) -> None:
    if seconds(target, "debloat") == 0:
        raise ConfigurationError("debloat must be positive; to leave queues alone, give None")


def _check_latency_interval(interval: Duration) -> None:
    if seconds(interval, "latency_interval") < LATENCY_INTERVAL_S_MIN:
        raise ConfigurationError(
            f"{named('options.latency_interval')} must be at least 1ms, or None for no markers, "
            f"got {interval!r}"
        )


def _one_of(option: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigurationError(f"{option} must be one of {', '.join(allowed)}, got {value!r}")
