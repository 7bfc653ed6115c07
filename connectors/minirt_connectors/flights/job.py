"""The job of the demo: flights in, hourly results per origin and carrier out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import minirt as rt
from minirt_connectors.flights.hourly_stats import HourlyStats
from minirt_connectors.flights.slow import Slow
from minirt_connectors.spark import SparkSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from minirt.io.base import Sink, Source

INPUT_COLUMNS = ("event_time", "origin", "carrier", "dep_delay", "distance")
"""The columns of a flight that the job reads."""

SOURCE_NAME = "flights"


def flights_source(
    flights: DataFrame, *, splits: int = 4, cache_dir: str | None = None
) -> SparkSource:
    """The flights as a source, in the order of their scheduled departure."""
    return SparkSource(
        flights.select(*INPUT_COLUMNS),
        order_by="event_time",
        partition_by=["origin", "carrier"],
        splits=splits,
        cache_dir=cache_dir,
    )


def build(
    env: rt.Environment,
    source: Source,
    sink: Sink,
    *,
    slow_s_per_result: float = 0.0,
) -> None:
    """Add the job to `env`: it writes rows of `RESULT_SCHEMA` to `sink`.

    Each result takes `slow_s_per_result` seconds of the subtask that writes it, so that backpressure is
    real: there are 116,904 results of all flights. Results are dealt out in turn before, so every
    subtask but the sources has several input channels, with barriers that arrive at different times.
    """
    # Every split is in the order of event time, so no flight is ever late.
    flights = env.source(
        source,
        uid="flights",
        name=SOURCE_NAME,
        watermarks=rt.Watermarks.monotonous(timestamp="event_time"),
    )
    hourly = flights.key_by("origin", "carrier").process(HourlyStats(), uid="hourly", name="hourly")
    slow = hourly.rebalance().map(Slow(slow_s_per_result), name="slow")
    slow.sink(sink, uid="out", name="out")
