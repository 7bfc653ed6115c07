"""`rescale`: round robin within a block of subtasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from minirt.graph.partitioning import Partitioning, Wiring
from minirt.partitionings.common.dealing import Dealer, DealingSite, InTurn
from minirt.protocol.topology import InFlight, Order


@dataclass(frozen=True, slots=True)
class Rescale(Partitioning):
    """Round robin to the subtasks of one's own block; `ordered` as for Forward, where that is one."""

    name: ClassVar = "rescale"
    wiring: ClassVar = Wiring.POINTWISE
    key: ClassVar = None
    in_flight: ClassVar = InFlight.WHOLE_CHANNELS
    unchained: ClassVar = "records are dealt out in turn"

    ordered: bool = True

    def order(self, senders: int, receivers: int) -> Order:
        return Order.STRAIGHT if self.ordered and senders >= receivers else Order.NONE

    def receivers_of(self, sender: int, senders: int, receivers: int) -> range:
        first = sender * receivers // senders
        return range(first, max(first + 1, (sender + 1) * receivers // senders))

    def among(self, site: DealingSite) -> Dealer:
        return InTurn(site)

    def identity(self, max_parallelism: int) -> None:
        return None

    @property
    def unordered(self) -> str:
        return f"{self.name}(ordered=False)"
