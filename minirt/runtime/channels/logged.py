"""Channels into subtasks that may come back alone: the sender keeps what has left, the receiver counts.

The sender keeps frames as they have left, marks and event time among them, until the coordinator says how
many records nobody asks for again. Places are numbers of records: a receiver that comes back has processed
so many of them, which may end within a frame.

While the receiver is away, its sender must not have to wait for it, or others would wait as well. So the
queue may then hold as much as the log may, until the receiver has caught up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from minirt.data.codec import RowCodec
from minirt.errors import ProtocolError
from minirt.protocol.ids import ChannelId
from minirt.runtime.channels.batches import batch_of, data_frame
from minirt.runtime.channels.channels import InputChannel, OutputChannel
from minirt.runtime.channels.frames import Frame, Kind

_EVENT_TIME = {Kind.WATERMARK: "watermark", Kind.IDLE: "activity", Kind.ACTIVE: "activity"}
"""What tells how far event time is, and which kinds make each other out of date."""


class SentLog:
    """What has left through one channel, each with how many records left before it."""

    def __init__(self, codec: RowCodec) -> None:
        self._codec = codec
        self._frames: deque[tuple[int, Frame]] = deque()
        self._sent = 0
        self._forgotten = 0
        self._event_time: dict[str, Frame] = {}
        """How far that was, where the frames begin."""

    def begin_at(self, records: int, *behind: Frame) -> None:
        """The first so many are not known, and lie ahead of these frames of control."""
        self._sent = self._forgotten = records
        for frame in behind:
            self.add(frame)

    def add(self, frame: Frame) -> None:
        """A frame has left.

        Barriers are not kept: whoever comes back has no part in their checkpoint. Nor are latency markers:
        once more, they would tell how long the receiver was away.
        """
        if frame.kind in (Kind.BARRIER, Kind.LATENCY):
            return
        self._frames.append((self._sent, frame))
        if frame.is_data:
            self._sent += frame.records

    def forget(self, records: int) -> None:
        """Nobody asks for the first so many records again."""
        self._forgotten = max(self._forgotten, records)
        while self._frames:
            start, frame = self._frames[0]
            if not _is_before(start, frame, records):
                return
            self._frames.popleft()
            _note(self._event_time, frame)

    def since(self, records: int) -> list[Frame]:
        """All that follows the first so many records, behind how far event time was there.

        Raises ProtocolError for what was forgotten.
        """
        if not self._forgotten <= records <= self._sent:
            raise ProtocolError(
                f"a receiver goes on behind {records} records, and those from {self._forgotten} to "
                f"{self._sent} are known"
            )
        event_time, again = dict(self._event_time), list[Frame]()
        for start, frame in self._frames:
            if _is_before(start, frame, records):
                _note(event_time, frame)
            elif start < records:
                batch = batch_of(frame, self._codec)
                again.append(data_frame(batch.slice(records - start, len(batch)), self._codec))
            else:
                again.append(frame)
        return [*event_time.values(), *again]


def _is_before(start: int, frame: Frame, records: int) -> bool:
    """Whether a frame lies wholly among the first so many records; one of control, ahead of the last."""
    return start + frame.records <= records if frame.is_data else start < records


def _note(event_time: dict[str, Frame], frame: Frame) -> None:
    about = _EVENT_TIME.get(Kind(frame.kind))
    if about is not None:
        event_time.pop(about, None)
        event_time[about] = frame


class LoggedOutput(OutputChannel):
    """The sending end. `log_bytes` is what the queue may hold while the receiver has not caught up."""

    def __init__(self, *args: Any, id: ChannelId, codec: RowCodec, log_bytes: int) -> None:
        super().__init__(*args)
        self._id = id
        self._log = SentLog(codec)
        self._log_bytes = log_bytes
        self._again: deque[Frame] = deque()
        """What the receiver gets once more, ahead of the queue."""
        self._away = False
        self._behind = False
        """Whether the receiver is away, or was and has not caught up."""

    @property
    def fill(self) -> float:
        return self.queued_bytes / self._log_bytes if self._behind else super().fill

    @property
    def _room_bytes(self) -> int:
        return super()._room_bytes + (self._log_bytes if self._behind else 0)

    def poll(self) -> Frame | None:
        if not self._again:
            frame = super().poll()
            if frame is not None:
                self._log.add(frame)
                self._catch_up()
            return frame
        if not self.sendable:
            return None
        again = self._again.popleft()
        if again.is_data:
            self._sent_bytes += again.size
        self._catch_up()
        return again

    @property
    def sendable(self) -> bool:
        if self._away:
            return False
        return self._has_credit(self._again[0]) if self._again else super().sendable

    @property
    def control_is_next(self) -> bool:
        if self._away:
            return False
        return not self._again[0].is_data if self._again else super().control_is_next

    @property
    def taken(self) -> bool:
        return not (self._away or self._again) and super().taken

    def on_credit(self, consumed_bytes: int, window_bytes: int) -> None:
        super().on_credit(consumed_bytes, window_bytes)
        if self._again:
            self.wake()

    def forget(self, processed: Mapping[ChannelId, int]) -> None:
        self._log.forget(processed.get(self._id, 0))

    def park(self) -> None:
        """The receiver is gone and comes back: keep all for it, but barriers, whose checkpoint is over."""
        self._away = self._behind = True
        self.wake = _nobody
        self.drop_barriers(lambda checkpoint_id: True)
        self.changed()

    def resume(self, records: int) -> None:
        """The receiver is back, has processed so many records, and has granted no credit yet."""
        self._again = deque(self._log.since(records))
        self._away = False
        self._sent_bytes = 0
        self.on_credit(0, self._window_bytes_max)

    def _catch_up(self) -> None:
        if self._behind and not self._again and super().fill < 1:
            self._behind = False
            self.changed()


class CountedInput(InputChannel):
    """The receiving end. `records` is how many were processed that have come through the channel."""

    records = 0

    def processed(self, records: int) -> None:
        self.records += records
        super().processed(records)


def _nobody() -> None:
    return None
