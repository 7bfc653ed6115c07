"""Chandy-Lamport: a snapshot at the first barrier that is reached; the other channels are captured."""

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


class ChandyLamport(TakesNoOptions):
    """Exactly once, without blocking a channel and without overtaking: barriers stay in their place.

    The time of a checkpoint grows with what is queued along the slowest way, as each barrier must arrive.
    Of all but the quickest channel the snapshot stores what comes ahead of their barriers.

    Source: Chandy and Lamport, "Distributed Snapshots: Determining Global States of Distributed Systems",
    1985, where a process records its state when it receives the first marker.
    """

    name: ClassVar[str] = "chandy_lamport"
    exactly_once: ClassVar[bool] = True

    def on_arrived(self, alignment: Alignment, channel: int) -> list[Command]:
        return [StopCapture(channel)] if alignment.snapshot_taken else []

    def on_reached(self, alignment: Alignment, channel: int) -> list[Command]:
        if alignment.snapshot_taken:
            return []
        return unaligned_snapshot(alignment, overtake=False) or [BlockChannel(channel)]

    def on_timer(self, alignment: Alignment) -> list[Command]:
        return []
