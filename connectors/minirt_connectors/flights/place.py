"""Where the jobs of a demo run, and what can be killed there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from minirt import ConfigurationError, HostCluster
from minirt_connectors.flights.demo import PARALLELISM
from minirt_connectors.flights.killer import Choice, any_worker, worker_or_executor
from minirt_connectors.spark import SparkCluster, cluster_session, is_local_cluster, local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_APP = "minirt-demo"
_SLOTS = 2 * PARALLELISM
"""As many again as the job needs: what an executor takes along is there once more."""


@dataclass(frozen=True, slots=True)
class Place:
    """A Spark session, which writes the input and judges the output, and perhaps runs the workers."""

    spark: SparkSession
    cluster: HostCluster | None
    choose: Choice
    where: str
    """As a part of a sentence."""

    @classmethod
    def here(cls) -> Place:
        """Workers are processes of this machine, and Spark has threads only."""
        return cls(local_session(_APP), None, any_worker, "this machine")

    @classmethod
    def on_spark(cls, master: str) -> Place:
        """Workers run on the executors of a Spark cluster."""
        spark = cluster_session(_APP, master)
        cluster = SparkCluster(spark, slots=_SLOTS)
        return cls(spark, cluster, worker_or_executor, f"the Spark cluster {master}")


def refuse_what_cannot_be_killed(master: str, kills: int, shared: bool) -> None:
    """Raises ConfigurationError: `shared` says whether the user has named a folder for all files."""
    if is_local_cluster(master):
        return
    if kills:
        raise ConfigurationError(
            f"--master {master}: the demo kills processes of this machine; give --kills 0, or a "
            "local-cluster[executors,cores,MB]"
        )
    if not shared:
        raise ConfigurationError(
            f"--master {master}: its executors read and write files; give --keep with a folder "
            "that they share"
        )
