"""Thousands of crashes: nothing is lost, and in exactly-once modes nothing appears twice."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

import minirt as rt
from minirt.modes import MODES
from minirt.modes.aligned_with_timeout import AlignedWithTimeout
from minirt.modes.epoch import Epoch
from minirt.protocol.barriers import CheckpointMode
from minirt.testing import Faults, simulate
from minirt.testing.conformance.campaign import Tally
from tests.campaigns import sampled
from tests.simulation.counting import HASTY_ROWS, MARKED, SPILLING, CountingJob, run_counting
from tests.simulation.soak import run_seed

RANDOM_JOBS = sampled(40)
COUNTING_JOBS = sampled(80)
EXACT_MODES = {
    "aligned": MODES["aligned"],
    "unaligned": MODES["unaligned"],
    "timeout": AlignedWithTimeout(timeout="5ms"),
    "size": AlignedWithTimeout(timeout=None, switch_below=100),
    "chandy_lamport": MODES["chandy_lamport"],
    "communication_induced": MODES["communication_induced"],
    "epoch": MODES["epoch"],
    "epochs in groups": Epoch(group=3),
    "uncoordinated": MODES["uncoordinated"],
}


def test_random_jobs_survive_whatever_happens(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally()
    for seed in range(RANDOM_JOBS):
        run = run_seed(seed)
        tally.add(run)
        assert run.wrong == [], f"seed {seed} ({run.mode})"
    with capsys.disabled():
        print(f"\n{tally.line()}")
    assert tally.lost == tally.duplicated == 0
    assert tally.crash_runs > 0.9 * RANDOM_JOBS
    assert tally.cuts > RANDOM_JOBS
    assert tally.in_flight > RANDOM_JOBS
    assert tally.rescales > 0.2 * RANDOM_JOBS


def test_every_exactly_once_mode_is_put_to_the_test() -> None:
    names = {name for name, mode in MODES.items() if mode.exactly_once}
    assert names == {mode.name for mode in EXACT_MODES.values()}


@pytest.mark.parametrize("mode", EXACT_MODES.values(), ids=EXACT_MODES)
def test_every_checkpoint_of_the_counting_job_is_a_consistent_cut(mode: CheckpointMode) -> None:
    for seed in range(COUNTING_JOBS // len(EXACT_MODES)):
        assert run_counting(seed, mode=mode) == [], f"seed {seed}"


@pytest.mark.parametrize("mode", EXACT_MODES.values(), ids=EXACT_MODES)
def test_what_waits_on_disk_is_part_of_a_consistent_cut_too(mode: CheckpointMode) -> None:
    for seed in range(sampled(8)):
        assert run_counting(seed, mode=mode, options=SPILLING) == [], f"seed {seed}"


@pytest.mark.parametrize("mode", EXACT_MODES.values(), ids=EXACT_MODES)
def test_rows_that_leave_on_demand_and_fill_little_are_part_of_it(mode: CheckpointMode) -> None:
    for seed in range(sampled(6)):
        assert run_counting(seed, mode=mode, options=HASTY_ROWS) == [], f"seed {seed}"


@pytest.mark.parametrize("mode", EXACT_MODES.values(), ids=EXACT_MODES)
def test_latency_markers_change_nothing_of_it(mode: CheckpointMode) -> None:
    for seed in range(sampled(4)):
        assert run_counting(seed, mode=mode, options=MARKED) == [], f"seed {seed}"


@pytest.mark.parametrize("mode", EXACT_MODES.values(), ids=EXACT_MODES)
def test_the_cut_is_looked_at(mode: CheckpointMode) -> None:
    in_flight = 0
    for seed in range(5):
        job = CountingJob([2])
        result = job.run(seed, mode=mode, faults=Faults.none())
        assert job.cuts == result.checkpoints_completed > 0
        in_flight += job.in_flight
    assert (in_flight > 0) == (mode.name not in ("aligned", "epoch"))


@pytest.mark.parametrize("name", sorted(MODES))
def test_without_faults_every_mode_gives_each_record_once(name: str) -> None:
    for seed in range(sampled(6)):
        job = CountingJob([3])
        result = job.run(seed, mode=name, faults=Faults.none()).check()
        assert result.restarts == 0
        assert job.wrong() == []


def test_at_least_once_loses_nothing_and_does_repeat() -> None:
    duplicated = 0
    for seed in range(sampled(25)):
        job = CountingJob([2, 3])
        job.run(seed, mode="at_least_once").check()
        assert job.wrong(exactly_once=False) == [], f"seed {seed}"
        duplicated += bool(job.wrong())
    assert duplicated > 0


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # Processes that vanish leave files open.
def test_files_are_committed_exactly_once(tmp_path: Path) -> None:
    for seed in range(sampled(12)):
        folder = tmp_path / str(seed)
        env = rt.Environment(parallelism=2)
        numbers = env.source(rt.SequenceSource(30, splits=3), uid="numbers")
        numbers.map(lambda n: {"n": n}).rebalance().sink(rt.JsonlSink(str(folder)), uid="out")
        simulate(env, seed=seed).check()
        rows = [line for file in folder.glob("part-*") for line in file.read_text().splitlines()]
        assert sorted(rows) == sorted(f'{{"n":{n}}}' for n in range(30)), f"seed {seed}"
    gc.collect()
