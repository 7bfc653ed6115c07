"""`forward`: subtask i to subtask i."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from minirt.graph.partitioning import Partitioning, Wiring
from minirt.partitionings.common.dealing import Dealer, DealingSite, ToOne
from minirt.protocol.topology import InFlight, Order


@dataclass(frozen=True, slots=True)
class Forward(Partitioning):
    """Subtask i to subtask i. `ordered`: records of one key keep their order at every restore."""

    name: ClassVar = "forward"
    wiring: ClassVar = Wiring.ONE_TO_ONE
    key: ClassVar = None
    in_flight: ClassVar = InFlight.WHOLE_CHANNELS
    unchained: ClassVar = None

    ordered: bool = True

    def order(self, senders: int, receivers: int) -> Order:
        return Order.STRAIGHT if self.ordered else Order.NONE

    def among(self, site: DealingSite) -> Dealer:
        return ToOne(site)

    def identity(self, max_parallelism: int) -> None:
        return None

    @property
    def unordered(self) -> str:
        return f"{self.name}(ordered=False)"
