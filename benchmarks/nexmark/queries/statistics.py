"""Running statistics of bids, the newest of them and the highest: a result replaces the one before it."""

from __future__ import annotations

import pyarrow.compute as pc

import minirt as rt
from benchmarks.nexmark.events import Events
from benchmarks.nexmark.queries.query import DAY, MINUTE

_SMALL_PRICE, _LARGE_PRICE = 10_000, 1_000_000
"""Bids below the one, from it on, and from the other on are counted apart."""

_PRICE = pc.field("price")

_RANKS = {
    "rank1": _PRICE < _SMALL_PRICE,
    "rank2": (_PRICE >= _SMALL_PRICE) & (_PRICE < _LARGE_PRICE),
    "rank3": _PRICE >= _LARGE_PRICE,
}


def _counts() -> list[rt.Aggregate]:
    """All bids, and those of each rank."""
    return [
        rt.Count("total_bids"),
        *(rt.Count(f"{rank}_bids", where=where) for rank, where in _RANKS.items()),
    ]


def _distinct_counts() -> list[rt.Aggregate]:
    """How many bidders and auctions there are among all bids, and among those of each rank."""
    return [
        rt.CountDistinct(column, f"{rank}_{column}s", where=where)
        for column in ("bidder", "auction")
        for rank, where in {"total": None, **_RANKS}.items()
    ]


def q15(events: Events) -> rt.Stream:
    """Bids of each day: how many, of how many bidders, on how many auctions."""
    bids = events.bids("auction", "bidder", "price", "dateTime").select(
        "auction", "bidder", "price", day=DAY
    )
    return bids.key_by("day").aggregate(*_counts(), *_distinct_counts(), uid="statistics")


def q16(events: Events) -> rt.Stream:
    """The same of each channel and day, with the minute of the last bid."""
    bids = events.bids("channel", "auction", "bidder", "price", "dateTime").select(
        "channel", "auction", "bidder", "price", day=DAY, at=MINUTE
    )
    return bids.key_by("channel", "day").aggregate(
        rt.Max("at", "minute"), *_counts(), *_distinct_counts(), uid="statistics"
    )


def q17(events: Events) -> rt.Stream:
    """Bids on each auction on each day: how many, and their prices."""
    prices = events.bids("auction", "price", "dateTime").select("auction", "price", day=DAY)
    return prices.key_by("auction", "day").aggregate(
        *_counts(),
        rt.Min("price", "min_price"),
        rt.Max("price", "max_price"),
        rt.Mean("price", "avg_price"),
        rt.Sum("price", "sum_price"),
        uid="statistics",
    )


def q18(events: Events) -> rt.Stream:
    """The last bid of each bidder on each auction."""
    return events.bids().key_by("bidder", "auction").top_n(1, by="dateTime", uid="last")


def q19(events: Events) -> rt.Stream:
    """The ten highest bids on each auction, with their rank; of equal ones the earlier is ahead."""
    by = ["price", ("dateTime", "ascending")]
    return events.bids().key_by("auction").top_n(10, by=by, uid="highest")
