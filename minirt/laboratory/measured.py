"""What was measured: frozen values, and their JSON.

Times of events are in seconds since measuring began in their run; those before it are negative. A None
stands for what could not be measured, and is no zero.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from minirt.errors import ConfigurationError
from minirt.laboratory.matrix import Setting
from minirt.protocol.plain import from_plain, to_plain

FORMAT = 1
"""Of the JSON. A file of another format is refused."""

FILE_BYTES_MAX = 256 * 1024 * 1024

Ending = Literal["time is up", "finished", "interrupted", "failed"]
Verdict = Literal["passed", "failed", "not verified"]


@dataclass(frozen=True, slots=True)
class Series:
    """One figure over time: `values[i]` at `at_s[i]`."""

    name: str
    unit: str
    at_s: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class PartMeasured:
    """How a checkpoint went in one subtask; seconds and bytes."""

    operator: str
    subtask: int
    start_delay_s: float
    alignment_s: float
    sync_s: float
    async_s: float
    state_bytes: int
    in_flight_bytes: int
    age_s: float = 0.0
    """How long before the trigger a local snapshot was taken."""
    skipped: int = 0
    """Local snapshots since the line before that no checkpoint is made of."""
    forced: int = 0
    """Local snapshots since the line before that marks have forced."""


@dataclass(frozen=True, slots=True)
class CheckpointMeasured:
    """A checkpoint that completed or failed. `bytes` is None if it failed."""

    checkpoint_id: int
    at_s: float
    """When it was triggered."""
    duration_s: float
    completed: bool
    kind: str
    reason: str
    bytes: int | None
    in_flight_bytes: int
    state_bytes: int
    parts: tuple[PartMeasured, ...]

    @property
    def age_s(self) -> float:
        """How long before its trigger its first snapshot was taken."""
        return max((part.age_s for part in self.parts), default=0.0)

    @property
    def skipped(self) -> int:
        return sum(part.skipped for part in self.parts)

    @property
    def forced(self) -> int:
        return sum(part.forced for part in self.parts)


@dataclass(frozen=True, slots=True)
class OperatorMeasured:
    """A chain of operators: shares of its subtasks' time while it was measured, from 0 to 1."""

    operator: str
    name: str
    subtasks: int
    busy: float
    idle: float
    soft_backpressure: float
    hard_backpressure: float
    busiest: float
    """The busy share of its busiest subtask."""


@dataclass(frozen=True, slots=True)
class KillMeasured:
    """A worker that was killed, and what it cost. Durations count from the kill; None: it never came."""

    at_s: float
    subtasks: tuple[str, ...]
    restored_checkpoint: int | None
    first_record_s: float | None
    """Until a sink got any record again."""
    first_new_record_s: float | None
    """Until the sinks had got again what they had at the kill, and one more."""
    caught_up_s: float | None
    """Until sinks got new records at the rate before the kill again."""
    processed_twice: int | None
    """How many records the sinks got once more."""
    rollback_s: float | None = None
    """How long before the kill the first snapshot was taken that the job went on from."""


@dataclass(frozen=True, slots=True)
class LatencyMeasured:
    """From the time in a record until a sink got it, or until its output was committed.

    Where no field of a record says that time: from a source until latency markers came to the chain of a
    sink.
    """

    records: int
    """Or markers."""
    p50_s: float
    p99_s: float
    p999_s: float


@dataclass(frozen=True, slots=True)
class Verification:
    """Whether the committed output is what it must be, and what this was told by."""

    verdict: Verdict
    words: str
    expected: int | None = None
    missing: int | None = None
    twice: int | None = None


