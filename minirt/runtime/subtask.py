"""A running subtask: takes elements from its input in slices and carries out what the protocol orders.

It knows no socket, process or thread: what it needs of the world is in its `Ports`. The same class
runs in worker processes, in the inline runner and in the simulator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from minirt.data.batch import Batch, Columns
from minirt.data.codec import RowCodec
from minirt.graph.execution import Link, SubtaskId
from minirt.monitoring.logs import LOG_FIELDS, log_fields
from minirt.protocol.barriers import Barrier, CheckpointMode
from minirt.protocol.manifest import SnapshotRef
from minirt.protocol.watermarks import MAX_WATERMARK
from minirt.runtime.chain import Chain
from minirt.runtime.checkpoints import SnapshotPorts, SubtaskCheckpoints
from minirt.runtime.elements import Advance, Data, Element, End, Origin, Reached
from minirt.runtime.frames import Frame
from minirt.runtime.gate_input import GateInput
from minirt.runtime.metrics import SubtaskMetrics
from minirt.runtime.operators.source import SourceOperator
from minirt.runtime.output import Outputs
from minirt.runtime.pacer import Pacer, RoomPacer


class Ports(SnapshotPorts, Protocol):
    """What a subtask asks of the world."""

    def drained(self, subtask: SubtaskId) -> None:
        """Tell the coordinator that all input has been processed."""


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
        self._input: GateInput | SourceOperator = _input_of(gate, chain)
        self._pacer = pacer
        self._room_pacer = RoomPacer()
        self._ports = ports
        self._batch: Batch | None = None
        self._batch_input = 0
        self._batch_origin: Origin | None = None
        self._batch_position = 0
        self._work: Iterator[None] | None = None
        self._log_fields = {"operator": chain.head.ctx.uid, "subtask": id.index}
        self._paused = False
        """Whether a source waits behind the savepoint that its job is to end with."""
        self._checkpoints = SubtaskCheckpoints(
            id,
            name,
            generation,
            chain,
            gate,
            outputs,
            modes,
            metrics,
            codec,
            input_links,
            self._unread,
            ports,
        )

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
        times = [self.timer_at, None if self.outputs.full else self._clock_wake_at]
        return min((at for at in times if at is not None), default=None)

    @property
    def timer_at(self) -> float | None:
        """When `on_time` has something to do, in seconds since 1970."""
        times = [self._checkpoints.timer_at, self.outputs.flush_at]
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
        self._checkpoints.on_frame(channel, frame)

    def on_trigger(self, barrier: Barrier, *, pause: bool) -> None:
        """The coordinator starts a checkpoint at this source; with `pause` it emits nothing behind it."""
        self._paused = self._paused or pause
        self._checkpoints.on_trigger(barrier)

    def resume(self) -> None:
        """The job does not end: this source goes on."""
        self._paused = False

    def drain(self) -> None:
        """This source is to end now."""
        assert isinstance(self._input, SourceOperator)
        self._input.drain()

    def on_abort(self, checkpoint_id: int) -> None:
        """The coordinator gave a checkpoint up."""
        self._checkpoints.on_abort(checkpoint_id)

    def on_stored(self, checkpoint_id: int, snapshot: SnapshotRef) -> None:
        """The snapshot of a checkpoint is durable. May be called from any thread."""
        self._checkpoints.on_stored(checkpoint_id, snapshot)

    def on_time(self) -> None:
        """Look at the clock: timers of the mode, and buffers that have waited long enough."""
        self._checkpoints.on_time()
        self.outputs.flush_due(self._ports.now())

    def run_slice(self) -> None:
        """Work for about one slice, or until input or room for output runs out."""
        token = LOG_FIELDS.set(self._log_fields)
        try:
            self._work_on()
        finally:
            LOG_FIELDS.reset(token)

    def close(self) -> None:
        with log_fields(**self._log_fields):
            self.chain.close()

    # How it works.

    def _work_on(self) -> None:
        self._pacer.begin()
        fill = self.outputs.fill
        while fill < 1 and not self._paused:
            processed, columns = 0, isinstance(self._batch, Columns)
            if self._work is not None:
                self._step()
            elif self._batch is not None:
                processed = self._process_piece()
            elif not self._begin_next():
                return
            fill = self.outputs.fill
            self._room_pacer.done(processed, fill)
            if self._pacer.done(processed, columns=columns):
                return

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
                self._checkpoints.on_reached(channel, barrier)
            case End():
                self._work = self._finish_input()

    def _process_piece(self) -> int:
        batch, start = self._batch, self._batch_position
        assert batch is not None
        piece = self._pacer.piece(columns=isinstance(batch, Columns))
        stop = min(len(batch), start + piece, start + self._room_pacer.piece)
        count = stop - start
        records = batch if count == len(batch) else batch.slice(start, stop)
        self._batch_position = stop
        if stop == len(batch):
            self._batch = None
        self.metrics.records_in += count
        if self.gate is None:
            self.chain.emit_from_source(records)
        else:
            self.chain.process(records, self._batch_input)
        self._input.consumed(count)
        return count

    def _step(self) -> None:
        """Its time says nothing about that of a record: a fast timer must not make pieces larger."""
        assert self._work is not None
        try:
            next(self._work)
        except StopIteration:
            self._work = None

    def _advance(self, advance: Advance) -> Iterator[None]:
        if advance.watermark is not None:
            yield from self.chain.on_watermark(advance.watermark)
            self.metrics.watermark = advance.watermark
            self.outputs.watermark(advance.watermark)
        if advance.idle is not None:
            self.outputs.idle(advance.idle)

    def _finish_input(self) -> Iterator[None]:
        yield from self.chain.on_end()
        self.metrics.watermark = MAX_WATERMARK
        self.outputs.end()
        self.drained = True
        self._ports.drained(self.id)

    def _unread(self) -> Data | None:
        if self._batch is None:
            return None
        rest = self._batch.slice(self._batch_position, len(self._batch))
        return Data(rest, self._batch_input, self._batch_origin)


def _input_of(gate: GateInput | None, chain: Chain) -> GateInput | SourceOperator:
    if gate is not None:
        return gate
    source = chain.source
    assert source is not None
    return source
