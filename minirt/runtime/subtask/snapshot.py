"""The part of a checkpoint that one subtask contributes, from the record path to storage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import Context, copy_context
from dataclasses import dataclass, replace
from typing import Protocol

from minirt.errors import StorageError
from minirt.io.base import Prepared
from minirt.operators.common.calling import Reaching
from minirt.protocol.barriers import Switch
from minirt.protocol.ids import SubtaskId
from minirt.protocol.job_events import SnapshotAcknowledged, SnapshotDeclined
from minirt.protocol.lines import LocalCut
from minirt.protocol.manifest import (
    ChannelData,
    InFlightRef,
    Reference,
    SinkHandles,
    SnapshotRef,
    SubtaskStats,
)
from minirt.protocol.source_offsets import SourceOffsets
from minirt.protocol.stored_watermarks import SubtaskWatermarks
from minirt.protocol.trace import SubtaskTrace, TraceEvent
from minirt.state.sections import Section, section_bytes


class SnapshotWriter(Protocol):
    """Where snapshots go; in jobs a CheckpointStorage."""

    def write_snapshot(
        self,
        checkpoint_id: int,
        generation: int,
        vertex: int,
        subtask: int,
        sections: Mapping[str, bytes],
        references: Sequence[Reference] = (),
    ) -> SnapshotRef:
        """Store the sections, durable on return; raises StorageError."""

    def write_in_flight(
        self,
        checkpoint_id: int,
        generation: int,
        vertex: int,
        subtask: int,
        channels: Sequence[tuple[ChannelData, Iterable[bytes]]],
    ) -> InFlightRef:
        """Store in-flight data, durable on return; raises StorageError.

        The data of each channel comes in chunks, and may be iterated over several times.
        """


class SnapshotStorage(SnapshotWriter, Protocol):
    """Stores snapshots alone, or several together."""

    def together(self) -> AbstractContextManager[SnapshotWriter]:
        """A writer whose snapshots all are durable once the body is over; raises StorageError."""


Written = tuple[SnapshotRef | None, InFlightRef | None]
"""Where state and in-flight data are; None for what there is none of."""

SnapshotResult = SnapshotAcknowledged | SnapshotDeclined


@dataclass(frozen=True, slots=True)
class SnapshotUpload:
    """All of a snapshot that is left to do once its synchronous part is over, by `store_snapshots`."""

    generation: int
    checkpoint_id: int
    subtask: SubtaskId
    name: str
    sections: Mapping[str, Section] | None
    """None if the state is stored already, as a local snapshot, and a line needs what is in flight."""
    watermarks: SubtaskWatermarks
    offsets: SourceOffsets | None
    taken_at: float
    """When the synchronous part was over, by the monotonic clock."""
    references: Sequence[Reference] = ()
    in_flight: Sequence[tuple[ChannelData, Iterable[bytes]]] = ()
    prepared: Sequence[tuple[str, int, Prepared]] = ()
    """Sink uid, the checkpoint it was prepared for, and the output."""
    start_delay_s: float = 0.0
    alignment_s: float = 0.0
    sync_s: float = 0.0
    processed_bytes: int = 0
    switches: tuple[Switch, ...] = ()
    trace: SubtaskTrace | None = None
    """What happened so far, if anybody wants to know."""
    local: LocalCut | None = None
    """Where it was taken, if that was by the clock of the subtask."""

    def without_state(self) -> SnapshotUpload:
        """What is left of it once its checkpoint was given up: the output of its sink."""
        sections = None if self.sections is None else dict[str, Section]()
        return replace(self, sections=sections, references=(), in_flight=())

    def finish_output(self) -> tuple[SinkHandles, ...]:
        """Make the output of sinks durable; what is to be committed of it. Raises UserCodeError."""
        for uid, _, output in self.prepared:
            with Reaching(f"sink {uid}", "could not make its output durable"):
                if output.finish is not None:
                    output.finish()
        return tuple(
            SinkHandles(uid, checkpoint_id, self.subtask.index, tuple(output.handles))
            for uid, checkpoint_id, output in self.prepared
            if output.handles
        )

    def write(self, writer: SnapshotWriter, given_up: GivenUp) -> Written:
        """Give state and in-flight data to the writer, the latter unless given up. Raises StorageError."""
        ref, in_flight = None, None
        place = (self.checkpoint_id, self.generation, self.subtask.vertex, self.subtask.index)
        if self.sections is not None:
            made = {name: section_bytes(each) for name, each in self.sections.items()}
            ref = writer.write_snapshot(*place, made, self.references)
        if self.in_flight and not given_up(self):
            in_flight = writer.write_in_flight(*place, self.in_flight)
        return ref, in_flight

    def acknowledged(
        self, handles: tuple[SinkHandles, ...], written: Written, began_at: float, stored_at: float
    ) -> SnapshotAcknowledged:
        """All is durable; it was begun and done at these times of the monotonic clock."""
        ref, in_flight = written
        stats = self._stats(stored_at - self.taken_at, ref)
        trace = self.trace
        if trace is not None:
            trace = trace.and_then(TraceEvent(began_at, "upload"), TraceEvent(stored_at, "stored"))
        return SnapshotAcknowledged(
            self.generation,
            self.checkpoint_id,
            self.subtask,
            ref,
            stats,
            handles,
            in_flight,
            self.watermarks,
            self.offsets,
            trace,
            self.local,
            of_line=self.sections is None,
        )

    def declined(self, error: str | None, handles: tuple[SinkHandles, ...]) -> SnapshotDeclined:
        """It was not stored, for this reason; without one, as nobody wants it any more."""
        place = (self.generation, self.checkpoint_id, self.subtask)
        return SnapshotDeclined(*place, error, handles, self.local)

    def _stats(self, async_s: float, ref: SnapshotRef | None) -> SubtaskStats:
        return SubtaskStats(
            vertex=self.subtask.vertex,
            subtask=self.subtask.index,
            name=self.name,
            start_delay_s=self.start_delay_s,
            alignment_s=self.alignment_s,
            sync_s=self.sync_s,
            async_s=max(0.0, async_s),
            acknowledged_after_s=0.0,
            state_bytes=0 if ref is None else ref.bytes,
            in_flight_bytes=sum(channel.bytes for channel, _ in self.in_flight),
            processed_bytes=self.processed_bytes,
            unaligned=bool(self.switches),
            switches=self.switches,
        )


GivenUp = Callable[[SnapshotUpload], bool]
"""Whether nobody wants the checkpoint any more: then only sink output is kept."""


def store_snapshots(
    taken: Sequence[tuple[Context, SnapshotUpload]],
    storage: SnapshotStorage | None,
    monotonic: Callable[[], float],
    given_up: GivenUp = lambda upload: False,
) -> list[SnapshotResult]:
    """Store the parts of one checkpoint, those of several subtasks together; what to tell the coordinator.

    May take long and is called outside the record path; the output of sinks is made durable in the contexts
    that come along. Raises an error that arises then, since those records would be lost, and one that says
    that no storage could hold the state: the worker has failed. An error of the storage only declines the
    checkpoint, for all of them: what becomes of one part in a file becomes of all.
    """
    began_at = monotonic()
    finished = [(upload, context.run(upload.finish_output)) for context, upload in taken]
    wanted = [upload for upload, _ in finished if not given_up(upload)]
    written: dict[SubtaskId, Written] = {}
    error: str | None = None
    try:
        with _writer(storage, len(wanted)) as writer:
            for upload in wanted:
                stores = (None, None) if writer is None else upload.write(writer, given_up)
                written[upload.subtask] = stores
    except StorageError as failed:
        error, written = str(failed), {}
    stored_at = monotonic()
    return [
        upload.acknowledged(handles, written[upload.subtask], began_at, stored_at)
        if upload.subtask in written
        else upload.declined(error, handles)
        for upload, handles in finished
    ]


def store_snapshot(
    upload: SnapshotUpload, storage: SnapshotStorage | None, monotonic: Callable[[], float]
) -> SnapshotResult:
    """As `store_snapshots`, for one subtask."""
    [result] = store_snapshots([(copy_context(), upload)], storage, monotonic)
    return result


def _writer(
    storage: SnapshotStorage | None, count: int
) -> AbstractContextManager[SnapshotWriter | None]:
    return nullcontext(storage) if storage is None or count <= 1 else storage.together()
