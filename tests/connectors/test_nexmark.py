"""NexMark queries of minirt against the same in Spark SQL, over the same events."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.nexmark.__main__ import write_parquet
from benchmarks.nexmark.queries import QUERIES
from tests.benchmarks.nexmark_results import EVENTS, WORKLOAD, in_order, results

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

_EUROS = "CAST(price AS DECIMAL(19, 0)) * 0.908"

SQL = {
    "q0": "SELECT auction, bidder, price, dateTime, extra FROM bid",
    "q1": f"SELECT auction, bidder, {_EUROS} AS price, dateTime, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q14": f"""
        SELECT auction, bidder, {_EUROS} AS price,
            CASE
                WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
                WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime'
                ELSE 'otherTime'
            END AS bidTimeType,
            dateTime, extra, length(extra) - length(replace(extra, 'c')) AS c_counts
        FROM bid
        WHERE {_EUROS} > 1000000 AND {_EUROS} < 50000000
    """,
    "q17": """
        SELECT auction, to_date(dateTime) AS day,
            count(*) AS total_bids,
            count_if(price < 10000) AS rank1_bids,
            count_if(price >= 10000 AND price < 1000000) AS rank2_bids,
            count_if(price >= 1000000) AS rank3_bids,
            min(price) AS min_price, max(price) AS max_price,
            avg(price) AS avg_price, sum(price) AS sum_price
        FROM bid
        GROUP BY auction, to_date(dateTime)
    """,
    "q21": r"""
        SELECT * FROM (
            SELECT auction, bidder, price, channel,
                CASE lower(channel)
                    WHEN 'apple' THEN '0'
                    WHEN 'google' THEN '1'
                    WHEN 'facebook' THEN '2'
                    WHEN 'baidu' THEN '3'
                    ELSE nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '')
                END AS channel_id
            FROM bid
        )
        WHERE channel_id IS NOT NULL
    """,
    "q22": """
        SELECT auction, bidder, price, channel,
            split(url, '/')[3] AS dir1, split(url, '/')[4] AS dir2, split(url, '/')[5] AS dir3
        FROM bid
    """,
}


@pytest.fixture(scope="module")
def bids(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """A session that knows the table `bid`, as the generator writes it."""
    folder = tmp_path_factory.mktemp("nexmark")
    write_parquet(WORKLOAD, EVENTS, folder)
    spark.read.parquet(str(folder / "bid.parquet")).createOrReplaceTempView("bid")
    return spark


@pytest.mark.parametrize("name", QUERIES)
def test_query_gives_what_spark_gives(name: str, bids: SparkSession, tmp_path: Path) -> None:
    expected = [row.asDict() for row in bids.sql(SQL[name]).collect()]
    assert expected
    assert in_order(results(name, tmp_path / name)) == in_order(expected)
