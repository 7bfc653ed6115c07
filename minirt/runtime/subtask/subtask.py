"""A running subtask: takes elements from its input in slices and carries out what the protocol orders.

It knows no socket, process or thread: what it needs of the world is in its `Ports`. The same class
runs in worker processes, in the inline runner and in the simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Protocol

from minirt.data.batch import Columns
from minirt.errors import ProtocolError
from minirt.monitoring.logs import LOG_FIELDS, log_fields
from minirt.operators.common.base import CoroutineStart, Step, Wait
from minirt.protocol.barriers import CheckpointMode
from minirt.protocol.drift import Progress
from minirt.protocol.ids import SubtaskId
from minirt.protocol.local_pace import LocalSnapshots
from minirt.protocol.subtask_commands import (
    AbortCheckpoint,
    DrainSources,
    LimitDrift,
    ResumeSources,
    StoreSlices,
    SubtaskCommand,
    TriggerCheckpoint,
)
from minirt.protocol.watermarks import MAX_WATERMARK
from minirt.runtime.channels.frames import Frame
from minirt.runtime.channels.latency_marker import LatencyMarker
from minirt.runtime.input.elements import Advance, Data, Due, Element, End, Ended, Reached
from minirt.runtime.input.input import InWork
from minirt.runtime.subtask.checkpointing import SnapshotPorts, SubtaskCheckpoints
from minirt.runtime.subtask.local_snapshots import WantedLine
from minirt.runtime.subtask.pacer import Pacer, RoomPacer
from minirt.runtime.subtask.parts import SubtaskParts
from minirt.runtime.subtask.snapshot import SnapshotResult


class Ports(SnapshotPorts, Protocol):
    """What a subtask asks of the world."""

    def drained(self, subtask: SubtaskId) -> None:
        """Tell the coordinator that all input has been processed."""

    def caught_up(self, subtask: SubtaskId) -> None:
        """Tell the coordinator that a subtask which came back has done again what others have seen."""

    def progressed(self, subtask: SubtaskId, progress: Progress) -> None:
        """Tell the coordinator how far a source in a drift group is."""

    def wake(self, subtask: SubtaskId) -> None:
        """Look at the subtask: it has mail. May be called from any thread."""

    def run_beside(self, call: Callable[[], None]) -> None:
        """Have a call made beside the record path. What it raises fails the worker."""

    def run_async(self, start: CoroutineStart) -> None:
        """Have a coroutine run in an event loop beside the record path. What it raises fails the worker."""


class Subtask:
    """One subtask. Everything it does happens inside the calls that its host makes."""

    def __init__(
        self,
        parts: SubtaskParts,
        modes: Mapping[str, CheckpointMode],
        pacer: Pacer,
        ports: Ports,
        local: LocalSnapshots | None = None,
    ) -> None:
        self.id = parts.identity.id
        self.name = parts.identity.name
        self.metrics = parts.metrics
        self.outputs = parts.outputs
        self.chain = parts.chain
        self.input = parts.input
        self.drained = False
        self.changed: Callable[[], None] = _nothing
        """Called when something has happened to it, so that it may have something to do."""
        self._members = parts.members
        self._pacer = pacer
        self._room_pacer = RoomPacer()
        self._ports = ports
        self._work: list[Iterator[Step]] = []
        """Work of several steps. The last one goes on; it may have come while the one before waits."""
        self._mail_work: Iterator[Step] | None = None
        """The newest of them that is about mail: it needs no room in the chain, but makes it."""
        self._waiting = False
        """Whether the last one waits for mail."""
        self._ended = False
        """Whether the input gives nothing but barriers from here on."""
        self.chain.on_time_passed = self._on_time_passed
        self._log_fields = {"operator": parts.identity.head, "subtask": self.id.index}
        self._pause_behind: int | None = None
        """The checkpoint behind whose snapshot a source is to wait, for the coordinator to resume it."""
        self._checkpoints = SubtaskCheckpoints(parts, modes, ports, local)

    # What the host asks.

    @property
    def runnable(self) -> bool:
        """Whether a slice would get anything done now."""
        return self.has_input and not self.outputs.full

    @property
    def has_input(self) -> bool:
        if self._paused:
            return False
        if self._has_mail:
            return True
        if self._held:
            return self._ended and self.input.has_input
        if self._work or self.input.has_input:
            return True
        return self._is_due

    @property
    def wake_at(self) -> float | None:
        """When the subtask has something to do even if nothing arrives, by the monotonic clock."""
        times = [self.timer_at, None if self.outputs.full else self._clock_wake_at]
        return min((at for at in times if at is not None), default=None)

    @property
    def timer_at(self) -> float | None:
        """When `on_time` has something to do, by the monotonic clock."""
        flush_at = 0.0 if self._spare and self.outputs.wanted else self.outputs.flush_at
        times = [self._checkpoints.timer_at, flush_at]
        return min((at for at in times if at is not None), default=None)

    @property
    def _spare(self) -> bool:
        """Whether buffers that somebody waits for should leave: nothing else is to be done here."""
        return self.outputs.on_demand and not self.runnable

    @property
    def _clock_wake_at(self) -> float | None:
        if self._paused or self._held:
            return None
        wakes = [self._due_at, self.input.wake_at]
        return min((at for at in wakes if at is not None), default=None)

    @property
    def _due_at(self) -> float | None:
        """When operators have something to do by the clock."""
        return None if self.input.tells_due else self.chain.due_at

    @property
    def _is_due(self) -> bool:
        due_at = self._due_at
        return due_at is not None and due_at <= self._ports.clock.monotonic()

    @property
    def _held(self) -> bool:
        """Whether only mail lets it go on: work waits for it, or there is no room for the next record.

        Barriers are taken all the same, unless records that were polled lie ahead of them.
        """
        if self._waiting:
            return True
        if self._work:
            return self._work[-1] is not self._mail_work and self.chain.room(0) == 0
        work = self.input.in_work
        return work is not None and self.chain.room(work.data.place) == 0

    @property
    def _has_mail(self) -> bool:
        """Mail makes an operator emit: that belongs behind restored records that go to those behind it."""
        return self.chain.takes_mail and self.chain.has_mail(self.input.restored_place)

    # What the host tells.

    def on_frame(self, channel: int, frame: Frame) -> None:
        """A frame has arrived from the wire."""
        self.input.put(channel, frame)
        self._checkpoints.on_frame(channel, frame)
        self.changed()

    def on_sender_back(self, channel: int, number: int, elements: int, had: int) -> None:
        """See `LocalLog.on_sender_back`."""
        self._checkpoints.on_sender_back(channel, number, elements, had)
        self.changed()

    def obey(self, command: SubtaskCommand) -> None:
        """Do what the coordinator orders."""
        match command:
            case TriggerCheckpoint(barrier=barrier, pause=pause):
                if pause:
                    self._pause_behind = barrier.checkpoint_id
                self._checkpoints.on_trigger(barrier)
            case ResumeSources():
                self._pause_behind = None
            case DrainSources():
                self.input.drain()
            case LimitDrift(group=group, limit_ms=limit_ms):
                self.input.limit_drift(group, limit_ms)
            case StoreSlices(checkpoint_id=checkpoint_id, line=numbers, processed=processed):
                self.outputs.forget(processed)
                self._checkpoints.on_line(WantedLine(checkpoint_id, numbers))
            case AbortCheckpoint(checkpoint_id=checkpoint_id, spared=spared):
                self._checkpoints.on_abort(checkpoint_id, spared)
            case _:
                raise ProtocolError(f"{self.name} does not know the command {command}")
        self.changed()

    def on_uploaded(self, result: SnapshotResult) -> None:
        """A snapshot is durable, or will never be."""
        self._checkpoints.on_uploaded(result)
        self.changed()

    def on_time(self) -> None:
        """Look at the clock: timers of the mode, local snapshots, buffers that have waited long enough."""
        self._checkpoints.on_time()
        self.outputs.flush_due(self._ports.clock.monotonic())
        if self._spare:
            self.outputs.flush_wanted()

    def run_slice(self) -> None:
        """Work for about one slice, or until input or room for output runs out.

        It also ends behind a snapshot, a watermark or the end: others wait for what these send, so it
        leaves before the next call of a function of the user, which may take long. A barrier that leads to
        nothing yet ends no slice: with one in each of many channels, that would leave no time for records.
        """
        token = LOG_FIELDS.set(self._log_fields)
        self.outputs.begin_slice(self._ports.clock.monotonic())
        try:
            self._work_on()
            if self._spare:
                self.outputs.flush_wanted()
        finally:
            LOG_FIELDS.reset(token)

    def close(self) -> None:
        with log_fields(**self._log_fields):
            self._members.close()

    # How it works.

    def _work_on(self) -> None:
        self._pacer.begin()
        fill = self.outputs.fill
        while fill < 1 and not self._paused:
            processed, columns, work = 0, False, self.input.in_work
            held = self._held
            if (held or not self._work) and self._has_mail:
                self._take_mail()
            elif held:
                if not self._ended or not self._take_barrier():
                    return
            elif self._work:
                if self._step():
                    return
            elif work is not None:
                columns = isinstance(work.data.batch, Columns)
                processed = self._process_piece(work)
            elif not self._begin_next():
                return
            fill = self.outputs.fill
            self._room_pacer.done(processed, fill)
            if self._pacer.done(processed, columns=columns):
                return

    def _take_mail(self) -> None:
        self._waiting = False
        work = self.chain.on_mail(self.input.restored_place)
        if work is not None:
            self._mail_work = work
            self._begin_work(work)

    def _take_barrier(self) -> bool:
        """Whether there was one: at the end of input, barriers do not wait for what the chain waits for."""
        element = self.input.poll()
        if element is None:
            return False
        self._begin(element)
        return True

    def _begin_next(self) -> bool:
        """Whether there is anything to go on with in this slice."""
        if self._is_due:
            place = self.chain.due_place
            self.input.on_due(place)
            self._begin_work(self.chain.on_due(place))
            return True
        element = self.input.poll()
        if element is None:
            return False
        cut_id = self._checkpoints.cut_id
        self._begin(element)
        return self._checkpoints.cut_id == cut_id

    def _begin(self, element: Element) -> None:
        match element:
            case Data():
                pass  # It is the batch in work of the input by now.
            case Advance():
                self._begin_work(self._advance(element))
            case Reached(channel, barrier):
                self._checkpoints.on_reached(channel, barrier)
            case Ended(channel):
                self._checkpoints.on_ended(channel)
            case Due(place):
                self._begin_work(self.chain.on_due(place))
            case LatencyMarker():
                self._pass_on(element)
            case End():
                self._begin_work(self._finish_input())

    @property
    def _paused(self) -> bool:
        """In-flight data that was restored into a source may have to be consumed ahead of its snapshot."""
        behind = self._pause_behind
        if behind is None:
            return self._checkpoints.full
        return self._checkpoints.cut_id >= behind or self._checkpoints.full

    def _begin_work(self, work: Iterator[Step] | None) -> None:
        if work is not None:
            self._work.append(work)

    def _process_piece(self, work: InWork) -> int:
        data = work.data
        piece = self._pacer.piece(columns=isinstance(data.batch, Columns))
        piece = max(piece, self.chain.least_piece)
        count = min(work.left, piece, self._room_pacer.piece)
        room = self.chain.room(data.place)
        if room is not None:
            count = min(count, room)
        if self.input.piece_records is not None:
            count = min(work.left, self.input.piece_records)
        self.metrics.records_in += count
        self.chain.process(work.piece(count), data.input_index, data.place)
        self.input.consumed(count)
        return count

    def _step(self) -> bool:
        """Take one step of the work; returns whether it was the last one.

        Its time says nothing about that of a record: a fast timer must not make pieces larger.
        """
        try:
            self._waiting = next(self._work[-1]) is Wait.FOR_MAIL
        except StopIteration:
            self._work.pop()
            return True
        return False

    def _pass_on(self, marker: LatencyMarker) -> None:
        """No operator sees a latency marker: it goes past the chain, behind what that has emitted."""
        if not self.input.is_source:
            self.metrics.note_latency(
                marker.source, self._ports.clock.monotonic() - marker.emitted_at
            )
        self.outputs.latency(marker)

    def _advance(self, advance: Advance) -> Iterator[Step]:
        yield from self.chain.pass_time(advance.watermark, advance.idle)

    def _on_time_passed(
        self, watermark: int | None, idle: bool | None, handed_on: Collection[str | None]
    ) -> None:
        if watermark is not None:
            self.metrics.watermark = self.chain.watermark
            self.outputs.watermark(watermark, handed_on)
        if idle is not None:
            self.outputs.idle(idle, handed_on)

    def _finish_input(self) -> Iterator[Step]:
        self.input.on_end()
        self._ended = True
        yield from self.chain.on_end()
        self.metrics.watermark = MAX_WATERMARK
        self.outputs.end()
        self.drained = True
        self._ports.drained(self.id)


def _nothing() -> None:
    return None
