"""The partitionings of minirt, one file each: the facts that a job's plan needs, and what deals records.

`PARTITIONINGS` is the registry. Partitionings of other packages need no line in it: `Stream.partition_by`
takes any `Partitioning`, by an object, so none is looked up by its name. `minirt.partitionings.common`
holds what partitionings are written with.
"""

from minirt.graph.keys import KeySelector
from minirt.graph.partitioning import Partitioning, Wiring
from minirt.partitionings.broadcast import Broadcast
from minirt.partitionings.common.by_key import KeyPartitioning
from minirt.partitionings.common.dealing import Dealer, DealingSite, RowBuffer, scatter, split
from minirt.partitionings.custom import Custom
from minirt.partitionings.forward import Forward
from minirt.partitionings.hash import Hash
from minirt.partitionings.rebalance import Rebalance
from minirt.partitionings.rescale import Rescale
from minirt.protocol.topology import InFlight, Order

PARTITIONINGS: tuple[type[Partitioning], ...] = (
    Forward,
    Rebalance,
    Rescale,
    Broadcast,
    Hash,
    Custom,
)


def default_partitioning(senders: int, receivers: int) -> Partitioning:
    """That of an edge for which a job names none."""
    return Forward() if senders == receivers else Rebalance()


__all__ = [
    "PARTITIONINGS",
    "default_partitioning",
    "Partitioning",
    "KeyPartitioning",
    "KeySelector",
    "Wiring",
    "InFlight",
    "Order",
    "Dealer",
    "DealingSite",
    "RowBuffer",
    "scatter",
    "split",
    "Broadcast",
    "Custom",
    "Forward",
    "Hash",
    "Rebalance",
    "Rescale",
]
