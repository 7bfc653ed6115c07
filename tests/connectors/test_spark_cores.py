"""Cores of Spark: a streaming source beside SparkCluster finds one, is refused, or says that it waits."""

from __future__ import annotations

import os
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.errors import ConfigurationError
from minirt_connectors.spark import cores


class Context:
    """What is asked of a SparkContext."""

    def __init__(self, conf: dict[str, str], there: int = 2) -> None:
        self._conf = conf
        self.defaultParallelism = there
        self.applicationId = uuid4().hex

    def getConf(self) -> dict[str, str]:
        return self._conf


class Query:
    """What is asked of a StreamingQuery."""

    def __init__(self, name: str = "clicks") -> None:
        self.name = name
        self.isActive = True
        self.status = {"isTriggerActive": True}


@pytest.mark.parametrize(
    ("conf", "total"),
    [
        ({"spark.master": "local"}, 1),
        ({"spark.master": "local[3]"}, 3),
        ({"spark.master": "local[3, 4]"}, 3),
        ({"spark.master": "local[*]"}, os.cpu_count()),
        ({"spark.master": "local-cluster[2,3,1024]"}, 6),
        ({"spark.master": "spark://host:7077", "spark.cores.max": "5"}, 5),
        ({"spark.master": "spark://host:7077"}, None),
        (
            {
                "spark.master": "yarn",
                "spark.executor.instances": "4",
                "spark.executor.cores": "2",
            },
            8,
        ),
        (
            {
                "spark.master": "yarn",
                "spark.executor.instances": "4",
                "spark.executor.cores": "2",
                "spark.dynamicAllocation.enabled": "true",
            },
            None,
        ),
    ],
)
def test_how_many_cores_there_are_at_most(conf: dict[str, str], total: int | None) -> None:
    assert cores.cores_of(conf) == total


@given(st.integers(1, 6), st.lists(st.integers(1, 6), min_size=1, max_size=3), st.data())
def test_a_query_is_never_left_without_a_core(
    there: int, hosts: list[int], data: st.DataObject
) -> None:
    """In whatever order hosts and the query come: refused exactly if no core would be left."""
    context = Context({"spark.master": f"local[{there}]"})
    query_at = data.draw(st.integers(0, len(hosts)))
    held, active = 0, False
    for place, wanted in enumerate([*hosts, 0]):
        if place == query_at:
            if held >= there:
                with pytest.raises(ConfigurationError, match="would never get one"):
                    cores.refuse_without_core(context, "clicks")
                return
            cores.refuse_without_core(context, "clicks")
            query: Any = Query()
            cores.add_query(context, query)
            active = True
        if not wanted:
            continue
        if active and held + wanted >= there:
            with pytest.raises(ConfigurationError, match="'clicks' would never get one"):
                cores.hold(context, wanted)
            query.isActive = False
            active = False
        cores.hold(context, wanted)
        held += wanted
    cores.release(context, held)
    cores.refuse_without_core(context, "clicks")


def test_a_batch_that_waits_for_a_core_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "WAITS_LONG_S", 0.0)
    context, query = Context({"spark.master": "spark://host:7077"}), Query()
    waiting = cores.Waiting(context, query)  # type: ignore[arg-type]
    assert [waiting.look(3), waiting.look(3)] == [None, None]
    cores.hold(context, 2)
    query.status["isTriggerActive"] = False
    assert [waiting.look(3), waiting.look(3)] == [None, None]
    query.status["isTriggerActive"] = True
    told = [waiting.look(number) for number in (3, 4, 4, 4)]
    assert told[:2] == [None, None]
    assert "has been at batch 4" in str(told[2])
    assert "SparkCluster holds 2 of the 2 cores" in str(told[2])
    assert told[3] is None
