"""The simulator itself: it replays, it ends, and it says what went wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import asdict, replace
from functools import cache
from random import Random

import pytest

import minirt as rt
from minirt.modes.aligned import Aligned
from minirt.protocol.barriers import Alignment, Command
from minirt.testing import Faults, SimulationResult, TransactionalSink, simulate
from minirt.testing.clock import SimulatedClock
from minirt.testing.schedule import Actor, Schedule, StalledError
from tests.campaigns import sampled, seeds
from tests.simulation.counting import CountingJob
from tests.simulation.soak import run_seed

TRACE_HASH = (
    "import hashlib, logging; logging.disable(50);"
    "from tests.simulation.soak import run_seed;"
    "traces = [repr(run_seed(seed).result.trace) for seed in range({})];"
    "print([hashlib.md5(trace.encode()).hexdigest() for trace in traces])"
)


@cache
def result_of(seed: int) -> SimulationResult:
    return run_seed(seed).result


def job(sink: TransactionalSink) -> rt.Environment:
    env = rt.Environment(parallelism=2)
    env.source(rt.SequenceSource(20), uid="numbers").rebalance().sink(sink, uid="out")
    return env


def test_a_seed_takes_the_same_steps_again() -> None:
    for seed in range(sampled(10, 2)):
        assert result_of(seed) == run_seed(seed).result


def test_a_seed_takes_the_same_steps_in_any_process() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", TRACE_HASH.format(sampled(8, 2))],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_different_seeds_take_different_steps() -> None:
    assert len({result_of(seed).steps for seed in range(10)}) > 5


def test_every_kind_of_fault_strikes() -> None:
    by_default = {name for name, most in asdict(Faults()).items() if most}
    struck: set[str] = set()
    for seed in range(60):
        struck.update(result_of(seed).faults)
        if struck == by_default:
            return
    pytest.fail(f"{struck ^ by_default} in 60 runs")


def test_faults_strike_as_often_as_they_may_at_most() -> None:
    faults = replace(Faults.none(), coordinator_crashes=1)
    kinds: set[str] = set()
    for seed in range(sampled(30)):
        result = simulate(job(TransactionalSink()), seed=seed, faults=faults).check()
        assert result.faults.total() <= 1
        kinds |= set(result.faults)
    assert kinds == {"coordinator_crashes"}


def test_without_faults_nothing_fails_or_restarts() -> None:
    for seed in range(sampled(30)):
        sink = TransactionalSink()
        result = simulate(job(sink), seed=seed, faults=Faults.none()).check()
        assert sorted(sink.rows) == list(range(20))
        assert (result.restarts, result.checkpoints_failed, result.faults.total()) == (0, 0, 0)


def test_a_job_that_goes_on_for_ever_made_no_progress() -> None:
    env = rt.Environment()
    env.source(rt.SequenceSource.endless(), uid="numbers").sink(TransactionalSink(), uid="out")
    result = simulate(env, seed=1, steps_max=500)
    assert not result.finished
    assert result.problems == ("made no progress: not over after 500 steps",)
    with pytest.raises(AssertionError, match=r"(?s)seed 1: made no progress.*\n.*coordinator \d"):
        result.check()


def test_an_error_that_nobody_injected_is_a_problem() -> None:
    env = rt.Environment()
    env.source(rt.SequenceSource(3), uid="numbers").map(lambda n: 1 // (n - 1)).sink(
        TransactionalSink(), uid="out"
    )
    result = simulate(env, seed=1, restart=rt.Restart.none(), faults=Faults.none())
    assert not result.finished
    assert any("ZeroDivisionError" in problem for problem in result.problems)


def test_a_sink_is_emptied_first_and_can_be_used_again() -> None:
    sink = TransactionalSink()
    for seed in range(3):
        result = simulate(job(sink), seed=seed).check()
        assert sorted(sink.rows) == sorted(result.committed["out"]) == list(range(20))


class Forgetful(Aligned):
    """A user's own mode, with a mistake: it does not wait at barriers."""

    name = "forgetful"

    def on_reached(self, alignment: Alignment, channel: int) -> list[Command]:
        return [c for c in super().on_reached(alignment, channel) if alignment.all_reached]


def test_a_mode_of_the_user_is_put_to_the_test() -> None:
    assert any(_wrong_with(Forgetful(), seed) for seed in seeds(40))
    assert not any(_wrong_with(Aligned(), seed) for seed in range(sampled(40, 4)))


def _wrong_with(mode: object, seed: int) -> list[str]:
    counting = CountingJob([2])
    result = counting.run(seed, mode=mode)
    return [*result.problems, *counting.wrong()]


class Waiting(Actor):
    """Has nothing to do for so many seconds."""

    def __init__(self, schedule: Schedule, wait_s: float) -> None:
        super().__init__()
        self._clock = schedule.clock
        self._at = self._clock.monotonic() + wait_s

    @property
    def gone(self) -> bool:
        return False

    @property
    def wake_at(self) -> float | None:
        return self._at

    def act(self) -> bool:
        return self._clock.monotonic() >= self._at


def waiting(wait_s: float) -> Schedule:
    random = Random(1)
    schedule = Schedule(random, SimulatedClock(random, 0.001), 1000)
    schedule.add(Waiting(schedule, wait_s))
    return schedule


def test_time_that_passes_within_an_access_is_no_longer_than_the_access() -> None:
    schedule = waiting(100.0)
    schedule.run(50, until=lambda: False, longest_wait_s=10.0)
    assert schedule.clock.elapsed < 10.0
    schedule.run(50, until=lambda: False, longest_wait_s=1000.0)
    assert schedule.clock.elapsed > 99.0


def test_a_job_that_only_waits_for_state_to_expire_stands_still() -> None:
    waiting(3600.0).step()
    with pytest.raises(StalledError, match="made no progress"):
        waiting(365 * 86_400.0).step()


def test_whoever_waits_for_what_is_done_later_is_asked_once_more() -> None:
    """The last zombie dies so, and its job is then started again."""
    schedule = waiting(365 * 86_400.0)
    done: list[str] = []
    schedule.later(3, lambda: done.append("the last zombie dies"))
    while not done:
        schedule.step()
    with pytest.raises(StalledError, match="made no progress"):
        schedule.step()
