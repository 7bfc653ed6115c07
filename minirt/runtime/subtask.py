"""A running subtask: takes elements from its input in slices and carries out what the protocol orders.

It knows no socket, process or thread: what it needs of the world is in its `Ports`. The same class
runs in worker processes, in the inline runner and in the simulator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from minirt.data.batch import Batch
from minirt.data.codec import RowCodec
from minirt.graph.execution import Link, SubtaskId
from minirt.io.base import Prepared
from minirt.protocol.barriers import (
    TRIGGER_CHANNEL,
    AbortSnapshot,
    Barrier,
    BarrierHandler,
    BlockChannel,
    CheckpointMode,
    Command,
    FinishSnapshot,
    ScheduleTimer,
    StartCapture,
    StopCapture,
    TakeSnapshot,
    UnblockChannels,
)
from minirt.protocol.manifest import Reference, SnapshotRef
from minirt.protocol.stored_watermarks import SubtaskWatermarks
from minirt.protocol.watermarks import MAX_WATERMARK
from minirt.runtime.chain import Chain
from minirt.runtime.elements import Advance, Data, Element, End, Origin, Reached
from minirt.runtime.frames import Frame, Kind, barrier_of
from minirt.runtime.gate_input import GateInput
from minirt.runtime.in_flight import Capture, data_frame
from minirt.runtime.metrics import SubtaskMetrics
from minirt.runtime.operators.source import SourceOperator
from minirt.runtime.output import Outputs
from minirt.runtime.pacer import Pacer
from minirt.runtime.snapshot import SnapshotUpload


class Ports(Protocol):
    """What a subtask asks of the world."""

    def now(self) -> float:
        """Seconds since 1970."""

    def upload(self, upload: SnapshotUpload) -> None:
        """Have the snapshot stored outside the record path and the coordinator told."""

    def drained(self, subtask: SubtaskId) -> None:
        """Tell the coordinator that all input has been processed."""


@dataclass(slots=True)
class _Taken:
    """A snapshot whose synchronous part is over, waiting for the last barrier."""

    barrier: Barrier
    sections: Mapping[str, bytes]
    references: Sequence[Reference]
    capture: Capture
    watermarks: SubtaskWatermarks
    sync_s: float


class Subtask:
    """One subtask. Everything it does happens inside the calls that its host makes."""

    def __init__(
        self,
        id: SubtaskId,
        name: str,
        generation: int,
        chain: Chain,
        gate: GateInput | None,
        outputs: Outputs,
        modes: Mapping[str, CheckpointMode],
        pacer: Pacer,
        metrics: SubtaskMetrics,
        codec: RowCodec,
        input_links: Mapping[str, Link],
        ports: Ports,
    ) -> None:
        self.id = id
        self.name = name
        self.metrics = metrics
        self.outputs = outputs
        self.chain = chain
        self.gate = gate
        self.drained = False
        self._generation = generation
        self._input: GateInput | SourceOperator = _input_of(gate, chain)
        self._pacer = pacer
        self._codec = codec
        self._input_links = input_links
        self._ports = ports
        channels = range(len(gate.gate.channels)) if gate is not None else [TRIGGER_CHANNEL]
        self._barriers = BarrierHandler(channels, modes)
        self._timers: list[tuple[float, int]] = []
        self._batch: Batch | None = None
        self._batch_input = 0
        self._batch_origin: Origin | None = None
        self._batch_position = 0
        self._alignment_began = (0, 0)
        """A checkpoint's id, and how many bytes had come in when its first barrier did."""
        self._work: Iterator[None] | None = None
        self._paused = False
        """Whether a source waits behind the savepoint that its job is to end with."""
        self._taken: _Taken | None = None
        self._snapshot_id = 0
        """The checkpoint that the last snapshot was taken for."""
        self._unsent: list[tuple[str, int, Prepared]] = []
        """Sink output that was prepared for checkpoints which were aborted before their upload."""

    # What the host asks.

    @property
    def runnable(self) -> bool:
        """Whether a slice would get anything done now."""
        return self.has_input and not self.outputs.full

    @property
    def has_input(self) -> bool:
        if self._paused:
            return False
        if self._batch is not None or self._work is not None:
            return True
        if self.gate is not None and self.gate.has_input:
            return True
        wake_at = self._clock_wake_at
        return wake_at is not None and wake_at <= self._ports.now()

    @property
    def wake_at(self) -> float | None:
        """When the subtask has something to do even if nothing arrives, in seconds since 1970."""
        times = [self._clock_wake_at, self.outputs.flush_at, *(at for at, _ in self._timers)]
        return min((at for at in times if at is not None), default=None)

    @property
    def _clock_wake_at(self) -> float | None:
        if self._paused:
            return None
        timer = self.chain.head.next_processing_time
        wakes = [None if timer is None else timer / 1000]
        if isinstance(self._input, SourceOperator):
            wakes.append(self._input.wake_at)
        return min((at for at in wakes if at is not None), default=None)

    # What the host tells.

    def on_frame(self, channel: int, frame: Frame) -> None:
        """A frame has arrived from the wire."""
        assert self.gate is not None
        self.gate.gate.put(channel, frame)
        taken = self._taken
        if taken is not None and channel in taken.capture.open_channels and frame.is_data:
            taken.capture.add(self.gate.origins[channel], [frame])
        if frame.kind == Kind.BARRIER:
            self._execute(self._barriers.on_arrived(channel, barrier_of(frame), self._ports.now()))

    def on_trigger(self, barrier: Barrier, *, pause: bool) -> None:
        """The coordinator starts a checkpoint at this source; with `pause` it emits nothing behind it."""
        self._paused = self._paused or pause
        now = self._ports.now()
        self._execute(self._barriers.on_arrived(TRIGGER_CHANNEL, barrier, now))
        self._execute(self._barriers.on_reached(TRIGGER_CHANNEL, barrier, now))

    def resume(self) -> None:
        """The job does not end: this source goes on."""
        self._paused = False

    def drain(self) -> None:
        """This source is to end now."""
        assert isinstance(self._input, SourceOperator)
        self._input.drain()

    def on_abort(self, checkpoint_id: int) -> None:
        """The coordinator gave a checkpoint up."""
        self._execute(self._barriers.on_abort(checkpoint_id))

    def on_stored(self, checkpoint_id: int, snapshot: SnapshotRef) -> None:
        """The snapshot of a checkpoint is durable."""
        if snapshot.path is not None and checkpoint_id == self._snapshot_id:
            self.chain.on_stored(snapshot.path)

    def on_time(self) -> None:
        """Look at the clock: timers of the mode, and buffers that have waited long enough."""
        now = self._ports.now()
        due = [checkpoint_id for at, checkpoint_id in self._timers if at <= now]
        self._timers = [(at, id) for at, id in self._timers if at > now]
        for checkpoint_id in due:
            self._execute(self._barriers.on_timer(checkpoint_id, now))
        self.outputs.flush_due(now)

    def run_slice(self) -> None:
        """Work for about one slice, or until input or room for output runs out."""
        self._pacer.begin()
        while not (self.outputs.full or self._paused):
            if self._work is not None:
                processed = self._step()
            elif self._batch is not None:
                processed = self._process_piece()
            else:
                processed = 0
                if not self._begin_next():
                    return
            if self._pacer.done(processed):
                return

    def close(self) -> None:
        self.chain.close()

    # How it works.

    def _begin_next(self) -> bool:
        timer = self.chain.head.next_processing_time
        if timer is not None and timer / 1000 <= self._ports.now():
            self._work = self.chain.head.on_processing_time(int(self._ports.now() * 1000))
            return True
        element = self._input.poll()
        if element is None:
            return False
        self._begin(element)
        return True

    def _begin(self, element: Element) -> None:
        match element:
            case Data(batch, input_index, origin):
                self._batch, self._batch_position = batch, 0
                self._batch_input, self._batch_origin = input_index, origin
            case Advance():
                self._work = self._advance(element)
            case Reached(channel, barrier):
                self._execute(self._barriers.on_reached(channel, barrier, self._ports.now()))
            case End():
                self._work = self._finish_input()

    def _process_piece(self) -> int:
        batch, start = self._batch, self._batch_position
        assert batch is not None
        stop = min(len(batch), start + self._pacer.piece)
        count = stop - start
        piece = batch if count == len(batch) else batch.slice(start, stop)
        self._batch_position = stop
        if stop == len(batch):
            self._batch = None
        self.metrics.records_in += count
        if self.gate is None:
            self.chain.emit_from_source(piece)
        else:
            self.chain.process(piece, self._batch_input)
        self._input.consumed(count)
        return count

    def _step(self) -> int:
        assert self._work is not None
        try:
            next(self._work)
        except StopIteration:
            self._work = None
        return 1

    def _advance(self, advance: Advance) -> Iterator[None]:
        if advance.watermark is not None:
            yield from self.chain.on_watermark(advance.watermark)
            self.metrics.watermark = advance.watermark
            self.outputs.watermark(advance.watermark)
        if advance.idle is not None:
            self.outputs.idle(advance.idle)

    def _finish_input(self) -> Iterator[None]:
        yield from self._advance(Advance(MAX_WATERMARK, None))
        yield from self.chain.on_end()
        self.outputs.end()
        self.drained = True
        self._ports.drained(self.id)

    def _execute(self, commands: Sequence[Command]) -> None:
        current = self._barriers.current
        if current is not None and current.barrier.checkpoint_id != self._alignment_began[0]:
            self._alignment_began = (current.barrier.checkpoint_id, self.metrics.bytes_in)
        for command in commands:
            match command:
                case BlockChannel(channel):
                    assert self.gate is not None
                    self.gate.gate.block(channel)
                case UnblockChannels():
                    if self.gate is not None:
                        self.gate.gate.unblock_all()
                case ScheduleTimer(checkpoint_id, at):
                    self._timers.append((at, checkpoint_id))
                case TakeSnapshot(barrier):
                    self._take_snapshot(barrier)
                case StartCapture(channels):
                    assert self._taken is not None
                    self._taken.capture.open_channels = channels
                case StopCapture(channel):
                    assert self._taken is not None
                    self._taken.capture.open_channels -= {channel}
                case FinishSnapshot():
                    self._finish_snapshot(command)
                case AbortSnapshot():
                    self._taken = None

    def _take_snapshot(self, barrier: Barrier) -> None:
        began_at = self._ports.now()
        capture = Capture(self.outputs.barrier(barrier))
        sections, references = self.chain.snapshot(), self.chain.references()
        self._snapshot_id = barrier.checkpoint_id
        if barrier.overtook and self.gate is not None:
            self._capture_inputs(capture, self.gate, barrier)
        self._unsent += [
            (uid, barrier.checkpoint_id, prepared)
            for uid, prepared in self.chain.prepare(barrier.checkpoint_id)
        ]
        sync_s = max(0.0, self._ports.now() - began_at)
        self._taken = _Taken(barrier, sections, references, capture, self._watermarks(), sync_s)

    def _watermarks(self) -> SubtaskWatermarks:
        head, gate = self.chain.head.ctx.uid, self.gate
        inputs = () if gate is None else gate.watermarks(self._input_links)
        return SubtaskWatermarks(head, self.id.index, self._input.watermark, inputs)

    def _capture_inputs(self, capture: Capture, gate: GateInput, barrier: Barrier) -> None:
        """What lies before the operators: the unread rest of the batch in work, then the queues."""
        if self._batch is not None and self._batch_origin is not None:
            rest = self._batch.slice(self._batch_position, len(self._batch))
            capture.add(self._batch_origin, [data_frame(rest, self._codec)])
        for origin, frames in gate.queued(barrier):
            capture.add(origin, frames)

    def _finish_snapshot(self, command: FinishSnapshot) -> None:
        taken, self._taken = self._taken, None
        assert taken is not None
        began_id, bytes_before = self._alignment_began
        same = began_id == command.checkpoint_id
        prepared, self._unsent = self._unsent, []
        self._ports.upload(
            SnapshotUpload(
                generation=self._generation,
                checkpoint_id=command.checkpoint_id,
                subtask=self.id,
                name=self.name,
                sections=taken.sections,
                references=taken.references,
                in_flight=taken.capture.channels(self.id.index, self._input_links),
                watermarks=taken.watermarks,
                prepared=prepared,
                start_delay_s=command.start_delay_s,
                alignment_s=command.alignment_s,
                sync_s=taken.sync_s,
                processed_bytes=self.metrics.bytes_in - bytes_before if same else 0,
                unaligned=taken.barrier.overtook,
                finished_at=self._ports.now(),
            )
        )


def _input_of(gate: GateInput | None, chain: Chain) -> GateInput | SourceOperator:
    if gate is not None:
        return gate
    source = chain.source
    assert source is not None
    return source
