"""The input of a subtask that reads from channels: frames become elements."""

from __future__ import annotations

from collections.abc import Sequence

from minirt.data.codec import RowCodec, decode_columns
from minirt.errors import ProtocolError
from minirt.protocol.watermarks import NO_CHANGE, WatermarkChange, WatermarkValve
from minirt.runtime.channels import InputChannel, InputGate
from minirt.runtime.elements import Advance, Data, Element, End, Reached
from minirt.runtime.frames import Frame, Kind, barrier_of, watermark_of
from minirt.runtime.metrics import SubtaskMetrics


class GateInput:
    """`input_indexes` tells for each channel which input of the operator it feeds."""

    def __init__(
        self,
        channels: Sequence[InputChannel],
        input_indexes: Sequence[int],
        codec: RowCodec,
        metrics: SubtaskMetrics,
    ) -> None:
        self.gate = InputGate(channels)
        self._input_indexes = input_indexes
        self._codec = codec
        self._metrics = metrics
        self._valve = WatermarkValve(len(channels))
        self._open = set(range(len(channels)))

    def poll(self) -> Element | None:
        """The next element that means anything to the operators; None if no frame may be read."""
        while (taken := self.gate.take()) is not None:
            element = self._element(*taken)
            if element is not None:
                return element
        return None

    def consumed(self, records: int) -> None:
        """Channels need no account of what was processed: their credit goes by frames."""

    def _element(self, channel: int, frame: Frame) -> Element | None:
        match frame.kind:
            case Kind.ROWS:
                self._metrics.bytes_in += frame.size
                return Data(self._codec.decode(frame.payload), self._input_indexes[channel])
            case Kind.COLUMNS:
                self._metrics.bytes_in += frame.size
                return Data(decode_columns(frame.payload), self._input_indexes[channel])
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


def _advance(change: WatermarkChange) -> Advance | None:
    return None if change == NO_CHANGE else Advance(change.watermark, change.idle)
