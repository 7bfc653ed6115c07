"""Aligned: each channel waits at its barrier for the others, so nothing is in flight at the cut."""

from __future__ import annotations

from typing import ClassVar

from minirt.modes.options import TakesNoOptions
from minirt.protocol.barriers import Alignment, BlockChannel, Command, TakeSnapshot


class Blocking:
    """What a subtask does in a mode whose barriers wait for each other, and overtake nothing."""

    exactly_once: ClassVar[bool] = True

    def on_arrived(self, alignment: Alignment, channel: int) -> list[Command]:
        return []

    def on_reached(self, alignment: Alignment, channel: int) -> list[Command]:
        if alignment.all_reached:
            return [TakeSnapshot(alignment.barrier)]
        return [BlockChannel(channel)]

    def on_timer(self, alignment: Alignment) -> list[Command]:
        return []


class Aligned(Blocking, TakesNoOptions):
    """Exactly once, by blocking; the time of a checkpoint grows with the data queued before it.

    Source: Carbone et al., "Lightweight Asynchronous Snapshots for Distributed Dataflows", 2015.
    """

    name: ClassVar[str] = "aligned"
    may_overlap: ClassVar[bool] = True
