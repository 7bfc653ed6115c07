"""The watermark of a subtask with several inputs: the least of its active channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MAX_WATERMARK = 2**63 - 1
"""The watermark at the end of input: everything is older."""


@dataclass(frozen=True, slots=True)
class WatermarkChange:
    """What to tell the operators and the outputs; None stands for no change."""

    watermark: int | None = None
    idle: bool | None = None


NO_CHANGE = WatermarkChange()


class WatermarkValve:
    """Combines the watermarks of channels. It never goes back.

    Event time is as far as the least of the active channels, once each of them has brought a watermark.
    Channels that are idle or have ended hold nothing up. While none is active and any is still open, event
    time is as far as any channel has brought it. So it does not matter who turned idle or ended first.
    """

    def __init__(self, channels: int) -> None:
        self._watermarks: list[int | None] = [None] * channels
        self._active = [True] * channels
        self._ended = [False] * channels
        self._emitted: int | None = None
        self._idle = False

    @property
    def watermark(self) -> int | None:
        return self._emitted

    @property
    def idle(self) -> bool:
        """Whether all its channels are, as far as it has said."""
        return self._idle

    @property
    def channels(self) -> tuple[int | None, ...]:
        """The newest watermark of each channel."""
        return tuple(self._watermarks)

    def restore(self, watermark: int | None, channels: Sequence[int | None]) -> None:
        """Go on from an earlier `watermark` and those of the `channels`, all of which count as active."""
        self._emitted = watermark
        self._watermarks = list(channels)

    def go_on_from(self, watermark: int | None, *, idle: bool) -> WatermarkChange:
        """Take this for what it has said so far. Returns what its channels have brought beyond that."""
        self._emitted, self._idle = watermark, idle
        return self._change()

    def on_watermark(self, channel: int, watermark: int) -> WatermarkChange:
        known = self._watermarks[channel]
        if known is None or watermark > known:
            self._watermarks[channel] = watermark
        return self._change()

    def on_idle(self, channel: int) -> WatermarkChange:
        self._active[channel] = False
        return self._change()

    def on_active(self, channel: int) -> WatermarkChange:
        self._active[channel] = True
        return self._change()

    def on_end(self, channel: int) -> WatermarkChange:
        """To be called while other channels still are open: the end of all is the end of event time."""
        self._ended[channel] = True
        return self._change()

    def _change(self) -> WatermarkChange:
        states = zip(self._watermarks, self._active, self._ended, strict=True)
        telling = [watermark for watermark, is_active, ended in states if is_active and not ended]
        idle = not telling
        turned = None if idle == self._idle else idle
        self._idle = idle
        if idle:
            furthest = max((one for one in self._watermarks if one is not None), default=None)
            telling = [furthest]
        known = [watermark for watermark in telling if watermark is not None]
        if not known or len(known) < len(telling):
            return WatermarkChange(idle=turned) if turned is not None else NO_CHANGE
        least = min(known)
        if self._emitted is not None and least <= self._emitted:
            return WatermarkChange(idle=turned) if turned is not None else NO_CHANGE
        self._emitted = least
        return WatermarkChange(least, turned)
