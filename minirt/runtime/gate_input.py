"""The input of a subtask that reads from channels: frames become elements."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from minirt.data.batch import Batch
from minirt.data.codec import RowCodec, decode_columns
from minirt.errors import ProtocolError
from minirt.graph.execution import Link
from minirt.protocol.barriers import Barrier
from minirt.protocol.stored_watermarks import LinkWatermarks, RestoredWatermarks
from minirt.protocol.watermarks import NO_CHANGE, WatermarkChange, WatermarkValve
from minirt.runtime.channels import InputChannel, InputGate
from minirt.runtime.debloat import Debloater
from minirt.runtime.elements import Advance, Data, Element, End, Origin, Reached
from minirt.runtime.frames import Frame, Kind, barrier_of, watermark_of
from minirt.runtime.metrics import SubtaskMetrics
from minirt.runtime.recovered import RecoveredChannels
from minirt.runtime.spill import SpilledFrame


class GateInput:
    """`origins` and `input_indexes` tell for each channel where it comes from, and which input of the
    operator it feeds. Nothing is read from channels before what was `recovered` is consumed, and that
    not before the watermark that was `restored` is known.
    """

    def __init__(
        self,
        channels: Sequence[InputChannel],
        origins: Sequence[Origin],
        input_indexes: Sequence[int],
        recovered: RecoveredChannels | None,
        restored: RestoredWatermarks | None,
        codec: RowCodec,
        metrics: SubtaskMetrics,
    ) -> None:
        self.gate = InputGate(channels)
        self.origins = origins
        self._recovered = recovered
        self._input_indexes = input_indexes
        self._codec = codec
        self._metrics = metrics
        self._valve = WatermarkValve(len(channels))
        self._first: Advance | None = None
        """The watermark that was restored: it comes before everything else."""
        if restored is not None:
            self._valve.restore(restored.watermark, restored.channels)
            if restored.watermark is not None:
                self._first = Advance(restored.watermark, None)
        self._open = set(range(len(channels)))
        self._debloater: Debloater | None = None
        """Of the channel whose batch is in work."""

    @property
    def has_input(self) -> bool:
        return self._first is not None or self._recovered is not None or self.gate.has_frames

    @property
    def watermark(self) -> int | None:
        """The least of its active channels."""
        return self._valve.watermark

    def watermarks(self, links: Mapping[str, Link]) -> tuple[LinkWatermarks, ...]:
        """Those of all channels; `links` by their keys."""
        by_link: dict[str, list[int | None]] = {}
        for origin, watermark in zip(self.origins, self._valve.channels, strict=True):
            by_link.setdefault(origin.link, []).append(watermark)
        return tuple(
            LinkWatermarks(key, links[key].kind, links[key].senders, tuple(known))
            for key, known in by_link.items()
        )

    def poll(self) -> Element | None:
        """The next element that means anything to the operators; None if no frame may be read."""
        if self._first is not None:
            first, self._first = self._first, None
            return first
        if self._recovered is not None:
            data = self._recovered.next()
            if data is not None:
                return data
            self._recovered = None
            for channel in self.gate.channels:
                channel.resume()
        while (taken := self.gate.take()) is not None:
            element = self._element(*taken)
            if element is not None:
                return element
        return None

    def queued(
        self, overtaking: Barrier, channels: Collection[int]
    ) -> Iterator[tuple[Origin, list[Frame | SpilledFrame]]]:
        """The data that was taken in but not polled: recovered, then ahead of the barrier in channels."""
        if self._recovered is not None:
            yield from self._recovered.remaining()
        for channel in sorted(channels):
            frames = self.gate.channels[channel].frames
            yield self.origins[channel], list(_data_ahead(frames, overtaking))

    def queued_bytes(self, overtaking: Barrier, channels: Collection[int]) -> int:
        """The size of what `queued` gives, or more where recovered records have to be dealt again."""
        queues = (self.gate.channels[channel].frames for channel in channels)
        queued = sum(frame.size for frames in queues for frame in _data_ahead(frames, overtaking))
        return queued + (0 if self._recovered is None else self._recovered.remaining_bytes)

    def consumed(self, records: int) -> None:
        """So many records of the batch in work were processed. It is windows that follow, not credit."""
        if self._debloater is not None:
            self._debloater.processed(records)

    def _element(self, channel: int, frame: Frame) -> Element | None:
        match frame.kind:
            case Kind.ROWS:
                return self._data(channel, frame, self._codec.decode(frame.payload))
            case Kind.COLUMNS:
                return self._data(channel, frame, decode_columns(frame.payload))
            case Kind.WATERMARK:
                return _advance(self._valve.on_watermark(channel, watermark_of(frame)))
            case Kind.IDLE:
                return _advance(self._valve.on_idle(channel))
            case Kind.ACTIVE:
                return _advance(self._valve.on_active(channel))
            case Kind.BARRIER:
                return Reached(channel, barrier_of(frame))
            case Kind.END:
                self._open.discard(channel)
                return _advance(self._valve.on_end(channel)) if self._open else End()
        raise ProtocolError(f"unknown frame kind {frame.kind}")

    def _data(self, channel: int, frame: Frame, batch: Batch) -> Data:
        self._metrics.bytes_in += frame.size
        self._debloater = self.gate.channels[channel].debloater
        if self._debloater is not None:
            self._debloater.begin(frame.size, len(batch))
        return Data(batch, self._input_indexes[channel], self.origins[channel])


def _data_ahead(frames: Iterable[Frame], barrier: Barrier) -> Iterator[Frame]:
    """The data frames of a queue up to the barrier, all of them if it is not there yet."""
    for frame in frames:
        if frame.kind == Kind.BARRIER and barrier_of(frame).checkpoint_id == barrier.checkpoint_id:
            return
        if frame.is_data:
            yield frame


def _advance(change: WatermarkChange) -> Advance | None:
    return None if change == NO_CHANGE else Advance(change.watermark, change.idle)
