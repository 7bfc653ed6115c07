"""`rebalance`: round robin to all subtasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from minirt.graph.partitioning import Partitioning, Wiring
from minirt.partitionings.common.dealing import Dealer, DealingSite, InTurn
from minirt.protocol.topology import InFlight, Order


@dataclass(frozen=True, slots=True)
class Rebalance(Partitioning):
    """Round robin to all subtasks."""

    name: ClassVar = "rebalance"
    wiring: ClassVar = Wiring.ALL_TO_ALL
    key: ClassVar = None
    in_flight: ClassVar = InFlight.WHOLE_CHANNELS
    unchained: ClassVar = "records are dealt out in turn"

    def order(self, senders: int, receivers: int) -> Order:
        return Order.NONE

    def among(self, site: DealingSite) -> Dealer:
        return InTurn(site)

    def identity(self, max_parallelism: int) -> None:
        return None
