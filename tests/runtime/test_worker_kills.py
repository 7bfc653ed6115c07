"""Workers killed with SIGKILL at any moment, again and again: nothing is lost, nothing comes twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from examples.lazy_mode import Lazy
from minirt.monitoring.monitor import JobMonitor
from tests.runtime.campaign import Outcome, Plan, run
from tests.runtime.processes import needs_proc

pytestmark = [pytest.mark.processes, needs_proc]


def run_with_kills(plan: Plan, folder: Path) -> Outcome:
    """A job that was over before all kills were sent, on a busy machine, runs once more, and for longer."""
    outcome = run(plan, folder / "first")
    if outcome.kills == plan.kills and outcome.restarts:
        return outcome
    assert not outcome.lost
    assert not outcome.duplicated or plan.mode == "at_least_once"
    return run(replace(plan, per_second=plan.per_second / 8), folder / "longer")


@pytest.mark.parametrize(
    "plan",
    [
        Plan("keyed", seed=1),
        Plan("keyed", parallelism=3, placement="slots", seed=2),
        Plan("postponed", placement="slots", seed=3),
        Plan("reduced", placement="slots", transport="tcp", seed=4),
        Plan("connected", placement="slots", seed=6),
        Plan("keyed", "uncoordinated", seed=10),
        Plan("keyed", "communication_induced", seed=11),
    ],
    ids=lambda plan: f"{plan.case}-{plan.mode}-{plan.parallelism}-{plan.placement}",
)
def test_a_job_whose_workers_are_killed_puts_out_everything_exactly_once(plan, tmp_path):
    outcome = run_with_kills(plan, tmp_path)
    assert outcome.kills == plan.kills
    assert outcome.restarts >= 1
    assert (outcome.lost, outcome.duplicated) == (0, 0)


@pytest.mark.parametrize(("case", "mode"), [("keyed", "aligned"), ("postponed", "at_least_once")])
def test_checkpoints_that_overlap_outlive_kills(case, mode, tmp_path, monkeypatch):
    """Results of "postponed" do not depend on how often a record counts in state."""
    at_once = []
    monkeypatch.setattr(
        JobMonitor, "on_checkpoints_under_way", lambda self, all: at_once.append(len(all))
    )
    plan = Plan(case, mode, interval="5ms", max_concurrent=4, kills=4, seed=13)
    outcome = run_with_kills(plan, tmp_path)
    assert outcome.restarts >= 1
    assert max(at_once) > 1
    assert outcome.lost == 0
    assert not outcome.duplicated or mode == "at_least_once"


def test_a_mode_with_a_family_of_its_own_outlives_kills(tmp_path):
    """By checkpoints of both kinds: of local snapshots, and with barriers."""
    outcome = run_with_kills(Plan("keyed", Lazy(every=2), seed=12), tmp_path)
    assert outcome.restarts >= 1
    assert outcome.checkpoints >= 2
    assert (outcome.lost, outcome.duplicated) == (0, 0)


@pytest.mark.parametrize("case", ["postponed", "sides"])
def test_at_least_once_loses_nothing(case, tmp_path):
    outcome = run_with_kills(Plan(case, "at_least_once", seed=8), tmp_path)
    assert outcome.restarts >= 1
    assert outcome.lost == 0


def test_the_template_may_be_killed_as_well(tmp_path):
    outcome = run_with_kills(Plan("keyed", kills=3, template_kills=2, seed=9), tmp_path)
    assert outcome.kills == 3
    assert (outcome.lost, outcome.duplicated) == (0, 0)
