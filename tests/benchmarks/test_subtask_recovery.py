"""The check of what workers that come back have put out, with planted mistakes, and the whole command."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import subtask_recovery
from benchmarks.subtask_recovery import Found, check_output
from tests.runtime.processes import needs_proc

KEYS, GIVEN = 6, 40


def pairs() -> Any:
    numbers = np.arange(GIVEN)
    return np.column_stack([numbers, numbers // KEYS + 1])[
        np.random.default_rng(1).permutation(GIVEN)
    ]


def test_each_number_once_with_the_count_of_its_key_is_right() -> None:
    found = check_output(pairs(), GIVEN, KEYS)
    assert found == Found(lost=0, repeated=0, invented=0, miscounted=0)
    assert found.exactly_once


def miscounted() -> Any:
    """State that was restored from an older snapshot."""
    changed = pairs()
    changed[changed[:, 0] == 30, 1] -= 1
    return changed


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        (pairs()[1:], Found(1, 0, 0, 0)),
        (pairs()[pairs()[:, 0] != GIVEN - 1], Found(1, 0, 0, 0)),
        (np.concatenate([pairs(), pairs()[:2]]), Found(0, 2, 0, 0)),
        (np.concatenate([pairs(), [[GIVEN, GIVEN // KEYS + 1]]]), Found(0, 0, 1, 0)),
        (np.concatenate([pairs(), [[-1, 0]]]), Found(0, 0, 1, 0)),
        (miscounted(), Found(0, 0, 0, 1)),
        (pairs()[:0], Found(GIVEN, 0, 0, 0)),
    ],
    ids=[
        "one lost",
        "the last lost",
        "two repeated",
        "one too far",
        "one below",
        "count",
        "all lost",
    ],
)
def test_whatever_else_is_there_is_found(wrong: Any, found: Found) -> None:
    assert check_output(wrong, GIVEN, KEYS) == found
    assert not found.exactly_once


@pytest.mark.processes
@needs_proc
@pytest.mark.soak  # Other tests kill subtasks that come back alone.
@pytest.mark.parametrize("scope", ["subtask", "job"])
@pytest.mark.parametrize("state", ["dicts", "arrays"])
def test_killed_workers_come_back_and_put_out_everything_once(
    scope: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subtask_recovery, "_BEFORE_S", 1.0)
    monkeypatch.setattr(subtask_recovery, "_AFTER_S", 3.0)
    told = tmp_path / "told.json"
    command = ["--workers", "2", "--rate", "2000", "--keys", "500", "--interval", "300ms"]
    command += ["--kills", "2", "--scope", scope, "--state", state]
    monkeypatch.setattr(sys, "argv", ["-", *command, "--json", str(told)])
    assert subtask_recovery.main() == 0
    [row] = json.loads(told.read_text())["rows"]
    assert (row["kills"], row["restarts"]) == (2, 2 if scope == "job" else 0)
    assert (row["lost"], row["repeated"], row["miscounted"]) == (0, 0, 0)
    assert row["records"] > 2 * 500
