"""The search for a smaller case: it ends at what the failure needs, within its steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from random import Random

import pytest

from minirt.modes import MODES
from minirt.testing import Faults, SimulationResult
from minirt.testing.conformance.cases import Case, Run, draw_case, run_case
from minirt.testing.conformance.drawing import draw_plan
from minirt.testing.conformance.graphs import build
from minirt.testing.conformance.shrink import shrink, smaller
from minirt.testing.conformance.stages.base import Verdict
from tests.campaigns import sampled

RunCase = Callable[[Case], Run]


def fails_if(needed: Callable[[Case], bool]) -> RunCase:
    def run(case: Case) -> Run:
        wrong = ("wrong",) if needed(case) else ()
        steps = 100 + case.seed % 7
        result = SimulationResult(
            case.seed, not wrong, wrong, {}, steps, 0, 0, 0, 0, Counter(), (), ()
        )
        return Run(case, "m", True, result, Verdict(), 0, 0)

    return run


def first_failing(run: RunCase) -> Run:
    return next(failed for seed in range(200) if (failed := run(draw_case(seed))).wrong)


def has_wide_count(case: Case) -> bool:
    stages = case.plan.stages
    return any(stage.kind == "count" and stage.parallelism[0] > 2 for stage in stages)


@pytest.mark.parametrize(
    ("needed", "stages", "records"),
    [
        (lambda case: True, 1, 1),
        (has_wide_count, 2, 1),
        (lambda case: has_wide_count(case) and case.plan.splits * case.plan.count > 5, 2, 6),
        (lambda case: case.plan.forms > 1 and case.faults.zombies > 0, 1, 1),
    ],
)
def test_only_what_the_failure_needs_is_left(
    needed: Callable[[Case], bool], stages: int, records: int
) -> None:
    run = fails_if(needed)
    smallest = shrink(first_failing(run), run).case
    assert needed(smallest)
    assert len(smallest.plan.stages) == stages
    assert smallest.plan.splits * smallest.plan.count == records
    strikes = sum(getattr(smallest.faults, kind.name) > 0 for kind in fields(Faults))
    assert strikes == (smallest.faults.zombies > 0) <= 1


def test_a_failure_that_needs_luck_is_tried_with_several_seeds() -> None:
    """The seed under which a case fails is another one when the case is."""

    def needed(case: Case) -> bool:
        return has_wide_count(case) and case.seed % 9 == len(case.plan.stages)

    run = fails_if(needed)
    smallest = shrink(first_failing(run), run).case
    assert len(smallest.plan.stages) == 2
    assert needed(smallest)


def test_of_the_seeds_the_calmest_is_taken() -> None:
    run = fails_if(has_wide_count)
    assert shrink(first_failing(run), run).result.steps == 100


def test_the_search_ends_with_its_steps() -> None:
    heard: list[int] = []
    run = fails_if(has_wide_count)
    failed = first_failing(run)
    shrink(failed, run, steps_max=1050, on_run=lambda runs, case: heard.append(runs))
    assert heard == list(range(1, len(heard) + 1))
    assert 1050 / 106 <= len(heard) <= 1050 / 100 + 1
    assert shrink(failed, run, steps_max=0) is failed


def test_every_smaller_case_can_be_built() -> None:
    for seed in range(sampled(60)):
        case = Case(draw_plan(Random(seed)), seed)
        for candidate in smaller(case):
            assert candidate != case
            build(candidate.plan)


def test_right_modes_pass_in_smaller_cases_too() -> None:
    random = Random(1)
    for seed in range(sampled(5)):
        case = draw_case(seed)
        for _ in range(6):
            case = random.choice([*smaller(case), case])
            mode = MODES[random.choice(sorted(MODES))]
            assert run_case(case, mode).wrong == [], (mode.name, case.token)


def test_nothing_is_smaller_than_one_record_from_a_source_to_a_sink() -> None:
    case = replace(draw_case(0), faults=Faults.none())
    while candidates := list(smaller(case)):
        case = candidates[0]
    assert (len(case.plan.stages), case.plan.splits, case.plan.count) == (1, 1, 1)
