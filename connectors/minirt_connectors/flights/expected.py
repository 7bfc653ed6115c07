"""The result of the demo as Spark computes it in one batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEYS = ("origin", "carrier", "hour")
"""The columns that identify a row of the result."""


def expected_hourly(flights: DataFrame) -> DataFrame:
    """The rows that the job must have written for these flights."""
    from pyspark.sql import functions as F

    hour = F.date_trunc("hour", "event_time").alias("hour")
    return flights.groupBy("origin", "carrier", hour).agg(
        F.count("*").alias("flights"),
        F.count("dep_delay").alias("departed"),
        F.coalesce(F.sum("dep_delay"), F.lit(0)).alias("delay_sum"),
        F.max("dep_delay").cast("long").alias("delay_max"),
        F.sum("distance").alias("distance"),
    )
