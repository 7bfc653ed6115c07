"""Unaligned: the first barrier overtakes the data queued before it, which joins the snapshot."""

from __future__ import annotations

from typing import ClassVar

from minirt.modes.options import TakesNoOptions
from minirt.protocol.barriers import (
    Alignment,
    BlockChannel,
    Command,
    StopCapture,
    unaligned_snapshot,
)

_REASON = "first barrier of an unaligned checkpoint"
_REASON_LATE = "last barrier of the channels that may not be captured"


class Unaligned(TakesNoOptions):
    """Exactly once, without waiting: the time of a checkpoint does not depend on what is queued.

    Except where a channel forbids to capture its data: its barrier is waited for.

    Source: Chandy and Lamport, "Distributed Snapshots", 1985, as in Flink's FLIP-76.
    """

    name: ClassVar[str] = "unaligned"
    exactly_once: ClassVar[bool] = True

    def on_arrived(self, alignment: Alignment, channel: int) -> list[Command]:
        if alignment.snapshot_taken:
            return [StopCapture(channel)]
        return unaligned_snapshot(alignment, _REASON)

    def on_reached(self, alignment: Alignment, channel: int) -> list[Command]:
        if alignment.snapshot_taken:
            return []
        return unaligned_snapshot(alignment, _REASON_LATE) or [BlockChannel(channel)]

    def on_timer(self, alignment: Alignment) -> list[Command]:
        return []
