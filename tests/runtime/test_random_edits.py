"""Random jobs, edited again and again between a checkpoint with full queues and its restore.

Every restore gives exactly the right output, in order, or is refused with the edge and the ways out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

import minirt.protocol.redistribution as redistribution
from minirt.data.batch import Batch
from minirt.errors import ConfigurationError, UserCodeError
from minirt.graph.execution import Link
from minirt.protocol.restore_options import RestoreOptions
from minirt.protocol.topology import Order
from minirt.runtime.input.recovered import RestoredInput
from minirt.runtime.subtask.chain import Chain
from minirt.testing.conformance.cases import is_refusal
from minirt.testing.conformance.drawing import (
    branched_plan,
    draw_plan,
    edited,
    ordered_plan,
    rechained_plan,
    renamed_plan,
)
from minirt.testing.conformance.graphs import build
from minirt.testing.conformance.oracle import judge
from minirt.testing.conformance.plans import Plan
from tests.campaigns import sampled
from tests.runtime.stepped import SteppedJob

RUNS = sampled(12)
SEEDS = 20
"""Within so many each planted bug must be noticed."""
RECORDS = 40
"""Of each split: enough to fill queues."""

MODES = ("unaligned", "unaligned", "unaligned", "aligned")
Patch = pytest.MonkeyPatch


def run(plan: Plan, random: Random, folder: Path) -> tuple[list[str], int, int]:
    """What was wrong, how many restores went well, and how many were refused."""
    plan = replace(plan, count=RECORDS)
    job, restore, last, done, refused = build(plan), RestoreOptions(), 0, 0, 0
    turns = [random.randrange(plan.forms) for _ in range(4)]
    for form in [0, *turns]:
        mode = random.choice(MODES)
        try:
            stepped = SteppedJob(job.forms[form], folder, mode=mode, restore=restore)
        except ConfigurationError as error:
            if not is_refusal(error):
                return [f"not told what to do: {error}"], done, refused
            assert form != last, "a job must restore what it has stored itself"
            refused += 1
            continue
        done, last, restore = done + bool(restore.which), form, RestoreOptions("latest")
        stepped.work(random.randrange(6))
        stepped.clog()
        going_on = not stepped.over and stepped.try_checkpoint()
        stepped.leave()
        if not going_on:
            break
    if not stepped.over:
        SteppedJob(job.forms[last], folder, restore=restore).finish()
    return judge(job, exactly_once=True).wrong, done, refused


def edited_random_plan(random: Random) -> Plan:
    return edited(draw_plan(random, stages=3, records=60), random)


PLANS: dict[str, Callable[[Random], Plan]] = {
    "any": edited_random_plan,
    "renamed": renamed_plan,
    "rechained": rechained_plan,
    "branched": branched_plan,
    "ordered": ordered_plan,
}


def first_wrong(kind: str, folder: Path, runs: int = SEEDS) -> str:
    """What the first run notices that notices anything."""
    for seed in range(runs):
        random = Random(f"{kind} {seed}")
        wrong, _, _ = run(PLANS[kind](random), random, folder / f"{kind}-{seed}")
        if wrong:
            return f"seed {seed}: {wrong[0]}"
    return ""


@pytest.mark.parametrize("kind", PLANS)
def test_edited_jobs_are_restored_right_or_refused(kind: str, tmp_path: Path) -> None:
    restored = refused = 0
    for seed in range(RUNS):
        random = Random(f"{kind} {seed}")
        wrong, well, badly = run(PLANS[kind](random), random, tmp_path / f"{seed}")
        assert wrong == [], f"seed {seed}"
        restored, refused = restored + well, refused + badly
    assert restored > RUNS
    assert (refused > 0) is (kind in ("any", "renamed"))


def test_uids_that_have_moved_and_are_taken_for_the_old_ones(
    monkeypatch: Patch, tmp_path: Path
) -> None:
    monkeypatch.setattr(redistribution, "doubtful_uids", lambda manifest, topology: set())
    assert "lost" in first_wrong("renamed", tmp_path)


def test_records_that_come_to_the_head_of_a_chain_instead(
    monkeypatch: Patch, tmp_path: Path
) -> None:
    process = Chain.process
    monkeypatch.setattr(Chain, "process", lambda self, batch, i, place: process(self, batch, i))
    with pytest.raises(UserCodeError, match="failed on record"):
        first_wrong("rechained", tmp_path)


def test_records_that_come_to_another_branch(monkeypatch: Patch, tmp_path: Path) -> None:
    process = Chain.process

    def to_first(self: Chain, batch: Batch, input_index: int, place: int = 0) -> None:
        siblings = self._vertex.fed_by(self._vertex.feeders[place - 1]) if place else [0]
        process(self, batch, input_index, siblings[0])

    monkeypatch.setattr(Chain, "process", to_first)
    assert "lost" in first_wrong("branched", tmp_path)


def test_checkpoints_that_do_not_wait_for_records_within_a_chain(
    monkeypatch: Patch, tmp_path: Path
) -> None:
    monkeypatch.setattr(RestoredInput, "capturable", True)
    assert first_wrong("rechained", tmp_path)


def test_pointwise_edges_whose_records_are_captured(monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.setattr(Link, "capturable", True)
    monkeypatch.setattr(Link, "order", Order.NONE)
    assert "were counted in the order" in first_wrong("ordered", tmp_path)
