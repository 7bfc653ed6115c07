"""The input of a subtask that reads from channels: frames become elements."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from minirt.data.batch import Batch
from minirt.data.codec import decode_columns
from minirt.errors import ProtocolError
from minirt.protocol.barriers import Barrier
from minirt.protocol.stored_watermarks import LinkWatermarks, RestoredWatermarks
from minirt.protocol.watermarks import NO_CHANGE, WatermarkChange, WatermarkValve
from minirt.runtime.channels.channels import InputChannel, InputGate
from minirt.runtime.channels.frames import Frame, Kind, barrier_of, latency_marker_of, watermark_of
from minirt.runtime.channels.logged import CountedInput
from minirt.runtime.channels.queue import Queued
from minirt.runtime.input.elements import Advance, Data, Element, End, Origin, Reached
from minirt.runtime.input.input import ChannelFrames, Input, InputParts


@dataclass(frozen=True, slots=True)
class Incoming:
    """A channel, where it comes from, and which input of the operator it feeds."""

    channel: InputChannel
    origin: Origin
    input_index: int


class GateInput(Input):
    """Reads channels. Their watermarks go on from those that were stored, if `watermarks` are given."""

    def __init__(
        self,
        incoming: Sequence[Incoming],
        parts: InputParts,
        watermarks: RestoredWatermarks | None = None,
    ) -> None:
        super().__init__([each.origin for each in incoming], parts)
        self._gate = InputGate([each.channel for each in incoming])
        self._input_indexes = [each.input_index for each in incoming]
        self._metrics = parts.metrics
        self._valve = WatermarkValve(len(incoming))
        if watermarks is not None:
            self._valve.restore(watermarks.watermark, watermarks.channels)
        self._open = set(range(len(incoming)))
        self._feeding: InputChannel | None = None
        """The channel whose batch is in work."""
        if not parts.restored.pending:
            self._begin()

    def put(self, channel: int, frame: Frame) -> None:
        self._gate.put(channel, frame)

    def block(self, channel: int) -> None:
        self._gate.block(channel)

    def unblock_all(self) -> None:
        self._gate.unblock_all()

    def watermarks(self) -> tuple[int | None, tuple[LinkWatermarks, ...]]:
        """The least of its active channels, and those of all channels."""
        by_link: dict[str, list[int | None]] = {}
        for origin, watermark in zip(self.origins, self._valve.channels, strict=True):
            by_link.setdefault(origin.link, []).append(watermark)
        links = self.links
        return self._valve.watermark, tuple(
            LinkWatermarks.of(key, links[key].kind, links[key].senders, known)
            for key, known in by_link.items()
        )

    def ahead(self, overtaking: Barrier, channels: Collection[int]) -> Iterator[ChannelFrames]:
        for channel in sorted(channels):
            yield self.origins[channel], self._data_ahead(channel, overtaking)

    def ahead_bytes(self, overtaking: Barrier, channels: Collection[int]) -> int:
        queues = (self._gate.channels[channel].frames for channel in channels)
        return sum(frames.bytes_ahead(overtaking.checkpoint_id) for frames in queues)

    def drop_barriers(self, is_over: Callable[[int], bool]) -> None:
        self._gate.drop_barriers(is_over)

    def processed_records(self) -> Sequence[int] | None:
        if self._restored.pending:
            return None
        counted = [end.records for end in self._gate.channels if isinstance(end, CountedInput)]
        return counted if len(counted) == len(self.origins) else None

    def queued_frames(self, channel: int) -> int:
        frames = self._gate.channels[channel].frames
        return len(frames) - frames.barriers

    @property
    def queued_bytes(self) -> int:
        return self._gate.queued_bytes

    @property
    def room_bytes(self) -> int:
        return self._gate.room_bytes

    @property
    def _has_new(self) -> bool:
        return self._gate.has_frames

    def _poll_new(self) -> Element | None:
        """The next element that means anything to the operators; None if no frame may be read."""
        while (taken := self._take()) is not None:
            element = self._element(*taken)
            if element is not None:
                return element
        return None

    def _begin(self) -> None:
        """Begin to read channels: all that was recovered has been consumed."""
        for channel in self._gate.channels:
            channel.resume()

    def _processed(self, records: int) -> None:
        assert self._feeding is not None
        self._feeding.processed(records)

    def _take(self) -> tuple[int, Frame] | None:
        return self._gate.take()

    def _begin_work(self, channel: InputChannel, frame_bytes: int, records: int) -> None:
        self._feeding = channel
        channel.begin(frame_bytes, records)

    def _element(self, channel: int, frame: Frame) -> Element | None:
        match frame.kind:
            case Kind.ROWS:
                return self._data(channel, frame, self._codec.decode(frame.payload))
            case Kind.COLUMNS:
                return self._data(channel, frame, decode_columns(frame.payload, trusted=True))
            case Kind.WATERMARK:
                return advance_of(self._valve.on_watermark(channel, watermark_of(frame)))
            case Kind.IDLE:
                return advance_of(self._valve.on_idle(channel))
            case Kind.ACTIVE:
                return advance_of(self._valve.on_active(channel))
            case Kind.BARRIER:
                return Reached(channel, barrier_of(frame))
            case Kind.LATENCY:
                return latency_marker_of(frame)
            case Kind.END:
                if channel not in self._open:
                    raise ProtocolError(f"channel {channel} has ended twice")
                self._open.remove(channel)
                return advance_of(self._valve.on_end(channel)) if self._open else End()
        raise ProtocolError(f"unknown frame kind {frame.kind}")

    def _data_ahead(self, channel: int, overtaking: Barrier) -> Sequence[Queued]:
        """The data frames of a queue up to the barrier, all of them if it is not there yet."""
        return self._gate.channels[channel].frames.data_ahead(overtaking.checkpoint_id)

    def _data(self, channel: int, frame: Frame, batch: Batch) -> Data:
        self._metrics.bytes_in += frame.size
        self._begin_work(self._gate.channels[channel], frame.size, len(batch))
        return Data(batch, self._input_indexes[channel], self.origins[channel])


def advance_of(change: WatermarkChange) -> Advance | None:
    return None if change == NO_CHANGE else Advance(change.watermark, change.idle)
