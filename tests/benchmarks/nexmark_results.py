"""What minirt makes of the NexMark queries, to be compared with what others make of them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import minirt as rt
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.source import NexmarkSource
from minirt.laboratory.nexmark.workload import Workload

Row = dict[str, Any]

EVENTS = 10_000
WORKLOAD = Workload(seed=11, rate=0.1)
"""Slow enough for the events to go through all hours of more than one day."""


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
