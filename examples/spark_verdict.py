"""Spark at both ends: a DataFrame is the source of a job, and Spark judges what the job has written.

The job counts orders of each shop by the minute, kept in order by shop. Spark computes the same as a batch,
in its own words, and compares row by row. In between, a worker may die: try it with a mode and checkpoints.

Run it:  pip install 'minirt[spark]'  (and a Java of 17 or newer)
         python examples/spark_verdict.py
"""

from __future__ import annotations

import tempfile

import minirt as rt
from minirt_connectors.spark import SparkSource, local_session, verify

EXPECTED = """
    SELECT shop, window.start AS window_start, sum(amount) AS revenue, count(*) AS orders
    FROM orders WHERE amount > 0 GROUP BY shop, window(time, '1 minute')
"""


def build(source: rt.Source, out: rt.Sink) -> rt.Environment:
    env = rt.Environment("sales", parallelism=2)
    # A DataFrame that is replayed in the order of its times has no late rows.
    watermarks = rt.Watermarks.monotonous(timestamp="time")
    sales = (
        env.source(source, uid="orders", watermarks=watermarks)
        .filter(lambda order: order["amount"] > 0)
        .key_by("shop")
        .window(rt.Tumbling("1min"))
        .aggregate(rt.Sum("amount", "revenue"), rt.Count("orders"), uid="sales")
    )
    sales.select("shop", "window_start", "revenue", "orders").sink(out, uid="out")
    return env


def main() -> None:
    spark = local_session("sales")
    # From here on any DataFrame will do: of a table, of files, of a database, of a query.
    orders = spark.range(2000).selectExpr(
        "elt(id % 3 + 1, 'north', 'south', 'web') AS shop",
        "if(id % 11 = 10, -1, 1) * (5 + id * 7 % 40) AS amount",
        "timestamp_seconds(1714557600 + 2 * id) AS time",
    )
    with tempfile.TemporaryDirectory() as folder:
        # `cache_dir` must be one folder for Spark's executors and the workers of the job.
        source = SparkSource(
            orders, order_by="time", partition_by="shop", cache_dir=f"{folder}/cache"
        )
        env = build(source, rt.ParquetSink(f"{folder}/out"))
        env.execute(checkpointing=rt.Checkpointing(f"{folder}/checkpoints", interval="1s"))

        orders.createOrReplaceTempView("orders")
        verdict = verify(spark, f"{folder}/out", spark.sql(EXPECTED), keys=["shop", "window_start"])
    print(verdict)


if __name__ == "__main__":
    main()
