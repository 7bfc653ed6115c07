"""Several checkpoints and savepoints under way at once: nothing is lost, and nothing appears twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

import minirt as rt
from minirt.protocol.barrier_handler import BarrierHandler
from minirt.protocol.barriers import Barrier, Command
from minirt.protocol.commits import Commits
from minirt.protocol.manifest import SinkHandles
from minirt.protocol.pending import PendingCheckpoint
from minirt.protocol.savepoints import Savepoints
from minirt.protocol.trigger_times import TriggerTimes
from minirt.protocol.under_way import CheckpointsUnderWay
from minirt.runtime.subtask.checkpointing import SubtaskCheckpoints
from minirt.state import segments
from minirt.testing import Faults, Requests, simulate
from minirt.testing.conformance.stored import StoredCheckpoint
from tests.campaigns import sampled, seeds
from tests.simulation.aggregating import AggregatingJob
from tests.simulation.counting import CountingJob

RUNS = sampled(40, 2)
SEEDS = 300
"""Within so many each planted bug must be noticed."""

RARE = 22
"""A seed that finds what few others do."""
BUSY = 10
"""From this seed on savepoints overlap with checkpoints, and with each other, soon."""

SLOW = Faults(slow_storage=12, storage_errors=6)
REQUESTS = Requests(savepoints=40, stops=1, drains=1)

Patch = pytest.MonkeyPatch


def run(
    seed: int,
    mode: str = "aligned",
    faults: Faults = SLOW,
    requests: Requests | None = None,
    steps_max: int = 40_000,
) -> list[str]:
    """What is wrong with one run, in which up to four checkpoints are under way."""
    random = Random(f"overlapping {seed}")
    job = CountingJob([random.randint(1, 3) for _ in range(random.randint(1, 3))])
    most = random.randint(2, 4)
    result = job.run(
        *(seed, mode, faults, steps_max), requests=requests, retain=1, max_concurrent=most
    )
    return [*result.problems, *job.wrong(exactly_once=mode == "aligned")]


@pytest.fixture
def at_once(monkeypatch: Patch) -> list[list[PendingCheckpoint]]:
    """Those that were under way each time that one more began."""
    seen: list[list[PendingCheckpoint]] = []
    add = CheckpointsUnderWay.add

    def noting(self: CheckpointsUnderWay, pending: PendingCheckpoint) -> None:
        add(self, pending)
        seen.append([*self])

    monkeypatch.setattr(CheckpointsUnderWay, "add", noting)
    return seen


@pytest.mark.parametrize("mode", ["aligned", "at_least_once"])
def test_a_job_survives_whatever_happens(mode: str, at_once: list[list[PendingCheckpoint]]) -> None:
    for seed in range(RUNS):
        assert run(seed, mode) == [], f"seed {seed}"
    assert sum(len(each) > 1 for each in at_once) > RUNS
    assert any(len(each) > 2 for each in at_once)


@pytest.mark.parametrize("mode", ["aligned", "at_least_once"])
def test_savepoints_overlap_with_checkpoints_and_with_each_other(
    mode: str, at_once: list[list[PendingCheckpoint]]
) -> None:
    for seed in range(BUSY, BUSY + RUNS):
        assert run(seed, mode, requests=REQUESTS) == [], f"seed {seed}"
    savepoints = [[one.request is not None for one in each] for each in at_once]
    assert any(0 < sum(each) < len(each) for each in savepoints)
    assert any(sum(each) > 1 for each in savepoints)
    for each in at_once:
        modes = {one.barrier.mode for one in each}
        assert len(each) == 1 or modes <= {"aligned", "at_least_once"}


def test_retention_spares_a_savepoint_that_is_not_known_to_be_stored(monkeypatch: Patch) -> None:
    """A clean-up that was ordered before may come behind the manifest of a later checkpoint."""
    # As closely behind each other as they can: else clean-ups hardly ever meet a later checkpoint.
    monkeypatch.setattr(TriggerTimes, "on_full", lambda self, now: None)
    assert run(RARE, "at_least_once", requests=REQUESTS) == []
    needed = Savepoints.needed
    monkeypatch.setattr(Savepoints, "needed", lambda self, storing: needed(self, ()))
    [problem] = run(RARE, "at_least_once", requests=REQUESTS)
    assert "SavepointNotPublished" in problem


def test_without_faults_a_job_with_overlapping_checkpoints_gives_each_record_once() -> None:
    for seed in range(sampled(20, 2)):
        assert run(seed, faults=Faults.none()) == [], f"seed {seed}"


# State that builds on older snapshots.


def run_aggregating(seed: int) -> list[str]:
    """Each snapshot writes what has changed, while the ones before are still being stored."""
    random = Random(f"overlapping {seed}")
    job = AggregatingJob([random.randint(1, 3), random.randint(1, 3)], windowed=bool(seed % 2))
    result = job.run(seed, "aligned", faults=SLOW, max_concurrent=random.randint(2, 4))
    return [*result.problems, *job.wrong()]


@pytest.fixture
def short_stretches(monkeypatch: Patch) -> None:
    """Let small state be stored in many segments."""
    monkeypatch.setattr(segments, "STRETCH_MIN", 1)


@pytest.mark.usefixtures("short_stretches")
def test_state_that_builds_on_older_snapshots_survives_as_well() -> None:
    for seed in range(sampled(6, 2)):
        assert run_aggregating(seed) == [], f"seed {seed}"


# Planted bugs.


def assert_noticed(wrong: Callable[[int], Sequence[str]], *words: str, first: int = 0) -> None:
    for seed in seeds(SEEDS, first):
        if found := " ".join(wrong(seed)):
            assert any(word in found for word in words), f"seed {seed}: {found}"
            return
    pytest.fail(f"nobody noticed in {SEEDS} runs")


def test_output_of_an_earlier_checkpoint_that_the_later_one_loses(monkeypatch: Patch) -> None:
    def own(self: Commits, checkpoint_id: int) -> tuple[SinkHandles, ...]:
        return tuple(held for held in self._carried if held.checkpoint_id == checkpoint_id)

    monkeypatch.setattr(Commits, "carried", own)
    assert_noticed(run, "no consistent cut", "lost")


def test_output_of_a_later_checkpoint_that_an_earlier_one_commits(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Commits, "carried", lambda self, checkpoint_id: tuple(self._carried))
    assert_noticed(run, "no consistent cut", "duplicated", first=74)


def test_a_barrier_that_is_counted_for_the_next_checkpoint(monkeypatch: Patch) -> None:
    on_reached = BarrierHandler.on_reached

    def for_the_newest(
        self: BarrierHandler, channel: int, barrier: Barrier, *more: Any
    ) -> list[Command]:
        newest = [*self._under_way.values()][-1:]
        return on_reached(self, channel, *(one.barrier for one in newest or [barrier]), *more)  # type: ignore[arg-type]

    monkeypatch.setattr(BarrierHandler, "on_reached", for_the_newest)
    assert_noticed(lambda seed: run(seed, steps_max=10_000), "no consistent cut", "no progress")


def test_a_channel_that_the_snapshot_of_another_checkpoint_opens(monkeypatch: Patch) -> None:
    """Of a savepoint that blocks, beside checkpoints that do not."""
    unblock = BarrierHandler._unblock
    monkeypatch.setattr(BarrierHandler, "_unblock", lambda self: unblock(self)[:1])

    assert_noticed(wrong_savepoints, "no consistent cut", first=87)


@pytest.mark.usefixtures("short_stretches")
def test_a_snapshot_that_builds_on_one_before_the_last(monkeypatch: Patch) -> None:
    """The last one is still being stored, and the file of the one before holds less than it."""
    snapshot = SubtaskCheckpoints._snapshot

    def too_early(self: SubtaskCheckpoints, checkpoint_id: int) -> Any:
        if self._stored is not None:
            self._stored = (self._snapshot_id, self._stored[1])
        return snapshot(self, checkpoint_id)

    monkeypatch.setattr(SubtaskCheckpoints, "_snapshot", too_early)
    assert_noticed(run_aggregating, "do not grow", "ends with", "windows", "rows", first=31)


def wrong_savepoints(seed: int) -> list[str]:
    """Which aligned savepoints of a job whose checkpoints do not block are no consistent cuts."""
    random = Random(f"savepoints {seed}")
    job = CountingJob([random.randint(2, 3)])

    def look_at(objects: Any, path: str) -> None:
        if StoredCheckpoint(objects, path).mode == "aligned":
            job.look_at(objects, path)

    [form] = job.forms
    checkpointing = rt.Checkpointing(
        "simulated://", interval="20ms", mode="at_least_once", max_concurrent=3
    )
    faults = replace(Faults.none(), slow_storage=8)
    result = simulate(
        form,
        seed=seed,
        checkpointing=checkpointing,
        faults=faults,
        requests=Requests(savepoints=8),
        on_checkpoint=look_at,
    )
    return list(result.problems)


def test_an_aligned_savepoint_beside_checkpoints_that_do_not_block_is_a_consistent_cut() -> None:
    for seed in range(sampled(40)):
        assert wrong_savepoints(seed) == [], f"seed {seed}"
