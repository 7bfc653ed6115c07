"""Sockets are as many as pairs of workers, however many channels there are; nothing is lost on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.many_channels import Cost, measure
from tests.runtime.processes import needs_proc

pytestmark = [pytest.mark.processes, needs_proc]

OTHER_SOCKETS = 4
"""To the coordinator: control connection and lifeline. Within the worker: a pair that wakes its loop."""
OTHER_FILES = 10
"""Standard streams, a selector, a pipe that wakes it, and what an upload has open."""
RUNNING_S_MAX = 10.0


def assert_bounded_by_workers(cost: Cost) -> None:
    """A connection each way to each other worker, whatever the number of channels."""
    assert cost.sockets <= 2 * (cost.processes - 1) + OTHER_SOCKETS
    assert cost.descriptors <= cost.sockets + OTHER_FILES


@pytest.mark.parametrize(
    ("parallelism", "workers"), [(12, 3), pytest.param(4, 2, marks=pytest.mark.soak)]
)
def test_sockets_are_bounded_by_workers_and_a_kill_loses_nothing(
    tmp_path: Path, parallelism: int, workers: int
) -> None:
    count = 10_000
    cost = measure(
        parallelism, workers, tmp_path, count=count, per_second=4_000, interval="300ms", kills=1
    )
    assert cost.processes == workers
    assert_bounded_by_workers(cost)
    assert cost.restarts == 1
    assert sorted(cost.rows) == list(range(count))


@pytest.mark.soak
@pytest.mark.parametrize("workers", [2, 8])
def test_at_parallelism_128_the_job_soon_runs_and_kills_lose_nothing(
    tmp_path: Path, workers: int
) -> None:
    count = 40_000
    cost = measure(128, workers, tmp_path, count=count, per_second=2_000, kills=3)
    assert cost.processes == workers
    assert_bounded_by_workers(cost)
    assert cost.restarts == 3
    assert sorted(cost.rows) == list(range(count))
    assert cost.running_s < RUNNING_S_MAX
