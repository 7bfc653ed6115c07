"""The checkpoints of one subtask: barriers go to the protocol, and what it orders is carried out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from minirt.clock import Clock
from minirt.errors import ProtocolError
from minirt.io.base import Prepared
from minirt.monitoring.logs import log_fields
from minirt.protocol.barrier_handler import BarrierHandler
from minirt.protocol.barriers import (
    TRIGGER_CHANNEL,
    AbortSnapshot,
    Barrier,
    BlockChannel,
    CheckpointMode,
    Command,
    FinishSnapshot,
    OvertakeOutputs,
    ScheduleTimer,
    StartCapture,
    StopCapture,
    TakeSnapshot,
    UnblockChannels,
    WatchOutputs,
)
from minirt.protocol.families import local_id
from minirt.protocol.ids import SubtaskId
from minirt.protocol.job_events import SnapshotDeclined
from minirt.protocol.local_pace import LocalSnapshots
from minirt.protocol.manifest import Reference
from minirt.protocol.source_offsets import SourceOffsets
from minirt.protocol.stored_watermarks import SubtaskWatermarks
from minirt.runtime.channels.frames import Frame, Kind, barrier_of
from minirt.runtime.input.in_flight import Capture
from minirt.runtime.subtask.local_snapshots import LocalLog, WantedLine
from minirt.runtime.subtask.parts import SubtaskParts
from minirt.runtime.subtask.snapshot import SnapshotResult, SnapshotUpload
from minirt.runtime.subtask.taken import Taken
from minirt.runtime.subtask.tracing import Untraced
from minirt.state.sections import Section


class SnapshotPorts(Protocol):
    """What taking snapshots asks of the world."""

    @property
    def clock(self) -> Clock:
        """The clocks of the process."""

    def upload(self, upload: SnapshotUpload) -> None:
        """Have the snapshot stored outside the record path and the coordinator told."""


class SubtaskCheckpoints:
    """Takes the snapshots of one subtask, as its barriers and the modes ask for them."""

    def __init__(
        self,
        parts: SubtaskParts,
        modes: Mapping[str, CheckpointMode],
        ports: SnapshotPorts,
        local: LocalSnapshots | None = None,
    ) -> None:
        self._identity = parts.identity
        self._input = parts.input
        self._members = parts.members
        self._outputs = parts.outputs
        self._tracer = parts.tracer or Untraced()
        self._metrics = parts.metrics
        self._ports = ports
        channels, uncapturable = self._input.channels, self._input.uncapturable
        self._barriers = BarrierHandler(channels, modes, uncapturable)
        self._timers: list[tuple[float, int]] = []
        self._taken: Taken | None = None
        self._local: LocalLog | None = None
        """In a job of the uncoordinated family."""
        if local is not None:
            self._local = LocalLog(
                *(self._identity.id, self._input, self._metrics, local, ports.clock),
                *(parts.fallen_back, parts.repetition),
            )
        self._cut_id = 0
        self._snapshot_id = 0
        """What the last snapshot was taken for, local ones included."""
        self._being_stored: int | None = None
        """What the last one was taken for that was handed to the uploader, until its result has come."""
        self._stored: tuple[int, str] | None = None
        """The last snapshot that was stored in a file: what it was taken for, and the file."""
        self._unsent: list[tuple[str, int, Prepared]] = []
        """Sink output that was prepared for checkpoints which were aborted before their upload."""

    @property
    def cut_id(self) -> int:
        """The checkpoint whose barriers led to a snapshot last; 0 before the first one."""
        return self._cut_id

    @property
    def full(self) -> bool:
        """Whether so much is kept for local snapshots that no further input should be taken."""
        return self._local is not None and self._local.full

    @property
    def timer_at(self) -> float | None:
        """When `on_time` has something to do, by the monotonic clock."""
        first = min((at for at, _ in self._timers), default=None)
        if self._local is None or not self._may_take_local:
            return first
        due_at = self._local.due_at
        return due_at if first is None else min(first, due_at)

    def on_frame(self, channel: int, frame: Frame) -> None:
        """A frame was put into the queue of an input channel."""
        taken = self._taken
        if taken is not None and channel in taken.capture.open_channels and frame.is_data:
            taken.capture.add(self._input.origins[channel], [frame])
        if self._local is not None:
            self._local.on_frame(channel, frame)
            if frame.kind == Kind.MARK:
                self._on_mark(self._local, channel, frame)
        if frame.kind == Kind.BARRIER:
            barrier, now = barrier_of(frame), self._ports.clock.monotonic()
            self._tracer.on_barrier("arrived", channel, barrier, now)
            self._execute(self._barriers.on_arrived(channel, barrier, now, self._metrics.bytes_in))

    def on_trigger(self, barrier: Barrier) -> None:
        """The coordinator starts a checkpoint at this source."""
        now = self._ports.clock.monotonic()
        self._tracer.on_barrier("triggered", TRIGGER_CHANNEL, barrier, now)
        self._execute(self._barriers.on_arrived(TRIGGER_CHANNEL, barrier, now))
        self._execute(self._barriers.on_reached(TRIGGER_CHANNEL, barrier, now))

    def on_reached(self, channel: int, barrier: Barrier) -> None:
        """Everything ahead of the channel's barrier has been processed."""
        now, processed_bytes = self._ports.clock.monotonic(), self._metrics.bytes_in
        self._tracer.on_barrier("reached", channel, barrier, now)
        self._execute(self._barriers.on_reached(channel, barrier, now, processed_bytes))

    def on_ended(self, channel: int) -> None:
        """All records of a channel were processed, and no more will come through it."""
        now, processed_bytes = self._ports.clock.monotonic(), self._metrics.bytes_in
        self._tracer.note("ended", channel)
        self._execute(self._barriers.on_channel_ended(channel, now, processed_bytes))

    def on_abort(self, checkpoint_id: int, spared: Collection[int]) -> None:
        """The coordinator gave a checkpoint up, and older ones but for the `spared`."""
        if self._local is not None:
            self._local.give_up(checkpoint_id)
        self._execute(self._barriers.on_abort(checkpoint_id, spared))
        self._input.drop_barriers(self._barriers.is_over)
        self._outputs.drop_barriers(lambda id: id <= checkpoint_id and id not in spared)

    def on_line(self, line: WantedLine) -> None:
        """The coordinator makes a checkpoint of local snapshots."""
        if self._local is None:
            raise ProtocolError(
                f"{self._identity.name} takes no local snapshots, and is told a line"
            )
        self._local.want(line)
        self._store_slices(self._local)

    def on_sender_back(self, channel: int, number: int, elements: int, had: int) -> None:
        """See `LocalLog.on_sender_back`."""
        assert self._local is not None
        self._local.on_sender_back(channel, number, elements, had)

    def on_uploaded(self, result: SnapshotResult) -> None:
        """A snapshot is durable, or will never be.

        The operators hear of it when the next snapshot is taken, which is when it matters.
        """
        if result.checkpoint_id == self._being_stored:
            self._being_stored = None
        if isinstance(result, SnapshotDeclined):
            if self._local is not None and result.local is not None:
                self._local.on_declined(result.local.number)
        elif result.snapshot is not None and result.snapshot.path is not None:
            self._stored = (result.checkpoint_id, result.snapshot.path)

    def on_time(self) -> None:
        """Look at the clock: timers of the mode, and local snapshots."""
        if self._local is not None:
            self._take_local_if_due(self._local)
        if not self._timers:
            return
        now = self._ports.clock.monotonic()
        due = [checkpoint_id for at, checkpoint_id in self._timers if at <= now]
        self._timers = [(at, id) for at, id in self._timers if at > now]
        for checkpoint_id in due:
            self._tracer.note("timer")
            self._execute(
                self._barriers.on_timer(
                    checkpoint_id, now, self._metrics.bytes_in, self._capture_bytes()
                )
            )

    def _execute(self, commands: Sequence[Command]) -> None:
        asked_for_timer = ended = False
        for command in commands:
            match command:
                case BlockChannel(channel):
                    self._tracer.note("blocked", channel)
                    self._input.block(channel)
                case UnblockChannels():
                    self._tracer.note("unblocked")
                    self._input.unblock_all()
                case ScheduleTimer(checkpoint_id, at):
                    self._timers.append((at, checkpoint_id))
                    asked_for_timer = True
                case TakeSnapshot(barrier, capture, _, overtake):
                    with self._logging(barrier.checkpoint_id):
                        self._take(barrier, capture, overtake)
                case StartCapture(channels):
                    self._current().capture.open_channels = set(channels)
                case StopCapture(channel):
                    self._current().capture.open_channels.discard(channel)
                case WatchOutputs():
                    self._outputs.watch(self._current().barrier, self._on_outputs_passed)
                case OvertakeOutputs():
                    self._overtake_outputs()
                case FinishSnapshot():
                    with self._logging(command.checkpoint_id):
                        self._finish(command)
                    ended = True
                case AbortSnapshot(checkpoint_id):
                    taken = self._taken
                    if taken is not None and taken.barrier.checkpoint_id == checkpoint_id:
                        self._taken = None
                        self._outputs.unwatch()
                    self._drop_timers(checkpoint_id)
                    ended = True
        if ended:
            self._input.drop_barriers(self._barriers.is_over)
        if asked_for_timer:
            self.on_time()  # It may be due already.

    def _logging(self, checkpoint_id: int) -> AbstractContextManager[None]:
        """Log as this subtask: a barrier may come while another one of the process works."""
        identity = self._identity
        return log_fields(
            operator=identity.head, subtask=identity.id.index, checkpoint=checkpoint_id
        )

    def _current(self) -> Taken:
        assert self._taken is not None
        return self._taken

    def _take(self, barrier: Barrier, channels: frozenset[int] | None, overtake: bool) -> None:
        """The synchronous part of a snapshot, with what is queued in `channels`."""
        began_at = self._ports.clock.monotonic()
        if channels is None or not overtake:
            self._outputs.barrier(barrier)
            capture = Capture([])
        else:
            capture = Capture(self._outputs.overtake(barrier))
        self._tracer.step(barrier.checkpoint_id, "sent", capture.overtaken_bytes, began_at)
        if channels is not None:
            for origin, frames in self._input.in_flight(barrier, channels):
                capture.add(origin, frames)
        sections, references = self._snapshot(barrier.checkpoint_id)
        self._cut_id = barrier.checkpoint_id
        if barrier.savepoint:
            self._members.release()
        self._prepare(barrier.checkpoint_id)
        watermarks, offsets = self._watermarks(), self._offsets()
        taken_at = self._ports.clock.monotonic()
        sync_s = max(0.0, taken_at - began_at)
        self._taken = Taken(
            barrier, sections, references, capture, watermarks, offsets, sync_s, taken_at
        )
        self._tracer.step(barrier.checkpoint_id, "snapshot")

    def _snapshot(self, checkpoint_id: int) -> tuple[Mapping[str, Section], Sequence[Reference]]:
        """State, and the older files that it builds on."""
        stored = self._stored
        if stored is not None and stored[0] == self._snapshot_id:
            self._members.on_stored(stored[1])
        self._snapshot_id = checkpoint_id
        return self._members.snapshot(), self._members.references()

    def _prepare(self, checkpoint_id: int) -> None:
        self._unsent += [
            (uid, checkpoint_id, prepared) for uid, prepared in self._members.prepare(checkpoint_id)
        ]

    @property
    def _may_take_local(self) -> bool:
        """Not between a snapshot with barriers and its end: it would be stored ahead of that.

        Nor while the last one is being stored. The next one could not build on it, so it would hold all of
        that once more, and what was not copied yet would be copied at once, while records wait.
        """
        if self._taken is not None or self._being_stored is not None:
            return False
        return self._local is not None and self._local.may_take

    def _take_local_if_due(self, local: LocalLog) -> None:
        if self._may_take_local and local.is_due(self._ports.clock.monotonic()):
            self._take_local(local)

    def _on_mark(self, local: LocalLog, channel: int, mark: Frame) -> None:
        """A line may wait for it. It may also force a snapshot, before all that comes behind it.

        A snapshot that may not be taken now is left out: lines do not depend on it.
        """
        local.on_mark(channel, mark)
        if self._may_take_local and local.is_forced_by(mark):
            self._take_local(local, mark)
        self._store_slices(local)

    def _take_local(self, local: LocalLog, forced_by: Frame | None = None) -> None:
        """Take a snapshot by the clock of the subtask, or as a mark has come; store its state at once."""
        began_at, identity = self._ports.clock.monotonic(), self._identity
        snapshot_id = local_id(identity.generation, local.number + 1)
        with self._logging(snapshot_id):
            overtaken = self._outputs.mark(local.number + 1, local.next_index(forced_by))
            sections, references = self._snapshot(snapshot_id)
            self._prepare(snapshot_id)
            watermarks, offsets = self._watermarks(), self._offsets()
            taken_at = self._ports.clock.monotonic()
            cut = local.add(overtaken, watermarks, offsets, taken_at, forced_by)
            local.on_taken(began_at, taken_at)
        prepared, self._unsent = self._unsent, []
        self._being_stored = snapshot_id
        self._ports.upload(
            SnapshotUpload(
                *self._whose(snapshot_id),
                sections=sections,
                references=references,
                watermarks=watermarks,
                offsets=offsets,
                prepared=prepared,
                sync_s=max(0.0, taken_at - began_at),
                taken_at=taken_at,
                local=cut,
            )
        )

    def _whose(self, checkpoint_id: int) -> tuple[int, int, SubtaskId, str]:
        """What a snapshot for this checkpoint begins with."""
        own = self._identity
        return own.generation, checkpoint_id, own.id, own.name

    def _store_slices(self, local: LocalLog) -> None:
        """Store what a line needs besides a local snapshot, if all of that has come."""
        found = local.slices()
        if found is None:
            return
        line, snapshot, capture = found
        in_flight = capture.channels(self._identity.id.index, self._input.links)
        data, overtaken_bytes = [data for data, _ in in_flight], capture.overtaken_bytes
        self._ports.upload(
            SnapshotUpload(
                *self._whose(line.checkpoint_id),
                sections=None,
                in_flight=in_flight,
                watermarks=snapshot.watermarks,
                offsets=snapshot.offsets,
                taken_at=snapshot.taken_at,
                trace=self._tracer.line(local.part_of(line), data, overtaken_bytes),
            )
        )

    def _watermarks(self) -> SubtaskWatermarks:
        watermark, links = self._input.watermarks()
        identity = self._identity
        return SubtaskWatermarks(identity.head, identity.id.index, watermark, links)

    def _offsets(self) -> SourceOffsets | None:
        offsets = self._input.offsets()
        return None if offsets is None else SourceOffsets(self._identity.head, offsets)

    def _capture_bytes(self) -> int:
        """What barriers would overtake if they did so now."""
        alignment = self._barriers.current
        if alignment is None:
            return 0
        if alignment.snapshot_taken:
            return self._outputs.overtakable_bytes(alignment.barrier)
        ahead = alignment.channels - alignment.reached
        in_flight_bytes = self._input.in_flight_bytes(alignment.barrier, ahead)
        return self._outputs.overtakable_bytes(None) + in_flight_bytes

    def _on_outputs_passed(self) -> None:
        barrier = self._current().barrier
        self._tracer.step(barrier.checkpoint_id, "passed")
        self._execute(self._barriers.on_outputs_passed(barrier.checkpoint_id))

    def _overtake_outputs(self) -> None:
        self._outputs.unwatch()
        taken = self._current()
        taken.capture.overtaken = self._outputs.move_ahead(taken.barrier)
        self._tracer.step(taken.barrier.checkpoint_id, "overtook", taken.capture.overtaken_bytes)

    def _finish(self, command: FinishSnapshot) -> None:
        taken, self._taken = self._current(), None
        in_flight = taken.capture.channels(self._identity.id.index, self._input.links)
        prepared, self._unsent = self._unsent, []
        self._drop_timers(command.checkpoint_id)
        trace = self._tracer.whole(command.checkpoint_id, (data for data, _ in in_flight))
        self._being_stored = command.checkpoint_id
        self._ports.upload(
            SnapshotUpload(
                *self._whose(command.checkpoint_id),
                sections=taken.sections,
                references=taken.references,
                in_flight=in_flight,
                watermarks=taken.watermarks,
                offsets=taken.offsets,
                prepared=prepared,
                start_delay_s=command.start_delay_s,
                alignment_s=command.alignment_s,
                sync_s=taken.sync_s,
                taken_at=taken.taken_at,
                processed_bytes=command.processed_bytes,
                switches=command.switches,
                trace=trace,
            )
        )

    def _drop_timers(self, checkpoint_id: int) -> None:
        self._timers = [(at, id) for at, id in self._timers if id != checkpoint_id]
