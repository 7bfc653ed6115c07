"""Queries over single bids against the same in plain Python; Spark SQL is the reference of all of them."""

from __future__ import annotations

import datetime as dt
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from minirt.laboratory.nexmark.generator import generator
from tests.benchmarks.nexmark_results import EVENTS, OF_DAYS, Row, in_order, results

BIDS: list[Row] = generator(OF_DAYS).events("bid", 0, EVENTS).to_pylist()


def select(bid: Row, *names: str) -> Row:
    return {name: bid[name] for name in names}


def q0(bids: list[Row]) -> Iterator[Row]:
    for bid in bids:
        yield select(bid, "auction", "bidder", "price", "dateTime", "extra")


def q1(bids: list[Row]) -> Iterator[Row]:
    for row in q0(bids):
        yield row | {"price": row["price"] * Decimal("0.908")}


def q2(bids: list[Row]) -> Iterator[Row]:
    for bid in bids:
        if bid["auction"] % 123 == 0:
            yield select(bid, "auction", "price")


def q14(bids: list[Row]) -> Iterator[Row]:
    for row in q1(bids):
        if 1_000_000 < row["price"] < 50_000_000:
            yield row | {
                "bidTimeType": _time_of_day(row["dateTime"].hour),
                "c_counts": row["extra"].count("c"),
            }


def _time_of_day(hour: int) -> str:
    if 8 <= hour <= 18:
        return "dayTime"
    return "nightTime" if hour <= 6 or hour >= 20 else "otherTime"


def q17(bids: list[Row]) -> Iterator[Row]:
    seen: dict[tuple[int, dt.date], list[int]] = defaultdict(list)
    for bid in bids:
        seen[bid["auction"], bid["dateTime"].date()].append(bid["price"])
    for (auction, day), prices in seen.items():
        yield {
            "auction": auction,
            "day": day,
            "total_bids": len(prices),
            "rank1_bids": sum(price < 10_000 for price in prices),
            "rank2_bids": sum(10_000 <= price < 1_000_000 for price in prices),
            "rank3_bids": sum(price >= 1_000_000 for price in prices),
            "min_price": min(prices),
            "max_price": max(prices),
            "avg_price": sum(prices) / len(prices),
            "sum_price": sum(prices),
        }


def q21(bids: list[Row]) -> Iterator[Row]:
    known = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
    for bid in bids:
        found = re.search("(&|^)channel_id=([^&]*)", bid["url"])
        channel_id = known.get(bid["channel"].lower()) or (found and found[2])
        if channel_id is not None:
            row = select(bid, "auction", "bidder", "price", "channel")
            yield row | {"channel_id": channel_id}


def q22(bids: list[Row]) -> Iterator[Row]:
    for bid in bids:
        first, second, third = bid["url"].split("/")[3:6]
        row = select(bid, "auction", "bidder", "price", "channel")
        yield row | {"dir1": first, "dir2": second, "dir3": third}


EXPECTED: dict[str, Callable[[list[Row]], Iterator[Row]]] = {
    query.__name__: query for query in (q0, q1, q2, q14, q17, q21, q22)
}


@pytest.mark.parametrize("name", EXPECTED)
def test_query_gives_what_plain_python_gives(name: str, tmp_path: Path) -> None:
    found = results(name, tmp_path / name)
    expected = list(EXPECTED[name](BIDS))
    assert expected
    assert in_order(found) == in_order(expected)
