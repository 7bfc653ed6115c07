"""At least once: channels go on while others are waited for; a restore repeats what they brought."""

from __future__ import annotations

from typing import ClassVar

from minirt.modes.options import TakesNoOptions
from minirt.protocol.barriers import Alignment, Command, TakeSnapshot


class AtLeastOnce(TakesNoOptions):
    """Never blocks. Records that overtook the cut are in the snapshot and are replayed as well."""

    name: ClassVar[str] = "at_least_once"
    exactly_once: ClassVar[bool] = False
    may_overlap: ClassVar[bool] = True

    def on_arrived(self, alignment: Alignment, channel: int) -> list[Command]:
        return []

    def on_reached(self, alignment: Alignment, channel: int) -> list[Command]:
        return [TakeSnapshot(alignment.barrier)] if alignment.all_reached else []

    def on_timer(self, alignment: Alignment) -> list[Command]:
        return []
