"""NexMark queries over the stream of bids, one function a query, with the names of nexmark/nexmark.

Those that keep no state work on columns. Batches may be empty after a filter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import minirt as rt

_DOLLARS_TO_EUROS = pa.scalar(Decimal("0.908"), pa.decimal128(3, 3))
_SMALL_PRICE, _LARGE_PRICE = 10_000, 1_000_000
"""Bids below the one, from it on, and from the other on are counted apart."""


def q0(bids: rt.Stream) -> rt.Stream:
    """Pass through: every bid, without channel and URL."""
    return _columns(
        bids, lambda bid: bid.select(["auction", "bidder", "price", "dateTime", "extra"])
    )


def q1(bids: rt.Stream) -> rt.Stream:
    """Currency conversion: every bid with its price in euros."""
    return _columns(bids, _in_euros)


def _in_euros(bid: pa.RecordBatch) -> pa.RecordBatch:
    columns = bid.select(["auction", "bidder", "price", "dateTime", "extra"])
    return columns.set_column(2, "price", _euros(bid["price"]))


def q2(bids: rt.Stream) -> rt.Stream:
    """Selection: bids on every 123rd auction."""
    return _columns(bids, _of_few_auctions)


def _of_few_auctions(bid: pa.RecordBatch) -> pa.RecordBatch:
    wanted = pa.array(bid["auction"].to_numpy() % 123 == 0)
    return bid.select(["auction", "price"]).filter(wanted)


def q14(bids: rt.Stream) -> rt.Stream:
    """Calculation: bids of middle prices, with the time of day and the number of c in `extra`."""
    return _columns(bids, _calculated)


def _calculated(bid: pa.RecordBatch) -> pa.RecordBatch:
    price = _euros(bid["price"])
    low, high = (pa.scalar(Decimal(limit), price.type) for limit in (1_000_000, 50_000_000))
    wanted = pc.and_(pc.greater(price, low), pc.less(price, high))
    bid = bid.set_column(2, "price", price).filter(wanted)
    hour = pc.hour(bid["dateTime"])
    by_day = pc.and_(pc.greater_equal(hour, 8), pc.less_equal(hour, 18))
    by_night = pc.or_(pc.less_equal(hour, 6), pc.greater_equal(hour, 20))
    time_type = pc.if_else(by_day, "dayTime", pc.if_else(by_night, "nightTime", "otherTime"))
    return pa.RecordBatch.from_pydict(
        {
            "auction": bid["auction"],
            "bidder": bid["bidder"],
            "price": bid["price"],
            "bidTimeType": time_type,
            "dateTime": bid["dateTime"],
            "extra": bid["extra"],
            "c_counts": pc.cast(pc.count_substring(bid["extra"], "c"), pa.int64()),
        }
    )


def q17(bids: rt.Stream) -> rt.Stream:
    """Statistics of the bids on each auction on each day, put out anew for every bid."""
    prices = _columns(bids, _by_day)
    return prices.key_by("auction", "day").process(AuctionStatistics(), uid="statistics")


def _by_day(bid: pa.RecordBatch) -> pa.RecordBatch:
    day = pc.cast(bid["dateTime"], pa.date32())
    return bid.select(["auction", "price"]).append_column("day", day)


class AuctionStatistics(rt.KeyedProcess):
    """Counts of bids by the size of their price, and least, greatest, average and total price."""

    seen = rt.ValueState()
    """Bids of small, middle and large price; least and greatest price; total."""

    def process(self, record: dict[str, Any], ctx: rt.KeyedContext) -> Iterator[dict[str, Any]]:
        price: int = record["price"]
        small, middle, large, least, most, total = self.seen.get() or (0, 0, 0, price, price, 0)
        if price < _SMALL_PRICE:
            small += 1
        elif price < _LARGE_PRICE:
            middle += 1
        else:
            large += 1
        least, most, total = min(least, price), max(most, price), total + price
        self.seen.set((small, middle, large, least, most, total))
        count = small + middle + large
        yield {
            "auction": record["auction"],
            "day": record["day"],
            "total_bids": count,
            "rank1_bids": small,
            "rank2_bids": middle,
            "rank3_bids": large,
            "min_price": least,
            "max_price": most,
            "avg_price": total / count,
            "sum_price": total,
        }


def q21(bids: rt.Stream) -> rt.Stream:
    """Channel ids, known for four channels and otherwise part of the URL; bids without are left out."""
    return _columns(bids, _with_channel_id)


_KNOWN_CHANNELS = pa.array(["apple", "google", "facebook", "baidu"])
_KNOWN_IDS = pa.array(["0", "1", "2", "3"])


def _with_channel_id(bid: pa.RecordBatch) -> pa.RecordBatch:
    known = pc.index_in(pc.utf8_lower(bid["channel"]), _KNOWN_CHANNELS)
    found = pc.extract_regex(bid["url"], r"(?:&|^)channel_id=(?P<id>[^&]*)")
    channel_id = pc.coalesce(_KNOWN_IDS.take(known), pc.struct_field(found, "id"))
    result = bid.select(["auction", "bidder", "price", "channel"])
    return result.append_column("channel_id", channel_id).filter(pc.is_valid(channel_id))


def q22(bids: rt.Stream) -> rt.Stream:
    """The three directories of the URL."""
    return _columns(bids, _with_directories)


def _with_directories(bid: pa.RecordBatch) -> pa.RecordBatch:
    parts = pc.split_pattern(bid["url"], "/")
    result = bid.select(["auction", "bidder", "price", "channel"])
    for number in (1, 2, 3):
        result = result.append_column(f"dir{number}", pc.list_element(parts, number + 2))
    return result


QUERIES: dict[str, Callable[[rt.Stream], rt.Stream]] = {
    query.__name__: query for query in (q0, q1, q2, q14, q17, q21, q22)
}


def _columns(bids: rt.Stream, function: Callable[[pa.RecordBatch], pa.RecordBatch]) -> rt.Stream:
    return bids.map_batches(function, format="columns")


def _euros(cents: pa.Int64Array) -> pa.Decimal128Array:
    """Exact, in DECIMAL(23, 3): an int64 has 19 digits at most."""
    return pc.multiply(pc.cast(cents, pa.decimal128(19, 0)), _DOLLARS_TO_EUROS)
