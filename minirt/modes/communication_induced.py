"""Communication induced: as uncoordinated, and a mark with a higher index forces a snapshot."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from minirt.modes.uncoordinated import Uncoordinated
from minirt.protocol.local_pace import LocalSnapshots


@dataclass(frozen=True)
class CommunicationInduced(Uncoordinated):
    """Exactly once, as uncoordinated is, with snapshots that are forced so that none is useless.

    Each snapshot has an index, one above that of the last one of its subtask, and its marks carry it. A
    mark whose index is above that of the subtask it comes to forces a snapshot with that index, before
    anything behind it is processed. So the snapshots of an index fit together. In a job records never
    flow in a circle, and no snapshot of `uncoordinated` is useless either: this mode is here to show what
    forced snapshots cost. See the comparison of protocols in the documentation.

    Source: D. Briatico, A. Ciuffoletti, L. Simoncini, "A Distributed Domino-Effect Free Recovery
    Algorithm", 1984. Channels keep the order, so an index that all records behind a mark share is in the
    mark and not in each record.
    """

    name: ClassVar[str] = "communication_induced"

    def local_snapshots(self, interval_s: float) -> LocalSnapshots:
        return replace(super().local_snapshots(interval_s), induced=True)
