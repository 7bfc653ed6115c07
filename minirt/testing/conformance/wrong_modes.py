"""Checkpoint modes that are wrong, each in one subtle way: the kit has to notice.

Each keeps to the letter of the protocol, and most checkpoints in it are consistent cuts.
"""

from __future__ import annotations

from typing import ClassVar

from minirt.modes.aligned import Aligned
from minirt.modes.unaligned import Unaligned
from minirt.protocol.barriers import Alignment, Command, StopCapture, TakeSnapshot


class HastyAligned(Aligned):
    """Does not wait for the last barrier once it has arrived: what is queued ahead of it is lost.

    All is well if nothing is.
    """

    name: ClassVar[str] = "hasty_aligned"

    def on_arrived(self, alignment: Alignment, channel: int) -> list[Command]:
        return self._snapshot(alignment)

    def on_reached(self, alignment: Alignment, channel: int) -> list[Command]:
        return self._snapshot(alignment) or super().on_reached(alignment, channel)

    def _snapshot(self, alignment: Alignment) -> list[Command]:
        waiting = alignment.channels - alignment.reached
        if len(alignment.channels) > 1 and alignment.all_arrived and len(waiting) == 1:
            return [TakeSnapshot(alignment.barrier)]
        return []


class ForgetfulUnaligned(Unaligned):
    """Stops capturing with the third barrier, in the channels of later ones as well.

    All is well with up to three channels, and whenever nothing more comes before the later barriers.
    """

    name: ClassVar[str] = "forgetful_unaligned"

    def on_arrived(self, alignment: Alignment, channel: int) -> list[Command]:
        if len(alignment.arrived) != 3:
            return super().on_arrived(alignment, channel)
        missing = alignment.channels - alignment.arrived
        return [StopCapture(each) for each in (channel, *sorted(missing))]
