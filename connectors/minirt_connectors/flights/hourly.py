"""What the demo computes from a key's flights in an hour, on plain values."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

HOUR_MS = 3_600_000

RESULT_SCHEMA = pa.schema(
    [
        ("origin", pa.string()),
        ("carrier", pa.string()),
        ("hour", pa.timestamp("us", "UTC")),
        ("flights", pa.int64()),
        ("departed", pa.int64()),
        ("delay_sum", pa.int64()),
        ("delay_max", pa.int64()),
        ("distance", pa.int64()),
    ]
)
"""The columns of `result_row`; given to the sink since a first batch may hold no `delay_max`."""

Stats = tuple[int, int, int, int | None, int]
"""Flights, departed ones, sum and maximum of their delays (minutes), sum of distances (miles)."""

EMPTY: Stats = (0, 0, 0, None, 0)


def hour_of(timestamp: int) -> int:
    """The start of the hour that a point in event time belongs to, in milliseconds."""
    return timestamp - timestamp % HOUR_MS


def add_flight(stats: Stats, flight: Mapping[str, Any]) -> Stats:
    """The statistics with one more flight. Whole numbers only, so that no order of adding matters."""
    flights, departed, delay_sum, delay_max, distance = stats
    distance += flight["distance"]
    delay = flight["dep_delay"]
    if delay is None:
        return flights + 1, departed, delay_sum, delay_max, distance
    longest = delay if delay_max is None else max(delay_max, delay)
    return flights + 1, departed + 1, delay_sum + delay, longest, distance


def result_row(origin: str, carrier: str, hour: int, stats: Stats) -> dict[str, Any]:
    """The row that the job emits; the mean delay is `delay_sum / departed`."""
    flights, departed, delay_sum, delay_max, distance = stats
    return {
        "origin": origin,
        "carrier": carrier,
        "hour": dt.datetime.fromtimestamp(hour / 1000, dt.UTC),
        "flights": flights,
        "departed": departed,
        "delay_sum": delay_sum,
        "delay_max": delay_max,
        "distance": distance,
    }
