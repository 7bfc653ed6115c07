"""The kit finds wrong modes, lets right ones pass, and gives the same verdict again."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from importlib import import_module
from typing import ClassVar

import pytest

from minirt.errors import ConfigurationError
from minirt.modes import MODES
from minirt.modes.aligned import Aligned
from minirt.modes.at_least_once import AtLeastOnce
from minirt.protocol.barriers import Alignment, BlockChannel, CheckpointMode, Command
from minirt.testing.conformance import check_mode
from minirt.testing.conformance.campaign import campaign
from minirt.testing.conformance.cases import Case, Run, draw_case, in_words, run_case
from minirt.testing.conformance.plans import Plan, Stage
from minirt.testing.conformance.report import counterexample
from minirt.testing.conformance.shrink import shrink
from minirt.testing.conformance.wrong_modes import ForgetfulUnaligned, HastyAligned
from tests.campaigns import runs, sampled, seeds, soaked

RUNS = 60
"""Within so many runs each wrong mode must be noticed."""


class OverconfidentAtLeastOnce(AtLeastOnce):
    exactly_once: ClassVar[bool] = True


class LossyAtLeastOnce(HastyAligned):
    exactly_once: ClassVar[bool] = False


class NeverUnblocks(Aligned):
    """Blocks the first channel again as soon as it is unblocked."""

    def on_arrived(self, alignment: Alignment, channel: int) -> list[Command]:
        return [BlockChannel(channel)] if len(alignment.channels) > 2 else []


class Raises(Aligned):
    def on_reached(self, alignment: Alignment, channel: int) -> list[Command]:
        raise ZeroDivisionError("in the mode")


class AnswersNothing(Aligned):
    def on_arrived(self, alignment: Alignment, channel: int) -> list[Command]:
        return None  # type: ignore[return-value]


def first_failure(mode: CheckpointMode, first: int = 0) -> Run:
    tried = (run_case(draw_case(seed), mode) for seed in seeds(RUNS, first))
    return next(run for run in tried if run.wrong)


def size(case: Case) -> tuple[int, int, int]:
    stages = case.plan.stages
    subtasks = sum(max(stage.parallelism) for stage in stages)
    return len(stages), subtasks, case.plan.splits * case.plan.count


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_built_in_modes_pass(mode: CheckpointMode) -> None:
    wanted = sampled(9)
    tally = check_mode(mode, runs=wanted)
    assert tally.runs == wanted
    assert tally.cuts > wanted
    assert tally.rescales > 0
    assert tally.lost == tally.duplicated == 0


def has_no_cut(run: Run) -> bool:
    return any("no consistent cut" in problem for problem in run.wrong)


@pytest.mark.parametrize(
    "mode", [HastyAligned(), *soaked(ForgetfulUnaligned())], ids=lambda m: m.name
)
def test_a_subtly_wrong_mode_is_caught_with_a_smaller_counterexample(mode: CheckpointMode) -> None:
    tally = next(campaign(lambda seed: run_case(draw_case(seed), mode), range(14, 14 + runs(12))))
    assert 0 < len(tally.failures) < tally.cuts / 4, "most of its checkpoints are right"
    failures = [one for one in tally.failures if has_no_cut(one)]
    failed = min(failures, key=lambda run: (-run.case.plan.forms, run.result.steps))
    smallest = shrink(failed, partial(run_case, mode=mode), steps_max=40_000)
    assert has_no_cut(smallest)
    smaller, original = size(smallest.case), size(failed.case)
    assert all(new <= old for new, old in zip(smaller, original, strict=True))
    assert smaller < original
    assert smaller[0] <= 3
    assert smallest.case.plan.forms == 1


def test_a_mode_that_claims_too_much_is_caught() -> None:
    tried = (run_case(draw_case(seed), OverconfidentAtLeastOnce()) for seed in seeds(RUNS))
    assert any("has too many" in problem for run in tried for problem in run.wrong)


def test_a_mode_that_may_repeat_must_not_lose() -> None:
    assert any("lacks" in problem for problem in first_failure(LossyAtLeastOnce()).wrong)


def test_a_wrong_mode_shows_in_the_output_as_well() -> None:
    runs = (
        run_case(draw_case(seed), HastyAligned(), look_into_checkpoints=False)
        for seed in seeds(5 * RUNS, first=196)
    )
    assert any("lost" in wrong for run in runs for wrong in run.wrong)


def test_a_channel_that_stays_blocked_is_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module(run_case.__module__), "STEPS_MAX", 20_000)
    assert "made no progress" in first_failure(NeverUnblocks(), first=10).wrong[0]


def test_a_mode_that_raises_is_shown_with_its_own_traceback() -> None:
    [wrong] = first_failure(Raises(), first=8).wrong
    assert "mode 'aligned' raised in on_reached" in wrong
    assert "test_kit.py" in wrong
    assert wrong.strip().endswith("ZeroDivisionError: in the mode")


def test_a_mode_that_answers_no_commands_is_told_so() -> None:
    [wrong] = first_failure(AnswersNothing()).wrong
    assert "must answer on_arrived with a list of commands, not None" in wrong


def test_a_check_that_fails_shows_the_counterexample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module(shrink.__module__), "_SEEDS_PER_CANDIDATE", 0)
    with pytest.raises(AssertionError, match=r"(?s)op0: source.*the last steps.*what is wrong"):
        check_mode(HastyAligned(), runs=2, start=1)


def test_the_trace_ends_where_the_problem_shows_and_tells_what_the_mode_ordered() -> None:
    run = first_failure(HastyAligned())
    (problem,) = run.wrong
    manifest = problem.partition(": ")[0]
    assert any(f"create {manifest}" in line for line in run.result.trace[-60:])
    orders = [line for line in run.result.trace if "of checkpoint" in line]
    assert any("BlockChannel(" in line for line in orders)
    assert any("on_arrived(0) of checkpoint 1: nothing to do" in line for line in orders)
    assert problem in "\n".join(counterexample(run))


def test_a_token_is_the_whole_case() -> None:
    for seed in range(20):
        case = draw_case(seed)
        assert Case.from_token(case.token) == case
    first, again = (run_case(Case.from_token(case.token), Aligned()) for _ in range(2))
    assert first.result == again.result == run_case(case, Aligned()).result


@pytest.mark.parametrize("token", ["", "x", "täglich", draw_case(1).token[:-4], "eNqrBQAAfAB7"])
def test_what_is_no_token_is_refused(token: str) -> None:
    with pytest.raises(ConfigurationError, match="is no token of a case; copy all"):
        Case.from_token(token)


def aligned_run(seed: int) -> Run:
    return run_case(draw_case(seed), Aligned())


@pytest.mark.soak  # A command in tests/cli/test_conformance.py takes two processes as well.
def test_two_processes_come_to_the_same_tally(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module(campaign.__module__), "CHUNK_RUNS", 2)
    alone = [deepcopy(tally) for tally in campaign(aligned_run, range(3))]
    together = [deepcopy(tally) for tally in campaign(aligned_run, range(3), jobs=2)]
    assert [tally.runs for tally in alone] == [2, 3]
    assert alone == together


def test_a_case_in_words() -> None:
    stages = (
        Stage("source", (), "plain", True, 1, (1, 2, 3)),
        Stage("count", (0,), "impure", True, 1, (2, 3, 3)),
        Stage("filter", (1,), "broadcast", False, 4, (3, 3, 3)),
    )
    words = list(in_words(Case(Plan(stages, splits=2, count=8, forms=3), seed=2)))
    assert words == [
        "op0: source, 2 splits of 8 records, watermarks bounded, parallelism 1 then 2 then 3",
        "op1: count by key of op0 (impure), 1 key, parallelism 2 then 3",
        "op2: filter of op1 (broadcast), not chained, parallelism 3",
        "out2: sink of op2",
        "faults: at most 2 worker_crashes, 1 user_errors, 1 hangs, 2 coordinator_crashes, 1 zombies,"
        " 4 storage_errors, 3 slow_storage, 2 unexpected_errors, 2 clock_jumps",
        "schedule and options: seed 2",
    ]
