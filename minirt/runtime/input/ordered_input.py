"""The input of a subtask that may have to do again what it did, in the same order.

It writes down what it gives out (`ServiceLog`). After a comeback it gives that out again, piece by piece,
and then goes on as any other input.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from minirt.data.batch import Batch
from minirt.errors import ProtocolError
from minirt.protocol.service_order import (
    Determinant,
    Done,
    Fired,
    InputOver,
    Passed,
    Read,
    Served,
)
from minirt.protocol.stored_watermarks import LinkWatermarks, RestoredWatermarks
from minirt.runtime.channels.frames import Frame
from minirt.runtime.input.elements import Advance, Data, Due, Element, End, Reached
from minirt.runtime.input.gate_input import GateInput, Incoming, advance_of
from minirt.runtime.input.gathering import alike, joined
from minirt.runtime.input.input import InputParts, InWork
from minirt.runtime.input.logged_clock import LoggedClock
from minirt.runtime.input.service_log import ServiceLog


@dataclass(frozen=True, slots=True)
class ServiceOrder:
    """The log of a subtask; if it has come back, what it does `again`, and who hears that this is over.

    `clock` is there if the log has what that shows.
    """

    log: ServiceLog
    again: deque[Determinant] | None
    on_over: Callable[[], None]
    clock: LoggedClock | None = None


@dataclass(slots=True, kw_only=True)
class _LoggedWork(InWork):
    """A batch whose pieces are written down before they are processed."""

    channel: int
    log: ServiceLog
    clock: LoggedClock | None

    def piece(self, count: int) -> Batch:
        self.log.served(self.channel, count)
        if self.clock is not None:
            self.clock.begin()
        return InWork.piece(self, count)


_NOTHING = Advance(None, None)
"""What a frame is that means nothing by itself."""


class OrderedInput(GateInput):
    """Reads channels in any order, or in that of the log."""

    def __init__(
        self,
        incoming: Sequence[Incoming],
        parts: InputParts,
        watermarks: RestoredWatermarks | None,
        order: ServiceOrder,
    ) -> None:
        self._log = order.log
        self._on_over = order.on_over
        self._clock = order.clock
        self._again = order.again
        """What is left of what is done again; None once the order is free."""
        self._passed = Passed(None, False)
        """How far event time was given out of that."""
        self._rest: list[deque[Data]] = [deque() for _ in incoming]
        """By channel, what was taken from it and not given out: its frames may be cut otherwise now."""
        self._left = False
        """Whether there is any of that once the order is free."""
        self._number = 0
        """The channel of the batch in work."""
        self._piece: int | None = None
        super().__init__(incoming, parts, watermarks)

    @property
    def piece_records(self) -> int | None:
        """What is done again is done in the same pieces."""
        return self._piece

    def poll(self) -> Element | None:
        self._piece = None
        if self._clock is not None:
            self._clock.begin()
        element = super().poll()
        if isinstance(element, Data) and self._piece is None and not self._restored.pending:
            self.in_work = _LoggedWork(
                element, channel=self._number, log=self._log, clock=self._clock
            )
        return element

    @property
    def tells_due(self) -> bool:
        return self._clock is not None and self._again is not None

    def on_due(self, place: int) -> None:
        if self._clock is not None:
            self._clock.fire(place)

    def held(self) -> Iterator[Data]:
        for rest in self._rest:
            yield from rest

    def watermarks(self) -> tuple[int | None, tuple[LinkWatermarks, ...]]:
        watermark, links = super().watermarks()
        return watermark if self._again is None else self._passed.watermark, links

    def on_snapshot(self, number: int) -> None:
        valve = self._valve
        state: list[Done] = []
        if valve.watermark is not None or valve.idle:
            state.append(Passed(valve.watermark, valve.idle or None))
        if not self._open:
            state.append(InputOver())
        if self._clock is not None:
            state += self._clock.under_way
        self._log.begin_segment(number, state)

    def on_line(self, number: int) -> None:
        self._log.forget(number)

    @property
    def _has_new(self) -> bool:
        if self._again is None:
            return super()._has_new or self._left
        match self._again[0] if self._again else None:
            case Served(channel, records):
                return bool(self._gate.channels[channel].frames) or self._has_rest(channel, records)
            case InputOver():
                return not self._open or any(self._gate.channels[c].frames for c in self._open)
        return True

    def _poll_new(self) -> Element | None:
        if self._again is not None:
            return self._poll_again(self._again)
        element = self._poll_rest() if self._left else super()._poll_new()
        self._write_down(element)
        return element

    def _write_down(self, element: Element | None) -> None:
        """Ahead of what comes of it; records are written down piece by piece."""
        match element:
            case Advance(watermark, idle):
                self._log.add(Passed(watermark, idle))
            case End():
                self._log.add(InputOver())

    def _data(self, channel: int, frame: Frame, batch: Batch) -> Data:
        self._number = channel
        return super()._data(channel, frame, batch)

    # What is done again.

    def _poll_again(self, again: deque[Determinant]) -> Element | None:
        """The next element of the log; None as long as what it needs has not come again."""
        while again and isinstance(again[0], Read):
            again.popleft()  # Nobody asks for it: what had done so is over.
        if not again:
            return self._go_on_freely()
        element: Element | None
        match again[0]:
            case Served(channel, records):
                element = self._serve(channel, records)
            case Passed(watermark, idle):
                before = self._passed
                self._passed = Passed(
                    before.watermark if watermark is None else watermark,
                    before.idle if idle is None else idle,
                )
                element = Advance(watermark, idle)
            case InputOver():
                element = self._end_all()
            case Fired(place) as fired:
                assert self._clock is not None
                self._clock.fire_again(fired)
                element = Due(place)
        if element is not None and not isinstance(element, Reached):
            again.popleft()
        return element

    def _serve(self, channel: int, records: int) -> Data | Reached | None:
        while not self._has_rest(channel, records):
            element = self._take_from(channel)
            if element is None or isinstance(element, Reached):
                return element
            if isinstance(element, Data) and len(element.batch):
                self._rest[channel].append(element)
            elif channel not in self._open:
                raise self._otherwise(
                    f"channel {channel} has ended before {records} of its records"
                )
        return self._give(channel, records)

    def _give(self, channel: int, records: int) -> Data:
        """The next records of a channel that are here, in one batch."""
        rest, pieces = self._rest[channel], list[Data]()
        while records:
            data = rest.popleft()
            pieces.append(_cut(data, 0, min(records, len(data.batch))))
            if len(data.batch) > records:
                rest.appendleft(_cut(data, records, len(data.batch)))
            records -= len(pieces[-1].batch)
        fit = all(alike(pieces[0], piece) for piece in pieces)
        batch = joined([piece.batch for piece in pieces]) if fit else None
        if batch is None:
            raise self._otherwise(f"a piece of channel {channel} does not fit one batch")
        self._number, self._feeding = channel, self._gate.channels[channel]
        self._piece = len(batch)
        return replace(pieces[0], batch=batch)

    def _end_all(self) -> End | Reached | None:
        for channel, rest in enumerate(self._rest):
            while channel in self._open and not rest:
                element = self._take_from(channel)
                if element is None or isinstance(element, Reached):
                    return element
                if isinstance(element, Data) and len(element.batch):
                    rest.append(element)
            if rest:
                raise self._otherwise(f"channel {channel} has brought more records than before")
        return End()

    def _take_from(self, channel: int) -> Element | None:
        """The next element of one channel; None if nothing has come.

        What frames of control mean is kept for later: what came of them is in the log.
        """
        frame = self._gate.take_from(channel)
        if frame is None:
            return None
        return self._element(channel, frame) or _NOTHING

    def _poll_rest(self) -> Data:
        """What is left of frames once the order is free."""
        channel = next(c for c, rest in enumerate(self._rest) if rest)
        data = self._give(channel, len(self._rest[channel][0].batch))
        self._piece, self._left = None, any(self._rest)
        return data

    def _go_on_freely(self) -> Element | None:
        """All was done again. Event time goes on from where it was then, with what has come since."""
        self._again, self._left = None, any(self._rest)
        self._on_over()
        if not self._open:
            return self._poll_new()
        passed = self._passed
        element = advance_of(self._valve.go_on_from(passed.watermark, idle=bool(passed.idle)))
        if element is None:
            return self._poll_new()
        self._write_down(element)
        return element

    def _has_rest(self, channel: int, records: int) -> bool:
        return sum(len(data.batch) for data in self._rest[channel]) >= records

    def _otherwise(self, what: str) -> ProtocolError:
        return ProtocolError(
            f"a subtask that came back reads again what it has read, and {what}: is a function not "
            "deterministic?"
        )


def _cut(data: Data, start: int, stop: int) -> Data:
    return replace(data, batch=data.batch.slice(start, stop))
