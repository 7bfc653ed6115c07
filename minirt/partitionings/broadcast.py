"""`broadcast`: every record to every subtask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from minirt.graph.partitioning import Partitioning, Wiring
from minirt.partitionings.common.dealing import Dealer, DealingSite, ToOne
from minirt.protocol.topology import InFlight, Order


@dataclass(frozen=True, slots=True)
class Broadcast(Partitioning):
    """Every record to every subtask. All receivers share one buffer, so a record is packed once."""

    name: ClassVar = "broadcast"
    wiring: ClassVar = Wiring.ALL_TO_ALL
    key: ClassVar = None
    in_flight: ClassVar = InFlight.ONE_COPY
    unchained: ClassVar = "every subtask gets every record"

    captured: bool = True
    """Whether a barrier may overtake its records. Otherwise all subtasks have seen the same of them at a
    checkpoint: those that keep state by them need that, as any of them may stand for all at a restore."""

    def capturable(self, senders: int, receivers: int) -> bool:
        return self.captured

    @property
    def why_uncaptured(self) -> str:
        return "at a checkpoint all subtasks have seen the same"

    def order(self, senders: int, receivers: int) -> Order:
        return Order.NONE

    def among(self, site: DealingSite) -> Dealer:
        return ToOne(site)

    def identity(self, max_parallelism: int) -> None:
        return None
