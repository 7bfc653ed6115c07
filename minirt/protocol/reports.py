"""How a checkpoint went: what observers, job results, the history and the inspector tell of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, Literal

from minirt.notebook import table
from minirt.protocol import plain
from minirt.protocol.barriers import Switch
from minirt.protocol.ids import SubtaskId
from minirt.protocol.manifest import (
    CheckpointKind,
    InFlightRef,
    Manifest,
    SubtaskStats,
    VertexEntry,
)
from minirt.protocol.reasons import CheckpointFailure, CheckpointFailureReason

Stored = Literal["kept", "orphan", "deleted", "no"]
"""What is left of a checkpoint on storage. A job can be restored from those that are kept."""


class CheckpointStatus(Enum):
    """What became of a checkpoint."""

    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ChannelReport:
    """What one end of a channel held that a checkpoint captured."""

    link: str
    sender: int
    receiver: int
    side: Literal["out", "in"]
    """Which end: the queues of the sender, or those of the receiver."""
    bytes: int
    records: int | None = None
    """None in checkpoints of versions that did not count them."""


@dataclass(frozen=True, slots=True)
class SubtaskReport:
    """How a checkpoint went in one subtask. Durations in seconds, sizes in bytes."""

    name: str
    vertex: int
    subtask: int
    start_delay_s: float = 0.0
    """From the trigger to the first barrier."""
    alignment_s: float = 0.0
    """From the first barrier to the last one."""
    sync_s: float = 0.0
    """How long the subtask did nothing but take the snapshot: its synchronous part."""
    async_s: float = 0.0
    """From the end of the synchronous part until all was stored."""
    acknowledged_after_s: float = 0.0
    """From the trigger until the coordinator knew that its part was stored."""
    state_bytes: int = 0
    in_flight_bytes: int = 0
    processed_bytes: int = 0
    """How much the subtask took in during alignment."""
    unaligned: bool = False
    """Whether barriers overtook data here."""
    switches: tuple[Switch, ...] = ()
    """Each time that barriers began to overtake, and why."""
    local: int = 0
    """The number of its local snapshot; 0 for one with barriers."""
    age_s: float = 0.0
    """How long before the trigger a local snapshot was taken, about; 0 for one with barriers."""
    skipped: int = 0
    """Local snapshots since the line before that no checkpoint is made of."""
    forced: int = 0
    """Local snapshots since the line before that marks have forced."""
    channels: tuple[ChannelReport, ...] = ()
    """The channels whose in-flight data it captured."""


@dataclass(frozen=True, slots=True)
class CheckpointReport(Mapping[str, Any]):
    """A checkpoint that has completed or failed. `failure` says why it failed, None if it did not.

    As a mapping it reads like its JSON: `report["status"]`, `report["subtasks"][0]["sync_s"]`.
    """

    checkpoint_id: int
    generation: int
    mode: str
    kind: CheckpointKind
    triggered_at: float
    """Seconds since 1970."""
    duration_s: float
    """From the trigger until its manifest was stored, or it failed."""
    bytes: int | None = None
    """The size of all snapshots; None if it failed."""
    subtasks: tuple[SubtaskReport, ...] = ()
    """In the order of the job's graph. Of a checkpoint that failed, those whose part had come."""
    failure: CheckpointFailure | None = None
    stored: Stored | None = None
    """What is left of it on storage, where the inspector tells of it."""
    put_off_s: float = 0.0
    """By how many seconds the next checkpoint begins later than its interval says: checkpoints took most
    of the time, and records get as much of it."""

    @property
    def status(self) -> CheckpointStatus:
        return CheckpointStatus.COMPLETED if self.completed else CheckpointStatus.FAILED

    @property
    def completed(self) -> bool:
        return self.failure is None

    @property
    def in_flight_bytes(self) -> int:
        """What all subtasks captured from channels."""
        return sum(part.in_flight_bytes for part in self.subtasks)

    @property
    def whole_s(self) -> float:
        """From the first snapshot in it until its manifest was stored, or it failed."""
        return self.duration_s + max((part.age_s for part in self.subtasks), default=0.0)

    def to_plain(self) -> dict[str, Any]:
        """As JSON and the history on storage have it."""
        failure, parts = self.failure, plain.to_plain(self.subtasks)
        entry = {
            "checkpoint_id": self.checkpoint_id,
            "generation": self.generation,
            "mode": self.mode,
            "status": self.status.value,
            "kind": self.kind,
            **({} if failure is None else {"reason": str(failure)}),
            "triggered_at": self.triggered_at,
            "duration_s": self.duration_s,
            **({} if self.bytes is None else {"bytes": self.bytes}),
            **({"put_off_s": self.put_off_s} if self.put_off_s else {}),
            "subtasks": parts,
            **({} if failure is None else {"missing": list(failure.missing)}),
        }
        return entry if self.stored is None else {**entry, "stored": self.stored}

    @staticmethod
    def from_plain(entry: object) -> CheckpointReport:
        """What `to_plain` gave, also in an older version. Raises ValueError for anything else."""
        stored = plain.from_plain(_Entry, entry)
        values = {name: getattr(stored, name) for name in _SHARED}
        return CheckpointReport(**values, failure=stored.failure)

    def _repr_html_(self) -> str:
        failure = (
            f": {self.failure}" if self.failure is not None else f" in {self.duration_s:.3f} s"
        )
        title = f"checkpoint {self.checkpoint_id} ({self.mode}) {self.status.value}{failure}"
        head = (
            "subtask",
            "start delay s",
            "alignment s",
            "sync s",
            "async s",
            "bytes",
            "in flight",
        )
        rows = (
            (
                part.name,
                *(f"{value:.3f}" for value in (part.start_delay_s, part.alignment_s)),
                *(f"{value:.3f}" for value in (part.sync_s, part.async_s)),
                *(part.state_bytes, part.in_flight_bytes),
            )
            for part in self.subtasks
        )
        return table(title, head, rows)

    def __getitem__(self, name: str) -> Any:
        return self.to_plain()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_plain())

    def __len__(self) -> int:
        return len(self.to_plain())


