"""Spark at both ends: DataFrames as sources, Spark as the judge of output, as reader of
checkpoints and as writer of savepoints.

Importing this package does not import pyspark, so that workers can unpickle a `SparkSource` without
it. Only building a source, verifying, `register` and `local_session` need pyspark and a JDK.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minirt_connectors.spark.cluster import SparkCluster
from minirt_connectors.spark.savepoints import write_savepoint
from minirt_connectors.spark.session import (
    LOCAL_CLUSTER,
    cluster_session,
    is_local_cluster,
    local_session,
    require_java,
)
from minirt_connectors.spark.source import SparkSource
from minirt_connectors.spark.verify import Verdict, verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "LOCAL_CLUSTER",
    "SparkCluster",
    "SparkSource",
    "Verdict",
    "cluster_session",
    "is_local_cluster",
    "local_session",
    "register",
    "require_java",
    "verify",
    "write_savepoint",
]


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("minirt")` known to a session: see `checkpoints_source` for its options."""
    from minirt_connectors.spark.checkpoints_source import CheckpointsSource

    spark.dataSource.register(CheckpointsSource)
