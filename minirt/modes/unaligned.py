"""Unaligned: the first barrier overtakes the data queued before it, which joins the snapshot."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from minirt.protocol.barriers import Alignment, Command, StartCapture, StopCapture, TakeSnapshot


class Unaligned:
    """Exactly once, without waiting: the time of a checkpoint does not depend on what is queued.

    Source: Chandy and Lamport, "Distributed Snapshots", 1985, as in Flink's FLIP-76.
    """

    name: ClassVar[str] = "unaligned"
    exactly_once: ClassVar[bool] = True

    def on_arrived(self, alignment: Alignment, channel: int) -> list[Command]:
        if alignment.snapshot_taken:
            return [StopCapture(channel)]
        missing = alignment.channels - alignment.arrived
        return [TakeSnapshot(replace(alignment.barrier, overtook=True)), StartCapture(missing)]

    def on_reached(self, alignment: Alignment, channel: int) -> list[Command]:
        return []

    def on_timer(self, alignment: Alignment) -> list[Command]:
        return []
