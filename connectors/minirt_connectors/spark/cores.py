"""Who takes the cores of Spark in this program: hosts of jobs all the time, and queries for each batch.

The law: a query that lands batches for a job finds a core; or the job is refused; or it says that it waits.
"""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from minirt.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

WAITS_LONG_S = 60.0
"""A batch that takes longer, while hosts have all cores, waits for a core."""

_LOCAL = re.compile(r"local\[\s*(\d+|\*)\s*(?:,.*)?\]")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,.*\]")


@dataclass(slots=True)
class _Takers:
    """Of one application of Spark."""

    held: int = 0
    queries: list[StreamingQuery] = field(default_factory=list)


_TAKERS: defaultdict[str, _Takers] = defaultdict(_Takers)


def hold(context: Any, cores: int) -> None:
    """Hosts take as many cores until `release`.

    Raises ConfigurationError if a query that lands batches would never get one.
    """
    takers = _TAKERS[context.applicationId]
    takers.queries = [query for query in takers.queries if query.isActive]
    if takers.queries:
        names = ", ".join(repr(query.name) for query in takers.queries)
        _refuse_starving(context, takers.held + cores, f"the streaming query {names}")
    takers.held += cores


def release(context: Any, cores: int) -> None:
    _TAKERS[context.applicationId].held -= cores


def refuse_without_core(context: Any, name: str) -> None:
    """Raise ConfigurationError if hosts of jobs have all cores, so that this query would get none."""
    _refuse_starving(context, _TAKERS[context.applicationId].held, f"the streaming query {name!r}")


def add_query(context: Any, query: StreamingQuery) -> None:
    """The query needs a core for each batch as long as it is active."""
    _TAKERS[context.applicationId].queries.append(query)


@dataclass(slots=True)
class Waiting:
    """Notices that a query waits for a core; `look` is called again and again."""

    context: Any
    query: StreamingQuery
    _number: int | None = None
    _since: float = 0.0
    _told: bool = False

    def look(self, landed: int) -> str | None:
        """What to say, once, if the batch after `landed` batches has waited for long."""
        now, active = time.monotonic(), self.query.isActive and self.query.status["isTriggerActive"]
        if not active or landed != self._number:
            self._number, self._since = landed if active else None, now
            return None
        held, there = _TAKERS[self.context.applicationId].held, self.context.defaultParallelism
        if self._told or held < there or now - self._since < WAITS_LONG_S:
            return None
        self._told = True
        return (
            f"the streaming query {self.query.name!r} has been at batch {landed} for "
            f"{WAITS_LONG_S:g} s, and SparkCluster holds {held} of the {there} cores that Spark has: it "
            "waits for one. Give Spark more cores, or ask for fewer slots"
        )


def cores_of(conf: Any) -> int | None:
    """How many cores an application of this configuration gets at most; None if that is not said."""
    master = conf.get("spark.master", "")
    if master == "local":
        return 1
    if local := _LOCAL.fullmatch(master):
        return os.cpu_count() if local[1] == "*" else int(local[1])
    if cluster := _LOCAL_CLUSTER.fullmatch(master):
        return int(cluster[1]) * int(cluster[2])
    if conf.get("spark.cores.max"):
        return int(conf.get("spark.cores.max"))
    dynamic = conf.get("spark.dynamicAllocation.enabled", "false") == "true"
    executors = "spark.dynamicAllocation.maxExecutors" if dynamic else "spark.executor.instances"
    of_each = conf.get("spark.executor.cores")
    if not conf.get(executors) or not of_each:
        return None
    return int(conf.get(executors)) * int(of_each)


def _refuse_starving(context: Any, held: int, query: str) -> None:
    conf = context.getConf()
    there = cores_of(conf)
    needed = int(conf.get("spark.task.cpus", "1"))
    if there is not None and there - held < needed:
        raise ConfigurationError(
            f"SparkCluster takes {held} of the {there} cores of Spark for as long as its job runs, and "
            f"{query} would never get one for its batches: ask for fewer slots, or give Spark more cores"
        )
