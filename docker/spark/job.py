"""A DataFrame is the source, a Spark cluster hosts the workers, and Spark verifies the output.

docker compose --profile spark up --detach --wait
docker compose run --rm spark-job
"""

from __future__ import annotations

import os
import sys
import uuid

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import minirt as rt
from minirt_connectors.spark import SparkCluster, SparkSource, verify

ROWS = 20_000


def main() -> int:
    """Return 0 if Spark finds exactly the rows that it expects."""
    shared = os.environ.get("SHARED", "/shared")
    place = os.path.join(shared, uuid.uuid4().hex)
    spark = SparkSession.builder.appName("minirt").getOrCreate()
    orders = spark.range(ROWS).select(
        (F.col("id") % 97).alias("shop"), (F.col("id") % 1000).alias("amount")
    )

    env = rt.Environment("shops", parallelism=2)
    source = SparkSource(orders, splits=4, cache_dir=os.path.join(shared, "cache"))
    sums = (
        env.source(source, uid="orders")
        .key_by("shop")
        .aggregate(rt.Sum("amount"), emit="end", uid="sums")
    )
    sums.sink(rt.ParquetSink(f"{place}/out"), uid="out")
    env.execute(
        checkpointing=rt.Checkpointing(f"{place}/checkpoints", interval="1s"),
        cluster=SparkCluster(spark, slots=2),
    )

    expected = orders.groupBy("shop").agg(F.sum("amount").alias("amount_sum"))
    verdict = verify(spark, f"{place}/out", expected)
    print(verdict)
    return 0 if verdict.ok else 1


if __name__ == "__main__":
    sys.exit(main())
