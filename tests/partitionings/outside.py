"""Partitionings of another package: they use nothing of minirt but what the page on writing one shows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from minirt.partitionings import (
    Dealer,
    DealingSite,
    InFlight,
    KeyPartitioning,
    KeySelector,
    Order,
    Partitioning,
    Wiring,
)
from minirt.partitionings.common.dealing import InTurn, ToOne


@dataclass(frozen=True)
class ByRange(KeyPartitioning):
    """Keys between two bounds go to the same subtask; neighbouring ranges to neighbouring ones."""

    name: ClassVar = "range"
    pure: ClassVar = True

    key: KeySelector
    bounds: tuple[int, ...]

    def targets(self, keys: Sequence[Any], receivers: int) -> Sequence[int]:
        ranges = len(self.bounds) + 1
        return [bisect_right(self.bounds, key) * receivers // ranges for key in keys]

    def column_targets(self, columns: Sequence[pa.Array], receivers: int) -> Sequence[int]:
        [column] = columns
        places = np.searchsorted(np.array(self.bounds), column.to_numpy(), side="right")
        targets: Sequence[int] = places * receivers // (len(self.bounds) + 1)
        return targets


@dataclass(frozen=True)
class Mirrored(Partitioning):
    """As `rescale`, but to the block at the other end: subtask 0 sends to the last ones."""

    name: ClassVar = "mirrored"
    wiring: ClassVar = Wiring.POINTWISE
    key: ClassVar = None
    in_flight: ClassVar = InFlight.WHOLE_CHANNELS
    unchained: ClassVar = "records go to the other end"

    ordered: bool = False

    def order(self, senders: int, receivers: int) -> Order:
        return Order.STRAIGHT if self.ordered and senders >= receivers else Order.NONE

    def receivers_of(self, sender: int, senders: int, receivers: int) -> range:
        place = senders - 1 - sender
        first = place * receivers // senders
        return range(first, max(first + 1, (place + 1) * receivers // senders))

    def among(self, site: DealingSite) -> Dealer:
        return InTurn(site)


@dataclass(frozen=True)
class Everywhere(Partitioning):
    """Each subtask gets every record."""

    name: ClassVar = "everywhere"
    wiring: ClassVar = Wiring.ALL_TO_ALL
    key: ClassVar = None
    in_flight: ClassVar = InFlight.ONE_COPY
    unchained: ClassVar = "all get all"

    def order(self, senders: int, receivers: int) -> Order:
        return Order.NONE

    def among(self, site: DealingSite) -> Dealer:
        return ToOne(site)
