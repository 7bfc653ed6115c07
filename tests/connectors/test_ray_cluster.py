"""A job in the actors of a Ray cluster here: an agent and an actor are killed, and nothing is left."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import minirt as rt
from minirt.errors import ConfigurationError
from minirt.protocol.job_events import JobStatus
from tests.cluster.asked import TOKEN, Asked
from tests.runtime.campaign import compare, write_files
from tests.runtime.jobs import CASES, build
from tests.runtime.processes import children, command_line, is_alive, needs_proc, send, wait_until

if TYPE_CHECKING:
    from tests.cli.conftest import Call

pytest.importorskip("cryptography")
pytestmark = [pytest.mark.processes, needs_proc]

COUNT = 3000


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """A cluster of one node with three CPUs."""
    ray = pytest.importorskip("ray")
    path = os.pathsep.join(path for path in sys.path if path)
    ray.init(
        address="local",
        num_cpus=3,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": path}},
    )
    yield ray
    ray.shutdown()


def agents() -> list[int]:
    """The host agents below this process."""
    below = [os.getpid()]
    for pid in below:
        below += children(pid)
    return [pid for pid in below if "minirt host" in command_line(pid)]


def test_a_program_without_a_cluster_is_told_to_connect() -> None:
    ray = pytest.importorskip("ray")
    if ray.is_initialized():
        pytest.skip("another test is connected")
    from minirt_connectors.ray import RayCluster

    with pytest.raises(ConfigurationError, match=r"connect to a cluster first, by ray.init\(\)"):
        RayCluster(slots=2)


def test_a_job_on_ray_survives_its_agents_and_actors_and_leaves_nothing(
    ray: Any, tmp_path: Path
) -> None:
    from minirt_connectors.ray import RayCluster

    env = rt.Environment("keyed", parallelism=2)
    write_files(build(CASES["keyed"], env, COUNT, per_second=300.0), tmp_path)
    job = env.start(
        checkpointing=rt.Checkpointing(tmp_path / "checkpoints", interval="100ms"),
        restart=rt.Restart.fixed_delay(attempts=None, delay="10ms"),
        options=rt.Options(placement="slots"),
        cluster=RayCluster(slots=2),
    )
    try:
        for kills in range(2):
            wait_until(lambda: job.status is JobStatus.RUNNING, "the job runs", 60)
            wait_for_a_checkpoint(job)
            [victim, *_] = agents()
            send(victim if kills == 0 else parent_of(victim), signal.SIGKILL)
            wait_for_a_restart(job, kills + 1)
        result = job.wait(120)
    finally:
        job.cancel()
    assert result.status is JobStatus.FINISHED
    assert compare(CASES["keyed"], COUNT, 2, tmp_path) == (0, 0)
    wait_until(lambda: not [pid for pid in agents() if is_alive(pid)], "agents end", 30)


@pytest.mark.soak  # As on plain hosts.
def test_a_job_on_ray_is_rescaled_by_who_knows_its_url(
    ray: Any, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINIRT_TOKEN", TOKEN)
    asked = Asked(
        tmp_path, "RayCluster(slots=2)", imports="from minirt_connectors.ray import RayCluster"
    )

    def run() -> None:
        called = call("run", str(asked.file))
        assert called.status == 0, called.err

    asked.rescale_while(run)


def wait_for_a_checkpoint(job: rt.Job) -> None:
    known = job.figures.checkpoints.completed
    wait_until(lambda: job.figures.checkpoints.completed > known, "a checkpoint", 60)


def wait_for_a_restart(job: rt.Job, restarts: int) -> None:
    wait_until(lambda: job.restarts == restarts, "a restart", 60)


def parent_of(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1])
