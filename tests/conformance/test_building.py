"""The kit draws jobs whose snapshots build on older ones, and finds what builds on what is not there."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from examples.lazy_mode import Lazy
from minirt.modes import MODES
from minirt.runtime.subtask.checkpointing import SubtaskCheckpoints
from minirt.state import segments
from minirt.state.dict_segments import DictSegments
from minirt.state.segments import Segments
from minirt.storage.part_writer import PartWriter
from minirt.testing.conformance.cases import Case, Run, draw_case, run_case
from minirt.testing.conformance.drawing import building_plan
from tests import campaigns

Patch = pytest.MonkeyPatch

RUNS = 40
"""Within so many runs each mistake must be found."""


def building(seed: int, mode: str) -> Run:
    return run_case(Case(building_plan(Random(f"building {seed}")), seed), MODES[mode])


@pytest.fixture
def built_on(monkeypatch: Patch) -> list[str]:
    """The older files that snapshots have referred to."""
    found: list[str] = []
    write = PartWriter.write_snapshot

    def noting(*args: Any) -> Any:
        written = write(*args)
        found.extend(reference.path for reference in written.references)
        return written

    monkeypatch.setattr(PartWriter, "write_snapshot", noting)
    return found


@pytest.mark.parametrize("mode", campaigns.modes())
def test_state_that_builds_on_older_snapshots_passes_in_every_mode(
    mode: str, built_on: list[str]
) -> None:
    least, first = segments.STRETCH_MIN, 100 * sorted(MODES).index(mode)
    for seed in range(first, first + RUNS):
        assert building(seed, mode).wrong == [], f"seed {seed}"
        if seed >= first + campaigns.sampled(3) - 1 and built_on:
            break
    assert built_on
    assert least == segments.STRETCH_MIN


def test_parts_with_barriers_between_local_snapshots_are_built_on_in_their_order() -> None:
    """The ids of local snapshots are above those of checkpoints, also where they are older."""
    for seed in (10, *range(campaigns.sampled(4))):
        assert run_case(Case(building_plan(Random(f"building {seed}")), seed), Lazy()).wrong == []


def test_some_of_the_random_jobs_are_such() -> None:
    plans = [draw_case(seed).plan for seed in range(200)]
    assert 10 <= sum(plan.stretch is not None for plan in plans) <= 40


def forget_at_once(held: Any) -> None:
    """What was handed over and never stored counts as stored."""
    held._handed_over = None


def based_on_any(checkpoints: Any, checkpoint_id: int) -> Any:
    """What was handed over last counts as stored with whatever file was stored last."""
    if checkpoints._stored is not None:
        checkpoints._members.on_stored(checkpoints._stored[1])
    checkpoints._snapshot_id = checkpoint_id
    return checkpoints._members.snapshot(), checkpoints._members.references()


UNCOORDINATED = {DictSegments: 22, Segments: 8, SubtaskCheckpoints: 9}
"""The first seed that shows a mistake in this mode; in others one of the first few does."""


@pytest.mark.parametrize("mode", ["aligned", "unaligned", "at_least_once", "uncoordinated"])
@pytest.mark.parametrize(
    ("owner", "name", "mistake"),
    [
        (DictSegments, "_take_back", forget_at_once),
        (Segments, "_take_back", forget_at_once),
        (SubtaskCheckpoints, "_snapshot", based_on_any),
    ],
    ids=["state in dicts", "state in arrays", "a subtask"],
)
def test_what_builds_on_a_checkpoint_that_was_given_up_is_caught(
    owner: type, name: str, mistake: Callable[..., Any], mode: str, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(owner, name, mistake)
    first = UNCOORDINATED[owner] if mode == "uncoordinated" else 0
    found = (building(seed, mode).wrong for seed in campaigns.seeds(RUNS, first))
    words = ("lacks", "lost", "too many", "records for", "has not")
    assert any(word in wrong for run in found for wrong in run for word in words)
