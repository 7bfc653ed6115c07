"""Queries that look at one bid at a time, and keep nothing. All of them are expressions of columns."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

import minirt as rt
from benchmarks.nexmark.events import Events
from benchmarks.nexmark.queries.query import DAY, MINUTE, TIME

_AUCTION, _PRICE, _URL = map(pc.field, ("auction", "price", "url"))

_EUROS = pc.multiply(
    _PRICE.cast(pa.decimal128(19, 0)), pa.scalar(Decimal("0.908"), pa.decimal128(3, 3))
)
"""The price in euros: exact, in DECIMAL(23, 3), as an int64 has 19 digits at most."""

_HOUR = pc.hour(TIME)
_TIME_TYPE = pc.if_else(
    (_HOUR >= 8) & (_HOUR <= 18),
    "dayTime",
    pc.if_else((_HOUR <= 6) | (_HOUR >= 20), "nightTime", "otherTime"),
)

_CHANNEL_IDS = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
_ID_IN_URL = r"(?:&|^)channel_id=(?P<id>[^&]*)"

SIDE_KEYS = 10_000
SIDE_TABLE = pa.table(
    {"key": pa.array(range(SIDE_KEYS)), "value": [str(key) for key in range(SIDE_KEYS)]}
)
"""The side input of q13, small enough for each subtask to have all of it."""


def q0(events: Events) -> rt.Stream:
    """Pass through: every bid, without channel and URL."""
    return events.bids("auction", "bidder", "price", "dateTime", "extra")


def q1(events: Events) -> rt.Stream:
    """Currency conversion: every bid with its price in euros."""
    bids = events.bids("auction", "bidder", "price", "dateTime", "extra")
    return bids.select("auction", "bidder", "dateTime", "extra", price=_EUROS)


def q2(events: Events) -> rt.Stream:
    """Selection: bids on every 123rd auction."""
    return events.bids("auction", "price").filter(_remainder(_AUCTION, 123) == 0)


def q10(events: Events) -> rt.Stream:
    """Log to files: all bids, with the day and the minute that are the folders of their files."""
    bids = events.bids("auction", "bidder", "price", "dateTime", "extra")
    return bids.with_column("dt", DAY.cast(pa.string())).with_column("hm", MINUTE)


def q13(events: Events) -> rt.Stream:
    """Side input: every bid with a value from a bounded table."""
    bids = events.bids("auction", "bidder", "price", "dateTime")
    return bids.with_column("key", _remainder(_AUCTION, SIDE_KEYS)).map_batches(
        _with_value, "columns"
    )


def _with_value(bids: pa.RecordBatch) -> pa.RecordBatch:
    places = pc.index_in(bids["key"], SIDE_TABLE["key"].combine_chunks())
    found = bids.append_column("value", SIDE_TABLE["value"].combine_chunks().take(places))
    return found.filter(places.is_valid()).drop_columns(["key"])


def q14(events: Events) -> rt.Stream:
    """Calculation: bids of middle prices, with the time of day and the number of c in `extra`."""
    low, high = (pa.scalar(Decimal(limit), pa.decimal128(23, 3)) for limit in (10**6, 5 * 10**7))
    bids = events.bids("auction", "bidder", "price", "dateTime", "extra")
    return bids.filter(pc.greater(_EUROS, low) & pc.less(_EUROS, high)).select(
        "auction",
        "bidder",
        "dateTime",
        "extra",
        price=_EUROS,
        bidTimeType=_TIME_TYPE,
        c_counts=pc.count_substring(pc.field("extra"), "c").cast(pa.int64()),
    )


def q21(events: Events) -> rt.Stream:
    """Channel ids, known for four channels and otherwise part of the URL; bids without are left out."""
    channel = pc.utf8_lower(pc.field("channel"))
    channel_id = pc.struct_field(pc.extract_regex(_URL, _ID_IN_URL), "id")
    for name, known_id in _CHANNEL_IDS.items():
        channel_id = pc.if_else(channel == name, known_id, channel_id)
    bids = events.bids("auction", "bidder", "price", "channel", "url")
    found = bids.select("auction", "bidder", "price", "channel", channel_id=channel_id)
    return found.filter(pc.field("channel_id").is_valid())


def q22(events: Events) -> rt.Stream:
    """The three directories of the URL."""
    parts = pc.split_pattern(_URL, "/")
    first, second, third = (pc.list_element(parts, place) for place in (3, 4, 5))
    return events.bids("auction", "bidder", "price", "channel", "url").select(
        "auction", "bidder", "price", "channel", dir1=first, dir2=second, dir3=third
    )


def _remainder(number: pc.Expression, divisor: int) -> pc.Expression:
    return number - pc.divide(number, divisor) * divisor
