"""Each query against the same in plain Python, over the same bids."""

from __future__ import annotations

import datetime as dt
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import minirt as rt
from benchmarks.nexmark.generator import generator
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.source import NexmarkSource
from benchmarks.nexmark.workload import Workload

Row = dict[str, Any]

EVENTS = 10_000
WORKLOAD = Workload(seed=11, rate=0.1)
"""Slow enough for the events to go through all hours of more than one day."""

BIDS: list[Row] = generator(WORKLOAD).events("bid", 0, EVENTS).to_pylist()


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


def results(name: str, folder: Path) -> list[Row]:
    """What the query writes; of its updates for a key the last one."""
    env = rt.Environment(parallelism=2)
    bids = env.source(NexmarkSource(EVENTS, "bid", workload=WORKLOAD, block_events=700))
    QUERIES[name](bids).sink(rt.ParquetSink(folder))
    env.execute(runner="inline")
    rows = [
        row for file in sorted(folder.glob("*.parquet")) for row in pq.read_table(file).to_pylist()
    ]
    return last_updates(rows) if name == "q17" else rows


def last_updates(rows: list[Row]) -> list[Row]:
    last: dict[tuple[int, dt.date], Row] = {}
    for row in rows:
        key = row["auction"], row["day"]
        if key not in last or last[key]["total_bids"] < row["total_bids"]:
            last[key] = row
    return list(last.values())


def in_order(rows: list[Row]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


def test_every_query_has_a_reference() -> None:
    assert QUERIES.keys() == EXPECTED.keys()


@pytest.mark.parametrize("name", QUERIES)
def test_query_gives_what_plain_python_gives(name: str, tmp_path: Path) -> None:
    found = results(name, tmp_path / name)
    expected = list(EXPECTED[name](BIDS))
    assert expected
    assert in_order(found) == in_order(expected)
