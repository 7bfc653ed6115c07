"""The buffers of a subtask: records on their way into channels wait there for more, and leave as frames.

A latency marker joins the frame that is being filled, and leaves right behind it: it waits as records do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from minirt.config import Limits
from minirt.data.batch import Columns, Rows
from minirt.data.codec import RowCodec, encode_columns
from minirt.data.errors import UnsupportedRecordError
from minirt.errors import UnsupportedValueError
from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.runtime.channels.channels import OutputChannel
from minirt.runtime.channels.frames import Frame, Kind
from minirt.runtime.channels.spill import SpilledFrame

_FIRST_RECORD_BYTES = 256
"""How large a record is assumed to be before the first one was packed."""


@dataclass(slots=True)
class Outlet:
    """What all buffers of a subtask share.

    `make_room` is called whenever memory has no room for a frame: it lets go what the receivers take, and
    blocks while the channel is overdrawn.
    """

    name: str
    """The name of the subtask, for messages."""
    codec: RowCodec
    limits: Limits
    metrics: SubtaskMetrics
    make_room: Callable[[OutputChannel], None]


class ChannelBuffer:
    """Records on their way into one channel, or into several that get the same.

    It is in `waiting` while it holds records that wait for more, behind those that have waited for longer.
    """

    __slots__ = (
        "_channels",
        "_markers",
        "_outlet",
        "_place",
        "_settled",
        "_waiting",
        "records",
        "threshold",
        "timestamps",
    )

    def __init__(
        self,
        channels: Sequence[OutputChannel],
        outlet: Outlet,
        waiting: dict[ChannelBuffer, float],
        settled: list[int],
        place: int,
    ) -> None:
        """How many rows it holds once it is settled or flushed is at its place in `settled`."""
        self._channels = channels
        self._outlet = outlet
        self._waiting = waiting
        self._settled = settled
        self._place = place
        self.records: list[Any] = []
        self.timestamps: list[int] = []
        self._markers: list[Frame] = []
        """Latency markers, which leave behind the records."""
        self.threshold = max(1, self._frame_bytes // _FIRST_RECORD_BYTES)
        """How many records make a frame, learned from the last one."""

    @property
    def _frame_bytes(self) -> int:
        """How large a frame of rows should be: at most what a queue holds, and less for a small window."""
        queue = min(end.rows.queue_bytes for end in self._channels)
        size = min(self._outlet.limits.frame_bytes, queue)
        return max(
            1, int(min(min(size, end.queue_bytes_max) * end.share for end in self._channels))
        )

    @property
    def column_frame_bytes(self) -> int:
        """How large a frame of columns should be: at most what the sender should use of its queue."""
        room = min(end.queue_bytes_max * end.share for end in self._channels)
        return max(1, int(min(self._outlet.limits.column_frame_bytes, room)))

    @property
    def taken(self) -> bool:
        """Whether all receivers have taken what was sent so far."""
        return all(channel.taken for channel in self._channels)

    def settle(self, since: float) -> None:
        """Send what makes full frames; to be called after records were appended."""
        if len(self.records) >= self.threshold:
            self.flush()
        elif self.records:
            self._waiting.setdefault(self, since)
            self._settled[self._place] = len(self.records)

    def add_marker(self, marker: Frame, since: float) -> None:
        """Have a latency marker leave behind the frame that is being filled."""
        self._markers.append(marker)
        self._waiting.setdefault(self, since)

    def flush(self) -> None:
        """Send all records that are held, in frames of the learned size."""
        start, count = 0, len(self.records)
        while start < count:
            stop = min(count, start + self.threshold)
            whole = start == 0 and stop == count
            records = self.records if whole else self.records[start:stop]
            times = None
            if self.timestamps:
                times = self.timestamps if whole else self.timestamps[start:stop]
            self._send(Rows(records, times))
            start = stop
        self.records.clear()
        self.timestamps.clear()
        self._settled[self._place] = 0
        self._waiting.pop(self, None)
        if self._markers:
            markers, self._markers = self._markers, []
            for marker in markers:
                self.put(marker)

    def send_columns(self, batch: Columns, frame_records: int) -> None:
        """Send columns at once, cut into frames; there must be no rows that are still held."""
        for piece in batch.cut(frame_records):
            self.put(Frame(Kind.COLUMNS, encode_columns(piece), len(piece)))

    def put(self, frame: Frame) -> None:
        outlet = self._outlet
        held: Frame | SpilledFrame = frame
        for channel in self._channels:
            held = channel.put(held)  # Once a frame is on disk, all the channels share it.
            if frame.is_data:
                outlet.metrics.bytes_out += frame.size
                if held is not frame or channel.overdrawn:
                    outlet.make_room(channel)
        if held is not frame:
            outlet.metrics.spilled_bytes += frame.size

    def _send(self, rows: Rows) -> None:
        count = len(rows)
        try:
            payload = self._outlet.codec.encode(rows)
        except UnsupportedRecordError as error:
            raise UnsupportedValueError(f"what {self._outlet.name} emits: {error}") from error
        learned = self._frame_bytes * count // max(1, len(payload))
        self.threshold = max(1, min(self._outlet.limits.frame_records, learned))
        self.put(Frame(Kind.ROWS, payload, count))