@dataclass(frozen=True, slots=True)
class _Entry:
    """What the history has of a checkpoint. Its first versions had no more than what has no default."""

    checkpoint_id: int
    generation: int
    mode: str
    status: Literal["completed", "failed"]
    triggered_at: float
    duration_s: float
    kind: CheckpointKind = "checkpoint"
    bytes: int | None = None
    subtasks: tuple[SubtaskReport, ...] = ()
    reason: str = ""
    missing: tuple[str, ...] = ()
    put_off_s: float = 0.0

    @property
    def failure(self) -> CheckpointFailure | None:
        if self.status == "completed":
            return None
        count = len(self.subtasks) + len(self.missing)
        recorded = CheckpointFailureReason.RECORDED
        return CheckpointFailure(recorded, self.reason, self.missing, count)


_SHARED = (
    *("checkpoint_id", "generation", "mode", "kind"),
    *("triggered_at", "duration_s", "bytes", "subtasks", "put_off_s"),
)
"""The fields that mean the same in a report and in an entry of the history."""


def completed_report(manifest: Manifest, put_off_s: float = 0.0) -> CheckpointReport:
    """What there is to tell of a completed checkpoint, which puts the next one off by so much."""
    return CheckpointReport(
        manifest.checkpoint_id,
        manifest.generation,
        manifest.mode,
        manifest.kind,
        manifest.triggered_at,
        manifest.duration_s,
        manifest.bytes,
        subtask_reports(manifest.stats, manifest.in_flight),
        put_off_s=put_off_s,
    )


@dataclass(frozen=True, slots=True)
class CheckpointUnderWay:
    """A checkpoint that is neither complete nor failed; `missing` are the names of subtasks."""

    checkpoint_id: int
    mode: str
    kind: str
    triggered_at: float
    stored: int
    """How many subtasks have stored their part."""
    missing: tuple[str, ...]
    parts: tuple[SubtaskStats, ...] = ()
    """How it went in those subtasks, in the order in which their parts came."""


def subtask_names(
    subtasks: Iterable[SubtaskId], vertices: Iterable[VertexEntry]
) -> tuple[str, ...]:
    """Their names, in the order of the job's graph, as the statistics of checkpoints have them."""
    by_id = {vertex.id: vertex for vertex in vertices}
    return tuple(
        f"{by_id[id.vertex].name} ({id.index + 1}/{by_id[id.vertex].parallelism})"
        for id in sorted(subtasks)
    )


def subtask_reports(
    stats: Iterable[SubtaskStats], in_flight: Iterable[InFlightRef]
) -> tuple[SubtaskReport, ...]:
    """How a checkpoint went in each subtask, in the order of the job's graph."""
    captured = {(ref.stored.vertex, ref.stored.subtask): ref for ref in in_flight}
    in_order = sorted(stats, key=lambda one: (one.vertex, one.subtask))
    return tuple(_part(one, captured.get((one.vertex, one.subtask))) for one in in_order)


def _part(stats: SubtaskStats, captured: InFlightRef | None) -> SubtaskReport:
    channels = () if captured is None else captured.channels
    return SubtaskReport(
        **{field.name: getattr(stats, field.name) for field in fields(stats)},
        channels=tuple(
            ChannelReport(
                data.link, data.sender, data.receiver, data.side, data.bytes, data.records
            )
            for data in channels
        ),
    )
