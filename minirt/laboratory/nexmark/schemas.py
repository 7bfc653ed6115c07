"""The columns of persons, auctions and bids, with the names of nexmark/nexmark."""

from __future__ import annotations

from typing import Literal, get_args

import pyarrow as pa

Kind = Literal["person", "auction", "bid", "all"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_TIME = pa.timestamp("ms")
PERSON = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("emailAddress", pa.string()),
        ("creditCard", pa.string()),
        ("city", pa.string()),
        ("state", pa.string()),
        ("dateTime", _TIME),
        ("extra", pa.string()),
    ]
)
AUCTION = pa.schema(
    [
        ("id", pa.int64()),
        ("itemName", pa.string()),
        ("description", pa.string()),
        ("initialBid", pa.int64()),
        ("reserve", pa.int64()),
        ("dateTime", _TIME),
        ("expires", _TIME),
        ("seller", pa.int64()),
        ("category", pa.int64()),
        ("extra", pa.string()),
    ]
)
BID = pa.schema(
    [
        ("auction", pa.int64()),
        ("bidder", pa.int64()),
        ("price", pa.int64()),
        ("channel", pa.string()),
        ("url", pa.string()),
        ("dateTime", _TIME),
        ("extra", pa.string()),
    ]
)
ALL = pa.schema(
    [
        ("event_type", pa.int32()),
        ("person", pa.struct(list(PERSON))),
        ("auction", pa.struct(list(AUCTION))),
        ("bid", pa.struct(list(BID))),
        ("dateTime", _TIME),
    ]
)
"""Every event in one row: its type (0 person, 1 auction, 2 bid), and the column of its kind."""

SCHEMAS: dict[Kind, pa.Schema] = {"person": PERSON, "auction": AUCTION, "bid": BID, "all": ALL}
