"""Jobs whose storage is full for a while, and whose checkpoints another process deletes meanwhile."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from minirt.state import segments
from minirt.storage.deletion import Deletion, plan_deletion
from minirt.testing import Faults, Requests, SimulationResult, user
from tests.campaigns import sampled, seeds
from tests.simulation.aggregating import AggregatingJob

RUNS, SEEDS = sampled(8), 200
FULL = replace(Faults(), full_disks=6, storage_errors=8)
DELETES = Requests(deletes=8)

Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch: Patch) -> None:
    """Let small state be stored in many segments."""
    monkeypatch.setattr(segments, "STRETCH_MIN", 1)


def job_of(seed: int) -> AggregatingJob:
    random = Random(f"room {seed}")
    return AggregatingJob([random.randint(1, 3) for _ in range(2)], windowed=False)


def run_full(seed: int, mode: str = "aligned") -> tuple[SimulationResult, list[str]]:
    job = job_of(seed)
    result = job.run(seed, mode, FULL, retain=1)
    return result, [*result.problems, *job.wrong()]


def run_deleting(seed: int, mode: str = "aligned") -> tuple[SimulationResult, list[str]]:
    """Output may come twice, and that of an older state last: each full count must have been there."""
    job = job_of(seed)
    result = job.run(seed, mode, Faults(), DELETES)
    job.totals.rows.sort(key=lambda row: row["n"])
    return result, [*result.problems, *(text for text in job.wrong() if "ends with" in text)]


@pytest.mark.parametrize("mode", ["aligned", "unaligned"])
def test_what_failed_checkpoints_leave_is_deleted_and_nothing_else(mode: str) -> None:
    seen = Counter[str]()
    for seed in range(RUNS):
        result, wrong = run_full(seed, mode)
        assert wrong == [], f"seed {seed}"
        seen["full"] += result.faults["full_disks"]
        seen["failed"] += result.checkpoints_failed
    assert min(seen["full"], seen["failed"]) > RUNS


@pytest.mark.parametrize("mode", ["aligned", "unaligned"])
def test_a_checkpoint_that_is_deleted_by_force_takes_nothing_with_it(mode: str) -> None:
    deleted = 0
    for seed in range(RUNS):
        result, wrong = run_deleting(seed, mode)
        assert wrong == [], f"seed {seed}"
        deleted += sum("deletes Deletion" in note for note in result.trace)
    assert deleted > RUNS


# Planted bugs.


def test_files_of_the_newest_that_are_deleted_with_it(monkeypatch: Patch) -> None:
    def all_of_it(*arguments: Any, **options: Any) -> Deletion:
        planned = plan_deletion(*arguments, **options)
        return replace(planned, files=(*planned.files, *planned.left))

    monkeypatch.setattr(user, "plan_deletion", all_of_it)
    assert any(run_deleting(seed)[1] for seed in seeds(SEEDS, first=117))
