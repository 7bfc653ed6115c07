"""NexMark queries over the stream of bids, one function a query, with the names of nexmark/nexmark.

All of them work on columns: expressions of pyarrow.compute, and aggregates that keep their state in arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

import minirt as rt

_SMALL_PRICE, _LARGE_PRICE = 10_000, 1_000_000
"""Bids below the one, from it on, and from the other on are counted apart."""

_AUCTION, _PRICE, _TIME, _URL = map(pc.field, ("auction", "price", "dateTime", "url"))

_EUROS = pc.multiply(
    _PRICE.cast(pa.decimal128(19, 0)), pa.scalar(Decimal("0.908"), pa.decimal128(3, 3))
)
"""The price in euros: exact, in DECIMAL(23, 3), as an int64 has 19 digits at most."""

_HOUR = pc.hour(_TIME)
_TIME_TYPE = pc.if_else(
    (_HOUR >= 8) & (_HOUR <= 18),
    "dayTime",
    pc.if_else((_HOUR <= 6) | (_HOUR >= 20), "nightTime", "otherTime"),
)

_CHANNEL_IDS = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
_ID_IN_URL = r"(?:&|^)channel_id=(?P<id>[^&]*)"


def q0(bids: rt.Stream) -> rt.Stream:
    """Pass through: every bid, without channel and URL."""
    return bids.select("auction", "bidder", "price", "dateTime", "extra")


def q1(bids: rt.Stream) -> rt.Stream:
    """Currency conversion: every bid with its price in euros."""
    return bids.select("auction", "bidder", "dateTime", "extra", price=_EUROS)


def q2(bids: rt.Stream) -> rt.Stream:
    """Selection: bids on every 123rd auction."""
    remainder = _AUCTION - pc.divide(_AUCTION, 123) * 123
    return bids.filter(remainder == 0).select("auction", "price")


def q14(bids: rt.Stream) -> rt.Stream:
    """Calculation: bids of middle prices, with the time of day and the number of c in `extra`."""
    low, high = (pa.scalar(Decimal(limit), pa.decimal128(23, 3)) for limit in (10**6, 5 * 10**7))
    return bids.filter(pc.greater(_EUROS, low) & pc.less(_EUROS, high)).select(
        "auction",
        "bidder",
        "dateTime",
        "extra",
        price=_EUROS,
        bidTimeType=_TIME_TYPE,
        c_counts=pc.count_substring(pc.field("extra"), "c").cast(pa.int64()),
    )


def q17(bids: rt.Stream) -> rt.Stream:
    """Statistics of the bids on each auction on each day, put out anew as bids come in."""
    prices = bids.select(
        "auction",
        "price",
        day=_TIME.cast(pa.date32()),
        small=_PRICE < _SMALL_PRICE,
        middle=(_PRICE >= _SMALL_PRICE) & (_PRICE < _LARGE_PRICE),
        large=_PRICE >= _LARGE_PRICE,
    )
    return prices.key_by("auction", "day").aggregate(
        rt.Count("total_bids"),
        rt.Sum("small", "rank1_bids"),
        rt.Sum("middle", "rank2_bids"),
        rt.Sum("large", "rank3_bids"),
        rt.Min("price", "min_price"),
        rt.Max("price", "max_price"),
        rt.Mean("price", "avg_price"),
        rt.Sum("price", "sum_price"),
        uid="statistics",
    )


def q21(bids: rt.Stream) -> rt.Stream:
    """Channel ids, known for four channels and otherwise part of the URL; bids without are left out."""
    channel = pc.utf8_lower(pc.field("channel"))
    channel_id = pc.struct_field(pc.extract_regex(_URL, _ID_IN_URL), "id")
    for name, known_id in _CHANNEL_IDS.items():
        channel_id = pc.if_else(channel == name, known_id, channel_id)
    found = bids.select("auction", "bidder", "price", "channel", channel_id=channel_id)
    return found.filter(pc.field("channel_id").is_valid())


def q22(bids: rt.Stream) -> rt.Stream:
    """The three directories of the URL."""
    parts = pc.split_pattern(_URL, "/")
    first, second, third = (pc.list_element(parts, place) for place in (3, 4, 5))
    return bids.select("auction", "bidder", "price", "channel", dir1=first, dir2=second, dir3=third)


QUERIES: dict[str, Callable[[rt.Stream], rt.Stream]] = {
    query.__name__: query for query in (q0, q1, q2, q14, q17, q21, q22)
}