@dataclass(frozen=True, slots=True)
class SinkTreatment:
    """What became of a sink of the job for these runs."""

    operator: str
    sink: str
    treatment: Literal["redirected", "replaced", "kept"]
    words: str


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one setting."""

    setting: int
    repeat: int
    seed: int
    started_at: str
    """The wall clock, as ISO 8601 in UTC."""
    ended: Ending
    error: str
    measured_s: float
    start_s: float
    """From the start of the job until measuring began."""
    restarts: int
    source_records: int
    """That sources gave out while it was measured, what is repeated after a kill included."""
    sink_records: int
    """That sinks got while it was measured, likewise."""
    committed_records: int
    """That sinks made visible in the whole run."""
    cpu_s: float
    """Of all processes of the job while it was measured."""
    peak_rss_bytes: int
    latency: LatencyMeasured | None
    visible_after: LatencyMeasured | None
    """From the time in a record until its output was committed."""
    verification: Verification
    operators: tuple[OperatorMeasured, ...] = ()
    checkpoints: tuple[CheckpointMeasured, ...] = ()
    kills: tuple[KillMeasured, ...] = ()
    series: tuple[Series, ...] = ()
    protocol_bytes: int | None = None
    """Barriers, and marks of local snapshots, that subtasks sent while it was measured."""

    @property
    def counts(self) -> bool:
        """Whether its figures count: it was measured for as long as it was to be."""
        return self.ended in ("time is up", "finished") and not self.over_early

    @property
    def over_early(self) -> bool:
        """Whether its job had ended before measuring began, so that there is nothing to be told of it."""
        return self.ended == "finished" and not self.sink_records

    @property
    def completed(self) -> tuple[CheckpointMeasured, ...]:
        """The checkpoints that completed and had been triggered while it was measured."""
        return tuple(
            one
            for one in self.checkpoints
            if one.completed and one.at_s >= 0 and one.kind == "checkpoint"
        )

    @property
    def failed(self) -> tuple[CheckpointMeasured, ...]:
        """The checkpoints that failed while it was measured; a kill may have been the reason."""
        return tuple(one for one in self.checkpoints if not one.completed and one.at_s >= 0)

    def one_series(self, name: str) -> Series | None:
        return next((one for one in self.series if one.name == name), None)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything about a comparison. `runs` are in the order in which they were made."""

    title: str
    command: str
    target: str
    workload: str | None
    settings: tuple[Setting, ...]
    labels: tuple[str, ...]
    seconds: float
    warm_up_s: float
    repeat: int
    kill_every_s: float | None
    latency_from: str | None
    seed: int
    started_at: str
    complete: bool
    """Whether all runs were made that were planned."""
    machine: dict[str, Any]
    versions: dict[str, Any]
    notes: tuple[str, ...] = ()
    """What was done to the job so that it could be compared."""
    sinks: tuple[SinkTreatment, ...] = ()
    runs: tuple[Run, ...] = ()
    format: int = FORMAT
    kill_at_s: tuple[float, ...] = ()

    @property
    def kills(self) -> bool:
        return self.kill_every_s is not None or bool(self.kill_at_s)

    @property
    def by_markers(self) -> bool:
        """Whether latencies are those of latency markers."""
        return self.latency_from is None and any(run.latency is not None for run in self.runs)

    def of_setting(self, setting: int) -> tuple[Run, ...]:
        """The runs of a setting whose figures count."""
        return tuple(run for run in self.runs if run.setting == setting and run.counts)


def to_json(comparison: Comparison) -> str:
    """Reading it gives the same value again."""
    return json.dumps(to_plain(comparison), allow_nan=False, separators=(",", ":")) + "\n"


def read_json(path: Path) -> Comparison:
    """The comparison in a file. Raises ConfigurationError if there is none."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ConfigurationError(f"{path} is longer than {FILE_BYTES_MAX} bytes")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is no comparison: {error}") from error
    return from_json(text, str(path))


def from_json(text: str, called: str) -> Comparison:
    """Raises ConfigurationError that names the field which is wrong."""
    try:
        plain = json.loads(text)
        if isinstance(plain, dict) and plain.get("format", FORMAT) != FORMAT:
            raise ConfigurationError(
                f"{called} has format {plain['format']!r}; this minirt reads format {FORMAT}"
            )
        read = from_plain(Comparison, plain)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{called} is no comparison of minirt compare: {error}") from error
    _check(read, called)
    return read


def _check(read: Comparison, called: str) -> None:
    """What the types do not say."""
    settings = len(read.settings)
    if len(read.labels) != settings or not settings:
        raise ConfigurationError(f"{called} is no comparison: it has no name for each setting")
    for run in read.runs:
        if not 0 <= run.setting < settings:
            raise ConfigurationError(f"{called}: a run is of setting {run.setting}, which is none")
        for series in run.series:
            if len(series.at_s) != len(series.values):
                raise ConfigurationError(f"{called}: the series {series.name} is cut off")
