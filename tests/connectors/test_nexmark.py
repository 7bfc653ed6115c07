"""NexMark queries of minirt against the same in Spark SQL, over the same events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.nexmark.__main__ import write_parquet
from benchmarks.nexmark.queries import QUERIES
from minirt.laboratory.nexmark.schemas import KINDS
from tests.benchmarks.nexmark_results import (
    EVENTS,
    WORKLOADS,
    Row,
    in_order,
    killed_twice,
    pace_of,
    results,
)
from tests.connectors.nexmark_sql import SQL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

QUICK = ("q11",)
"""Session windows. Kills under sliding windows and joins are in test_random_windows.py and
test_random_joins.py, those under joins for ever and top-n in tests/runtime/test_killed_operators.py."""

Expected = Callable[[str], list[Row]]


@pytest.fixture(scope="module")
def expected(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Expected:
    """What Spark gives for a query over the events of its workload, as the generator writes them."""
    folder = tmp_path_factory.mktemp("nexmark")
    for pace, workload in WORKLOADS.items():
        write_parquet(workload, EVENTS, folder / pace)

    @lru_cache
    def rows(name: str) -> list[Row]:
        for kind in KINDS[:3]:
            table = spark.read.parquet(str(folder / pace_of(name) / f"{kind}.parquet"))
            table.createOrReplaceTempView(kind)
        return [row.asDict() for row in spark.sql(SQL[name]).collect()]

    return rows


def check(name: str, found: list[Row], expected: list[Row]) -> None:
    assert expected
    if name == "q12":  # How bids fall into windows of the clock differs from run to run.
        found = by_bidder(found)
    assert in_order(found) == in_order(expected)


def by_bidder(rows: list[Row]) -> list[Row]:
    counts: Counter[Any] = Counter()
    for row in rows:
        counts[row["bidder"]] += row["bid_count"]
    return [{"bidder": bidder, "bid_count": count} for bidder, count in counts.items()]


def test_every_query_is_there() -> None:
    assert list(QUERIES) == list(SQL) == [f"q{number}" for number in range(23)]


@pytest.mark.parametrize("name", QUERIES)
def test_query_gives_what_spark_gives(name: str, expected: Expected, tmp_path: Path) -> None:
    check(name, results(name, tmp_path / name), expected(name))


@pytest.mark.processes
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.soak) for name in QUERIES],
)
def test_two_kills_change_no_result(name: str, expected: Expected, tmp_path: Path) -> None:
    mode = "unaligned" if int(name[1:]) % 2 else "aligned"
    check(name, killed_twice(name, mode, tmp_path), expected(name))
