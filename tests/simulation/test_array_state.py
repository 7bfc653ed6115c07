"""Aggregates whose snapshots build on older ones survive crashes and rescales; planted bugs do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minirt.operators.windows import tumbling
from minirt.state import segments
from minirt.state.array_table import ArrayTable
from minirt.state.frozen import FrozenKeys, FrozenSlots
from minirt.state.keyed import KeyedState
from minirt.state.segments import Segments
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.part_writer import PartWriter
from tests.campaigns import modes, sampled, seeds
from tests.simulation.aggregating import run_aggregating

RUNS = sampled(2)
BUILDING = 1
"""From this seed on the first few snapshots build on older ones, in every mode."""
SEEDS = 300

Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch: Patch) -> None:
    """Let small state be stored in many segments."""
    monkeypatch.setattr(segments, "STRETCH_MIN", 1)


@pytest.mark.parametrize("mode", modes(exactly_once=True))
def test_aggregates_survive_whatever_happens(mode: str, monkeypatch: Patch) -> None:
    built_on = 0
    write = PartWriter.write_snapshot

    def counting(*args: Any) -> Any:
        nonlocal built_on
        written = write(*args)
        built_on += len(written.references)
        return written

    monkeypatch.setattr(PartWriter, "write_snapshot", counting)
    for seed in range(BUILDING, BUILDING + RUNS):
        assert run_aggregating(seed, mode) == [], f"seed {seed}"
    assert built_on > RUNS


def assert_noticed(first: int = 0, *, windowed: bool = False) -> None:
    for seed in seeds(SEEDS, first):
        if run_aggregating(seed, windowed=windowed):
            return
    pytest.fail(f"nobody noticed in {SEEDS} runs")


def test_a_change_that_is_forgotten(monkeypatch: Patch) -> None:
    change = Segments.change
    monkeypatch.setattr(Segments, "change", lambda self, slots: change(self, slots[1:]))
    assert_noticed(first=4)


def test_a_segment_that_is_dropped_too_early(monkeypatch: Patch) -> None:
    paths = Segments.paths
    monkeypatch.setattr(Segments, "paths", lambda self: paths(self)[1:])
    assert_noticed(first=11)


def test_a_segment_that_was_not_stored(monkeypatch: Patch) -> None:
    def forget(self: Segments) -> None:
        self._handed_over = None

    monkeypatch.setattr(Segments, "_take_back", forget)
    assert_noticed(first=114)


def test_a_key_group_that_gets_lost(monkeypatch: Patch) -> None:
    restore = ArrayTable.restore

    def wrong_groups(self: Any, data: bytes, groups: Any, max_parallelism: int) -> None:
        wrong = groups and range(groups.start + 1, groups.stop)
        restore(self, data, wrong, max_parallelism)

    monkeypatch.setattr(ArrayTable, "restore", wrong_groups)
    assert_noticed(first=97)


def test_a_window_that_is_given_out_again(monkeypatch: Patch) -> None:
    """What was given out of a window that is not closed yet must not be pending after a restore."""
    restore = ArrayTable.restore

    def all_pending(self: ArrayTable, *args: Any) -> None:
        restore(self, *args)
        self.hold_back(np.arange(len(self)))

    monkeypatch.setattr(tumbling, "CHUNK_KEYS", 2)
    monkeypatch.setattr(ArrayTable, "restore", all_pending)
    assert_noticed(windowed=True)


def test_a_change_of_a_row_that_is_forgotten(monkeypatch: Patch) -> None:
    change = KeyedState.change
    monkeypatch.setattr(KeyedState, "change", lambda self, keys: change(self, list(keys)[1:]))
    assert_noticed(windowed=True, first=4)


def test_slots_that_change_before_they_are_copied(monkeypatch: Patch) -> None:
    monkeypatch.setattr(FrozenSlots, "before_change", lambda self, slots: None)
    assert_noticed(first=10)


def test_keys_that_change_before_they_are_copied(monkeypatch: Patch) -> None:
    monkeypatch.setattr(FrozenKeys, "before_change", lambda self, keys: None)
    assert_noticed(first=62, windowed=True)


def test_segments_that_are_restored_in_the_wrong_order(monkeypatch: Patch) -> None:
    read_state = CheckpointStorage.read_state

    def newest_first(*args: Any) -> Any:
        return reversed(list(read_state(*args)))

    monkeypatch.setattr(CheckpointStorage, "read_state", newest_first)
    assert_noticed(first=12)
