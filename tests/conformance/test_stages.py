"""The kit draws every operator of minirt, and those that other packages register."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice
from random import Random

import pytest

from minirt.graph.operator_spec import OperatorSpec
from minirt.modes import MODES
from minirt.operators import OPERATORS
from minirt.testing.conformance.campaign import campaign
from minirt.testing.conformance.cases import draw_case, run_case
from minirt.testing.conformance.drawing import draw_plan
from minirt.testing.conformance.graphs import build
from minirt.testing.conformance.plans import Plan, Stage
from minirt.testing.conformance.stages import NOT_DRAWN, STAGES, register, registered
from minirt.testing.conformance.stages.base import StageKind
from minirt.testing.conformance.stages.windows import told
from tests import campaigns
from tests.conformance.numbering_stage import NumberingStage
from tests.operators.numbering import Numbering, NumberingOperator

RUNS = 25


@pytest.fixture
def numbering() -> Iterator[StageKind]:
    with registered(NumberingStage()) as kind:
        yield kind


def alone(kind: StageKind) -> Plan:
    """A job with one stage of this kind behind a source."""
    source = Stage("source", (), "plain", True, 1, (2,))
    stages = [source, Stage(kind.name, (0,) * kind.streams, "plain", True, 3, (2,))]
    return Plan(tuple(stages[: 1 if kind.streams == 0 else 2]), 2, 8, forms=1)


def specs(plan: Plan) -> set[type[OperatorSpec]]:
    [env] = build(plan).forms
    return {type(operator.spec) for operator in env.graph().operators.values()}


def test_every_operator_of_minirt_is_drawn_or_there_is_a_reason() -> None:
    drawn = set().union(*(specs(alone(kind)) for kind in STAGES.values()))
    assert drawn | NOT_DRAWN.keys() == set(OPERATORS)
    assert not drawn & NOT_DRAWN.keys()
    assert all(NOT_DRAWN.values())


@pytest.mark.parametrize("kind", STAGES.values(), ids=STAGES)
def test_a_stage_by_itself_does_what_it_says(kind: StageKind) -> None:
    for seed in range(campaigns.sampled(3)):
        case = draw_case(seed)
        run = run_case(type(case)(alone(kind), seed), MODES["unaligned"])
        assert run.wrong == []
        assert run.cuts > 0 or run.result.checkpoints_completed == 0


def test_a_window_tells_of_records_whatever_they_have_come_through() -> None:
    one, other = (("op0", 2, 0), 10, []), (("op0", "met", 0), 10, [])
    assert told("op1", 0, 0, 20, [one, other]) == told("op1", 0, 0, 20, [other, one])


def test_a_name_stands_for_one_kind(numbering: StageKind) -> None:
    assert register(numbering) is numbering
    with pytest.raises(ValueError, match="a kind of stage called 'numbering' already"):
        register(NumberingStage())


def test_what_is_registered_is_drawn(numbering: StageKind) -> None:
    plans = [draw_plan(Random(seed)) for seed in range(RUNS)]
    found = [plan for plan in plans if any(stage.kind == "numbering" for stage in plan.stages)]
    assert len(found) > RUNS / 4
    assert any(plan.forms > 1 for plan in found)
    assert any(Numbering in specs(plan) for plan in found if plan.forms == 1)


@pytest.mark.parametrize("mode", campaigns.modes())
def test_an_operator_from_outside_passes_in_every_mode(mode: str, numbering: StageKind) -> None:
    cases = map(draw_case, count(sorted(MODES).index(mode) * RUNS))
    drawn = (case.seed for case in cases if any(s.kind == numbering.name for s in case.plan.stages))
    seeds = list(islice(drawn, campaigns.runs(6)))
    *_, tally = campaign(lambda seed: run_case(draw_case(seed), MODES[mode]), seeds)
    assert [failed.wrong for failed in tally.failures] == []
    assert tally.restarts > 0
    assert tally.rescales > 0
    assert tally.lost == tally.duplicated == 0


@pytest.mark.parametrize(("mode", "first"), [("aligned", 26), ("at_least_once", 11)])
def test_an_operator_from_outside_that_forgets_its_state_is_caught(
    mode: str, first: int, numbering: StageKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NumberingOperator, "restore", lambda *args, **kwargs: None)
    seeds = campaigns.seeds(8 * RUNS, first)
    runs = (run_case(draw_case(seed), MODES[mode]) for seed in seeds)
    assert any("the state of op" in wrong for run in runs for wrong in run.wrong)
