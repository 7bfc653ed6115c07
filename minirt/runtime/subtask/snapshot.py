"""The part of a checkpoint that one subtask contributes, from the record path to storage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from minirt.errors import StorageError
from minirt.io.base import Prepared
from minirt.operators.common.base import end_error
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


@dataclass(frozen=True, slots=True)
class SnapshotUpload:
    """Everything of a snapshot that is left to do once its synchronous part is over.

    `run` may take long and is called outside the record path. It returns what to tell the coordinator.
    It raises an error that arises while sink output is made durable, since those records would be lost,
    and one that says that no storage could hold the state: then the subtask has failed. An error of the
    storage only declines this checkpoint.
    """

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

    def run(
        self,
        writer: SnapshotWriter | None,
        monotonic: Callable[[], float],
        given_up: Callable[[], bool] = lambda: False,
    ) -> SnapshotAcknowledged | SnapshotDeclined:
        """`given_up` says whether nobody wants the checkpoint any more: then only sink output is kept."""
        began_at = monotonic()
        for uid, _, output in self.prepared:
            try:
                if output.finish is not None:
                    output.finish()
            except Exception as error:
                raise end_error(
                    f"sink {uid}", "could not make its output durable", error
                ) from error
        handles = tuple(
            SinkHandles(uid, checkpoint_id, self.subtask.index, tuple(output.handles))
            for uid, checkpoint_id, output in self.prepared
            if output.handles
        )
        ref, in_flight = None, None
        if given_up():
            return self._declined(None, handles)
        if writer is not None:
            place = (self.checkpoint_id, self.generation, self.subtask.vertex, self.subtask.index)
            try:
                if self.sections is not None:
                    made = {name: section_bytes(each) for name, each in self.sections.items()}
                    ref = writer.write_snapshot(*place, made, self.references)
                if self.in_flight and not given_up():
                    in_flight = writer.write_in_flight(*place, self.in_flight)
            except StorageError as error:
                return self._declined(str(error), handles)
        stored_at = monotonic()
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

    def _declined(self, error: str | None, handles: tuple[SinkHandles, ...]) -> SnapshotDeclined:
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
