"""Chains with branches under every kind of fault: beside those that are drawn among all random jobs."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from minirt.graph.planner import build_execution_graph
from minirt.modes import MODES
from minirt.modes.aligned import Aligned
from minirt.protocol.barriers import CheckpointMode
from minirt.runtime.subtask import fan_out
from minirt.testing.conformance.cases import Case, draw_case, run_case
from minirt.testing.conformance.drawing import branched_plan
from minirt.testing.conformance.graphs import build
from minirt.testing.conformance.plans import Plan
from tests.campaigns import modes, sampled, seeds

SEEDS = 60
"""Within so many a planted bug must be noticed."""


def branched(seed: int, mode: CheckpointMode) -> Sequence[str]:
    return run_case(Case(branched_plan(Random(f"branched {seed}")), seed), mode).wrong


def branches(plan: Plan) -> int:
    """How many operators of a job, in all its forms, feed several others of their chain."""
    vertices = [
        v for form in build(plan).forms for v in build_execution_graph(form.graph()).vertices
    ]
    return sum(vertex.feeders.count(at) > 1 for vertex in vertices for at in {*vertex.feeders})


@pytest.mark.parametrize("mode", modes())
def test_chains_with_branches_lose_nothing(mode: str) -> None:
    for seed in range(sampled(8, 4)):
        assert branched(seed, MODES[mode]) == [], seed


def test_random_jobs_have_branches() -> None:
    assert sum(branches(branched_plan(Random(f"branched {seed}"))) > 0 for seed in range(20)) > 15
    assert sum(branches(draw_case(seed).plan) > 0 for seed in range(100)) > 10


def test_branches_that_get_the_same_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "_copy_of", lambda custody, batch: batch)
    assert any(branched(seed, Aligned()) for seed in seeds(SEEDS))
