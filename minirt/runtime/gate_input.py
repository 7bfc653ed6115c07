"""The input of a subtask that reads from channels: frames become elements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from minirt.data.batch import Batch
from minirt.data.codec import RowCodec, decode_columns
from minirt.errors import ProtocolError
from minirt.protocol.barriers import Barrier
from minirt.protocol.watermarks import NO_CHANGE, WatermarkChange, WatermarkValve
from minirt.runtime.channels import InputChannel, InputGate
from minirt.runtime.debloat import Debloater
from minirt.runtime.elements import Advance, Data, Element, End, Origin, Reached
from minirt.runtime.frames import Frame, Kind, barrier_of, watermark_of
from minirt.runtime.metrics import SubtaskMetrics
from minirt.runtime.recovered import RecoveredChannels


class GateInput:
    """`origins` and `input_indexes` tell for each channel where it comes from, and which input of the
    operator it feeds. Nothing is read from channels before what was `recovered` is consumed.
    """

    def __init__(
        self,
        channels: Sequence[InputChannel],
        origins: Sequence[Origin],
        input_indexes: Sequence[int],
        recovered: RecoveredChannels | None,
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
        self._open = set(range(len(channels)))
        self._debloater: Debloater | None = None
        """Of the channel whose batch is in work."""

    @property
    def has_input(self) -> bool:
        return self._recovered is not None or self.gate.has_frames

    def poll(self) -> Element | None:
        """The next element that means anything to the operators; None if no frame may be read."""
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

    def queued(self, overtaking: Barrier) -> Iterator[tuple[Origin, list[Frame]]]:
        """The data that was taken in but not polled: recovered, then queued ahead of the barrier."""
        if self._recovered is not None:
            yield from self._recovered.remaining()
        for origin, channel in zip(self.origins, self.gate.channels, strict=True):
            yield origin, list(_data_ahead(channel.frames, overtaking))

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
                return None if self._open else End()
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
