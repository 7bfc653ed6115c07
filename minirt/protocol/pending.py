"""A checkpoint that is under way: its parts as they come in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from minirt.protocol.barriers import Barrier
from minirt.protocol.ids import SubtaskId
from minirt.protocol.job_events import SnapshotAcknowledged
from minirt.protocol.manifest import (
    MANIFEST_VERSION,
    CheckpointKind,
    Drain,
    InFlightRef,
    Manifest,
    SinkHandles,
    SnapshotRef,
    SubtaskStats,
    VertexEntry,
)
from minirt.protocol.reasons import CheckpointFailure
from minirt.protocol.reports import (
    CheckpointReport,
    CheckpointUnderWay,
    subtask_names,
    subtask_reports,
)
from minirt.protocol.savepoint_requests import Afterwards, SavepointRequest
from minirt.protocol.source_offsets import SourceOffsets
from minirt.protocol.stored_watermarks import SubtaskWatermarks
from minirt.protocol.trace import CheckpointTrace, SubtaskTrace


@dataclass(slots=True)
class PendingCheckpoint:
    """A checkpoint from its trigger until it has succeeded or failed."""

    barrier: Barrier
    kind: CheckpointKind
    awaited: set[SubtaskId]
    triggered_at: float
    """The date, in seconds since 1970; durations are measured from the creation of the barrier."""
    request: SavepointRequest | None = None
    """What it is taken for, if a user has asked for it."""
    holds_sources: bool = False
    """Whether its mode has sources wait until it is over."""
    of_line: bool = False
    """Whether it is made of local snapshots."""
    snapshots: list[SnapshotRef] = field(default_factory=list)
    in_flight: list[InFlightRef] = field(default_factory=list)
    watermarks: list[SubtaskWatermarks] = field(default_factory=list)
    stats: list[SubtaskStats] = field(default_factory=list)
    handles: list[SinkHandles] = field(default_factory=list)
    offsets: list[SourceOffsets] = field(default_factory=list)
    traces: list[SubtaskTrace] = field(default_factory=list)
    manifest: Manifest | None = None
    """Set once all parts are there and the manifest is being stored."""

    def add(self, part: SnapshotAcknowledged, now: float) -> None:
        """Take the part of a subtask that is still awaited."""
        self.awaited.remove(part.subtask)
        if part.snapshot is not None:
            self.snapshots.append(part.snapshot)
        if part.in_flight is not None:
            self.in_flight.append(part.in_flight)
        if part.watermarks is not None:
            self.watermarks.append(part.watermarks)
        if part.offsets is not None:
            self.offsets.append(part.offsets)
        after = now - self.barrier.created_at
        self.stats.append(replace(part.stats, acknowledged_after_s=after))
        self.handles += part.handles
        if part.trace is not None:
            self.traces.append(replace(part.trace, acknowledged_at=now))

    @property
    def checkpoint_id(self) -> int:
        return self.barrier.checkpoint_id

    @property
    def is_last(self) -> bool:
        """Whether the job is to end with it: no other may begin beside it."""
        ends_job = self.request is not None and self.request.afterwards is not Afterwards.GO_ON
        return self.kind == "final" or ends_job

    @property
    def sorted_handles(self) -> list[SinkHandles]:
        """What its sinks have handed over, in the order of committing."""
        return sorted(self.handles, key=lambda held: (held.checkpoint_id, held.uid, held.subtask))

    def to_manifest(
        self,
        job: str,
        generation: int,
        vertices: tuple[VertexEntry, ...],
        sink_handles: tuple[SinkHandles, ...],
        now: float,
    ) -> Manifest:
        """The manifest once nothing is awaited; `sink_handles` is all that may be uncommitted."""
        request = self.request
        drains = request is not None and request.afterwards is Afterwards.DRAIN
        return Manifest(
            version=MANIFEST_VERSION,
            job=job,
            checkpoint_id=self.barrier.checkpoint_id,
            generation=generation,
            mode=self.barrier.mode,
            kind=self.kind,
            triggered_at=self.triggered_at,
            completed_at=self.triggered_at + now - self.barrier.created_at,
            vertices=vertices,
            snapshots=tuple(sorted(self.snapshots, key=lambda ref: (ref.vertex, ref.subtask))),
            sink_handles=sink_handles,
            stats=tuple(sorted(self.stats, key=lambda stats: (stats.vertex, stats.subtask))),
            in_flight=tuple(
                sorted(self.in_flight, key=lambda ref: (ref.stored.vertex, ref.stored.subtask))
            ),
            watermarks=tuple(sorted(self.watermarks, key=lambda one: (one.head, one.subtask))),
            drain=Drain(request.path) if drains and request is not None else None,
        )

    def to_trace(self, job: str, generation: int, now: float) -> CheckpointTrace | None:
        """What it did, now that it is complete; None if nobody has noted that."""
        if not self.traces:
            return None
        barrier, traces = self.barrier, sorted(self.traces, key=lambda t: (t.vertex, t.subtask))
        return CheckpointTrace(
            job,
            barrier.checkpoint_id,
            generation,
            barrier.mode,
            self.kind,
            self.triggered_at,
            created_at=barrier.created_at,
            completed_at=now,
            committed_at=None,
            subtasks=tuple(traces),
        )

    def with_missing(
        self, failure: CheckpointFailure, vertices: Iterable[VertexEntry]
    ) -> CheckpointFailure:
        """Why it failed, with the subtasks whose part had not come."""
        missing = subtask_names(self.awaited, vertices)
        return replace(failure, missing=missing, subtask_count=len(self.stats) + len(missing))

    def to_report(
        self, generation: int, failure: CheckpointFailure, now: float
    ) -> CheckpointReport:
        """The report of the checkpoint now that it has failed, with the parts that had come."""
        return CheckpointReport(
            self.barrier.checkpoint_id,
            generation,
            self.barrier.mode,
            self.kind,
            self.triggered_at,
            now - self.barrier.created_at,
            subtasks=subtask_reports(self.stats, self.in_flight),
            failure=failure,
        )

    def under_way(self, vertices: Iterable[VertexEntry]) -> CheckpointUnderWay:
        """Which parts have come by now, and which are missing."""
        return CheckpointUnderWay(
            self.barrier.checkpoint_id,
            self.barrier.mode,
            self.kind,
            self.triggered_at,
            len(self.stats),
            subtask_names(self.awaited, vertices),
            tuple(self.stats),
        )
