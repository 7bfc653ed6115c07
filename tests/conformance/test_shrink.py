"""The search for a smaller case: it ends at what the failure needs, within its steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from random import Random

import pytest

from minirt.testing import Faults, SimulationResult
from minirt.testing.conformance.cases import Case, Run, draw_case
from minirt.testing.conformance.graphs import build, draw_plan
from minirt.testing.conformance.oracle import Verdict
from minirt.testing.conformance.shrink import shrink, smaller

RunCase = Callable[[Case], Run]


def fails_if(needed: Callable[[Case], bool]) -> RunCase:
    def run_case(case: Case) -> Run:
        wrong = ("wrong",) if needed(case) else ()
        steps = 100 + case.seed % 7
        result = SimulationResult(case.seed, not wrong, wrong, {}, steps, 0, 0, 0, 0, Counter(), ())
        return Run(case, "m", True, result, Verdict(), 0, 0)

    return run_case


def first_failing(run_case: RunCase) -> Run:
    return next(run for seed in range(200) if (run := run_case(draw_case(seed))).wrong)


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
    run_case = fails_if(needed)
    smallest = shrink(first_failing(run_case), run_case).case
    assert needed(smallest)
    assert len(smallest.plan.stages) == stages
    assert smallest.plan.splits * smallest.plan.count == records
    strikes = sum(getattr(smallest.faults, kind.name) > 0 for kind in fields(Faults))
    assert strikes == (smallest.faults.zombies > 0) <= 1


def test_a_failure_that_needs_luck_is_tried_with_several_seeds() -> None:
    run_case = fails_if(lambda case: has_wide_count(case) and case.seed % 9 == 4)
    failed = first_failing(run_case)
    smallest = shrink(failed, run_case).case
    assert len(smallest.plan.stages) == 2
    assert smallest.seed % 9 == 4


def test_of_the_seeds_the_calmest_is_taken() -> None:
    run_case = fails_if(has_wide_count)
    assert shrink(first_failing(run_case), run_case).result.steps == 100


def test_the_search_ends_with_its_steps() -> None:
    heard: list[int] = []
    run_case = fails_if(has_wide_count)
    failed = first_failing(run_case)
    shrink(failed, run_case, steps_max=1050, on_run=lambda runs, case: heard.append(runs))
    assert heard == list(range(1, len(heard) + 1))
    assert 1050 / 106 <= len(heard) <= 1050 / 100 + 1
    assert shrink(failed, run_case, steps_max=0) is failed


def test_every_smaller_case_can_be_built() -> None:
    for seed in range(60):
        case = Case(draw_plan(Random(seed)), seed)
        for candidate in smaller(case):
            assert candidate != case
            build(candidate.plan)


def test_nothing_is_smaller_than_one_record_from_a_source_to_a_sink() -> None:
    case = replace(draw_case(0), faults=Faults.none())
    while candidates := list(smaller(case)):
        case = candidates[0]
    assert (len(case.plan.stages), case.plan.splits, case.plan.count) == (1, 1, 1)
