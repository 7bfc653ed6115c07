"""What the events of a NexMark stream are like. The defaults are the official ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from minirt.errors import ConfigurationError
from minirt.units import positive

BASE_TIME_MS = 1_436_918_400_000
"""2015-07-15 00:00:00 UTC, the event time of event 0."""

_SCATTER = 953
"""A prime: multiplying by it reorders the events of a group without losing one."""

_COUNTS = (
    "persons",
    "auctions",
    "bids",
    "person_bytes",
    "auction_bytes",
    "bid_bytes",
    "hot_auction_ratio",
    "hot_seller_ratio",
    "hot_bidder_ratio",
    "in_flight_auctions",
    "active_people",
    "out_of_order_group",
)


@dataclass(frozen=True, slots=True)
class Workload:
    """All that the events depend on, besides their number.

    Of `persons + auctions + bids` events in a row, so many are of each kind, in this order. `rate` is
    in events per second *of event time*; how fast they are made is another matter. Each kind is
    filled up with random text to about its bytes, not counting channel and URL of a bid.

    A ratio of n makes the hot auction, seller or bidder take 1 - 1/n of all events that have one, so
    1 is no skew at all. `bid_skew`, from 0 to 1, gives the share of the hot auction and the
    hot bidder directly, as CheckMate does. The hot ones change: they are the first of each hundred.

    Event times fall by up to a group within each `out_of_order_group` events. `compat` "nexmark-head"
    repeats a slip of nexmark/nexmark, which adds the first id of persons to bidders twice.

    Raises ConfigurationError for values that cannot work.
    """

    seed: int = 0
    rate: float = 10_000.0
    base_time_ms: int = BASE_TIME_MS
    persons: int = 1
    auctions: int = 3
    bids: int = 46
    person_bytes: int = 200
    auction_bytes: int = 500
    bid_bytes: int = 100
    hot_auction_ratio: int = 2
    hot_seller_ratio: int = 4
    hot_bidder_ratio: int = 4
    bid_skew: float | None = None
    in_flight_auctions: int = 100
    active_people: int = 1000
    out_of_order_group: int = 1
    compat: Literal["nexmark-head"] | None = None

    def __post_init__(self) -> None:
        for name in _COUNTS:
            positive(name, getattr(self, name))
        if not 0 <= self.seed < 1 << 64:
            raise ConfigurationError(f"seed must be from 0 to 2**64 - 1, got {self.seed}")
        if not 0 < self.rate <= 1e9:
            raise ConfigurationError(
                f"rate is in events per second, above 0 and at most 1e9, got {self.rate}"
            )
        if self.out_of_order_group % _SCATTER == 0:
            raise ConfigurationError(
                f"out_of_order_group must not be a multiple of {_SCATTER}: events would get lost"
            )
        if self.compat not in (None, "nexmark-head"):
            raise ConfigurationError(f'compat is "nexmark-head" or None, got {self.compat!r}')
        self._check_skew()

    def _check_skew(self) -> None:
        if self.bid_skew is None:
            return
        if math.isnan(self.bid_skew) or not 0 <= self.bid_skew <= 1:
            raise ConfigurationError(f"bid_skew must be from 0 to 1, got {self.bid_skew}")
        if (self.hot_auction_ratio, self.hot_bidder_ratio) != (2, 4):
            raise ConfigurationError(
                "bid_skew takes the place of hot_auction_ratio and hot_bidder_ratio: give only one"
            )

    @property
    def total(self) -> int:
        """After how many events the pattern of kinds repeats."""
        return self.persons + self.auctions + self.bids

    @property
    def hot_auction_share(self) -> float:
        return 1 - 1 / self.hot_auction_ratio if self.bid_skew is None else self.bid_skew

    @property
    def hot_bidder_share(self) -> float:
        return 1 - 1 / self.hot_bidder_ratio if self.bid_skew is None else self.bid_skew

    @property
    def hot_seller_share(self) -> float:
        return 1 - 1 / self.hot_seller_ratio

    @property
    def scatter(self) -> int:
        """The factor by which positions within an out-of-order group are multiplied."""
        return _SCATTER
