"""Channels out of subtasks that may come back alone: both ends number what goes through.

Records have numbers, and the end of input has the one behind the last record. Frames have none, as the
same records may come in others the second time; nor have control frames, which come wherever they belong
between two records.

A sender that has come back does again what it did behind its snapshot, in the same way. What its receiver
has had, it keeps to itself: records by their numbers, and the control frames among them. Those behind the
last of these records the receiver may have had as well: to hear once more how far event time was does no
harm. The numbers go on from those of the snapshot, so nothing changes if the sender comes back again.

A sender may also fall back to a snapshot behind its end. All its input ends once more then, which makes it
end event time and its output again: nothing of that leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from minirt.data.codec import RowCodec, count_records
from minirt.errors import ProtocolError
from minirt.protocol.ids import ChannelId
from minirt.runtime.channels.batches import batch_of, data_frame
from minirt.runtime.channels.channels import InputChannel, OutputChannel
from minirt.runtime.channels.frames import END_FRAME, Frame, Kind, mark_frame
from minirt.runtime.channels.logged import CountedInput, LoggedOutput
from minirt.runtime.channels.spill import SpilledFrame


class Repetition:
    """What a subtask does again that others have seen, over all its channels; `on_over` hears its end."""

    def __init__(self, on_over: Callable[[], None]) -> None:
        self.channels: list[NumberedOutput] = []
        self._behind: set[Hashable] = set()
        self._on_over = on_over

    @property
    def is_over(self) -> bool:
        return not self._behind

    @property
    def sent(self) -> tuple[tuple[ChannelId, int], ...]:
        """By channel, how many elements were put into it in all lives of the subtask."""
        return tuple((channel.id, channel.sent) for channel in self.channels)

    @property
    def ended(self) -> bool:
        """Whether the end was put into all channels, in whatever life."""
        return bool(self.channels) and all(channel.ended for channel in self.channels)

    def begin(self, what: Hashable) -> None:
        """It lasts until this has ended: a channel that goes out, or the order of those that come in."""
        self._behind.add(what)

    def end(self, what: Hashable) -> None:
        """The channel has come to what its receiver has not had, or the order is free."""
        self._behind.remove(what)
        if not self._behind:
            for each in self.channels:
                each.changed()
            self._on_over()


class NumberedOutput(OutputChannel):
    """The sending end. `sent` is how many elements were put into it in all lives of its subtask."""

    def __init__(self, *args: Any, id: ChannelId, codec: RowCodec, repetition: Repetition) -> None:
        super().__init__(*args)
        self._number(id, codec, repetition)

    def _number(self, id: ChannelId, codec: RowCodec, repetition: Repetition) -> None:
        self.id = id
        self.sent = 0
        self.ended = False
        """Whether the last of them was the end."""
        self._codec = codec
        self._repetition = repetition
        repetition.channels.append(self)
        self._had = 0
        """How many elements the receiver has had."""

    def begin_at(self, sent: int, had: int, mark: int, *, ended: bool = False) -> None:
        """Go on behind so many elements and the snapshot of this number, of what the receiver has had.

        `ended` says that the last of these elements was the end.
        """
        self.sent, self._had, self.ended = sent, had, ended
        if sent < had:
            self._repetition.begin(self.id)

    @property
    def fill(self) -> float:
        """What is done again must not wait for room: it had room before, and nobody else goes on for it."""
        return super().fill if self._repetition.is_over else 0.0

    def put(self, frame: Frame | SpilledFrame) -> Frame | SpilledFrame:
        if self.ended and frame.kind != Kind.BARRIER:
            return self._put_behind_end(frame)
        self.ended = self.ended or frame.kind == Kind.END
        first = self.sent
        self.sent += _elements(frame)
        if first >= self._had:
            return super().put(frame)
        self._keep(frame)
        if self.sent < self._had:
            if frame.kind == Kind.END:
                raise ProtocolError(
                    f"a subtask that came back has sent {self.sent} elements up to its end, and its "
                    f"receiver has had {self._had}: is a function not deterministic?"
                )
            return frame
        if self.sent > self._had:
            super().put(self._without(frame, self._had - first))
        self._repetition.end(self.id)
        return frame

    def _put_behind_end(self, frame: Frame | SpilledFrame) -> Frame | SpilledFrame:
        """The subtask has come back behind its end, and ends again: its receiver has had all of that."""
        if frame.is_data:
            raise ProtocolError(
                "a subtask that came back behind its end sends records: is a function not deterministic?"
            )
        return frame

    def _without(self, frame: Frame | SpilledFrame, records: int) -> Frame:
        """A data frame without its first records."""
        batch = batch_of(frame.load() if isinstance(frame, SpilledFrame) else frame, self._codec)
        return data_frame(batch.slice(records, len(batch)), self._codec)

    def _keep(self, frame: Frame | SpilledFrame) -> None:
        """The receiver has had it, at least in part."""


class NumberedLoggedOutput(NumberedOutput, LoggedOutput):
    """The same where the receiver may come back as well: it may need again what it has had."""

    def __init__(
        self, *args: Any, id: ChannelId, codec: RowCodec, repetition: Repetition, log_bytes: int
    ) -> None:
        LoggedOutput.__init__(self, *args, id=id, codec=codec, log_bytes=log_bytes)
        self._number(id, codec, repetition)

    def begin_at(self, sent: int, had: int, mark: int, *, ended: bool = False) -> None:
        """A receiver that comes back has processed all records at most: the end it gets again."""
        super().begin_at(sent, had, mark, ended=ended)
        end = (END_FRAME,) if ended else ()
        self._log.begin_at(sent - ended, *end, mark_frame(mark))

    def _keep(self, frame: Frame | SpilledFrame) -> None:
        whole = frame.load() if isinstance(frame, SpilledFrame) else frame
        over = self.sent - self._had
        if over > 0 and whole.is_data:
            batch = batch_of(whole, self._codec)
            whole = data_frame(batch.slice(0, len(batch) - over), self._codec)
        self._log.add(whole)


class NumberedInput(InputChannel):
    """The receiving end. `had` is how many elements have arrived."""

    had = 0

    def put(self, frame: Frame) -> None:
        self.had += elements_of(frame)
        super().put(frame)

    def begin_anew(self) -> None:
        """Its sender has come back, and knows of no frame that waits here."""
        self._consumed_bytes = -self.queued_bytes
        self._grant()

    def _grant(self) -> None:
        """While frames of an earlier life wait, the sender of this one hears that none was consumed."""
        self._granted_bytes = self._consumed_bytes
        self._granted_window_bytes = self.window_bytes
        self.grant(max(0, self._consumed_bytes), self.window_bytes)


class NumberedCountedInput(NumberedInput, CountedInput):
    """The same where the receiver may come back as well."""


def elements_of(frame: Frame) -> int:
    """How many elements a frame holds that has arrived: those that come from a wire do not say it."""
    if frame.is_data and not frame.records:
        return count_records(frame.payload)
    return _elements(frame)


def _elements(frame: Frame | SpilledFrame) -> int:
    return frame.records if frame.is_data else int(frame.kind == Kind.END)
