"""A Ray cluster whose nodes come and go: the parallelism of a job follows them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import minirt as rt
from tests.cluster.test_agents import finishes
from tests.cluster.test_reactive import QUICK, has
from tests.runtime.campaign import write_files
from tests.runtime.jobs import CASES, build
from tests.runtime.processes import needs_proc

pytest.importorskip("cryptography")
pytestmark = [pytest.mark.processes, pytest.mark.soak, needs_proc]

COUNT = 3000


@pytest.fixture
def nodes() -> Iterator[Any]:
    """One node with one CPU, to which the test is connected."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    path = os.pathsep.join(path for path in sys.path if path)
    try:
        ray.init(
            address=nodes.address,
            log_to_driver=False,
            runtime_env={"env_vars": {"PYTHONPATH": path}},
        )
        yield nodes
    finally:
        ray.shutdown()
        nodes.shutdown()


def test_the_parallelism_follows_the_nodes(nodes: Any, tmp_path: Path) -> None:
    from minirt_connectors.ray import RayCluster

    env = rt.Environment("keyed", parallelism=2)
    let_go = tmp_path / "let-go"
    outputs = build(CASES["keyed"], env, COUNT, per_second=200.0, let_go=let_go)
    write_files(outputs, tmp_path)
    job = env.start(
        checkpointing=rt.Checkpointing(str(tmp_path / "checkpoints"), interval="100ms"),
        restart=rt.Restart.fixed_delay(attempts=None, delay="10ms"),
        options=rt.Options(placement="slots"),
        cluster=RayCluster(slots=2, wait="10s", reactive=QUICK),
    )
    try:
        has(job, 1)
        second = nodes.add_node(num_cpus=1)
        has(job, 2)
        nodes.remove_node(second, allow_graceful=False)
        has(job, 1)
        nodes.add_node(num_cpus=1)
        has(job, 2)
        let_go.touch()
        assert finishes(job, tmp_path, count=COUNT).restarts >= 3
    finally:
        job.cancel()
