"""The demo's data, and its aggregation against Spark's."""

from __future__ import annotations

import datetime as dt
import importlib.util
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from minirt.errors import ConfigurationError
from minirt.units import event_time_ms
from minirt_connectors.flights.data import FLIGHTS, flights_csv, flights_dataframe
from minirt_connectors.flights.expected import KEYS, expected_hourly
from minirt_connectors.flights.hourly import (
    EMPTY,
    RESULT_SCHEMA,
    Stats,
    add_flight,
    hour_of,
    result_row,
)
from minirt_connectors.flights.slow import Slow
from minirt_connectors.spark import verify

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="session")
def flights(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    # Cached, since Spark parses the whole table for every query otherwise.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        return flights_dataframe(spark).cache()


@pytest.mark.spark
def test_all_flights_are_read_with_their_times_and_nulls(flights: DataFrame) -> None:
    totals = flights.selectExpr(
        "count(*) AS rows",
        "count(dep_delay) AS departed",
        "count_if(hour(event_time) = hour(time_hour) AND minute(event_time) = minute) AS exact",
        "min(event_time) AS first",
    ).first()
    assert totals is not None
    assert totals.rows == totals.exact == FLIGHTS
    assert totals.departed == FLIGHTS - 8255


@pytest.mark.spark
def test_event_time_is_the_scheduled_departure_as_an_instant(flights: DataFrame) -> None:
    new_year_and_july = flights.where("month IN (1, 7) AND day = 1")
    offsets = new_year_and_july.selectExpr(
        "month",
        "(date_diff(minute, make_timestamp(2013, month, day, sched_dep_time div 100, "
        "sched_dep_time % 100, 0), event_time)) AS minutes_behind_utc",
    ).distinct()
    assert sorted(tuple(row) for row in offsets.collect()) == [(1, 300), (7, 240)]


@pytest.mark.spark
def test_the_plain_aggregation_gives_what_spark_computes(
    spark: SparkSession, flights: DataFrame
) -> None:
    january = flights.where("month = 1")
    hours: dict[tuple[str, str, int], Stats] = defaultdict(lambda: EMPTY)
    for flight in (
        january.select("event_time", "origin", "carrier", "dep_delay", "distance")
        .toArrow()
        .to_pylist()
    ):
        key = flight["origin"], flight["carrier"], hour_of(event_time_ms(flight["event_time"]))
        hours[key] = add_flight(hours[key], flight)
    rows = [result_row(*key, stats) for key, stats in hours.items()]
    output = spark.createDataFrame(pa.Table.from_pylist(rows, RESULT_SCHEMA))
    verdict = verify(spark, output, expected_hourly(january), keys=KEYS)
    assert verdict.ok, str(verdict)
    assert verdict.rows_expected > 9000


def test_the_table_is_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = flights_csv()
    written = first.stat().st_mtime_ns
    assert flights_csv() == first
    assert first.stat().st_mtime_ns == written
    first.write_text("torn")
    assert flights_csv().stat().st_size > 30_000_000
    assert len(list(first.parent.iterdir())) == 1


def test_missing_flights_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"pip install 'minirt\[demo\]'"):
        flights_csv()


def test_a_cancelled_flight_counts_but_has_no_delay() -> None:
    stats = add_flight(EMPTY, {"dep_delay": None, "distance": 100})
    assert stats == (1, 0, 0, None, 100)
    stats = add_flight(stats, {"dep_delay": -4, "distance": 50})
    assert add_flight(stats, {"dep_delay": -9, "distance": 1}) == (3, 2, -13, -4, 151)


def test_a_result_tells_its_hour_in_utc() -> None:
    ten = event_time_ms(dt.datetime(2013, 1, 1, 10))
    row = result_row("EWR", "UA", hour_of(ten + 59 * 60_000), (1, 1, 2, 2, 1400))
    assert row["hour"] == dt.datetime(2013, 1, 1, 10, tzinfo=dt.UTC)
    assert list(row) == RESULT_SCHEMA.names


def test_a_slow_stage_sleeps_as_long_as_its_records_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds * 1.5  # a machine that oversleeps

    monkeypatch.setattr("time.sleep", sleep)
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    slow = Slow(0.0004)
    assert [slow(i) for i in range(1000)] == list(range(1000))
    assert clock[0] == pytest.approx(0.4, abs=0.002)
    assert min(slept) >= 0.001
