"""Figures of checkpoints that overlap, by hand and from a short run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import overlapping
from benchmarks.overlapping import MODES_THAT_OVERLAP, back_at_worst
from minirt.protocol.reports import CheckpointReport


def report(checkpoint_id: int, triggered_at: float, duration_s: float) -> CheckpointReport:
    return CheckpointReport(checkpoint_id, 1, "aligned", "checkpoint", triggered_at, duration_s, 10)


def test_a_failure_at_the_worst_moment_is_just_before_the_next_one_is_complete() -> None:
    apart = [report(1, 0.0, 3.0), report(2, 3.0, 3.0), report(3, 6.0, 2.0)]
    assert list(back_at_worst(apart)) == [6.0, 5.0]
    together = [report(1, 0.0, 3.0), report(2, 1.0, 3.0), report(3, 2.0, 3.0)]
    assert list(back_at_worst(together)) == [4.0, 4.0]
    assert list(back_at_worst(together[:1])) == []


@pytest.mark.processes
@pytest.mark.soak  # tests/runtime/test_overlapping_checkpoints.py does the same for a shorter time.
def test_more_checkpoints_complete_where_they_overlap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MODES_THAT_OVERLAP == ["aligned", "at_least_once"]
    monkeypatch.setattr(overlapping, "_WARM_S", 1.0)
    told = tmp_path / "told.json"
    command = ["--modes", "aligned", "--max-concurrent", "1", "4", "--keys", "100"]
    command += ["--seconds", "5", "--parallelism", "1", "--json", str(told)]
    monkeypatch.setattr(sys, "argv", ["-", *command])
    overlapping.main()
    alone, four = json.loads(told.read_text())["rows"]
    assert (alone["max_concurrent"], four["max_concurrent"]) == (1, 4)
    assert alone["failed"] == four["failed"] == 0
    assert 0 < alone["completed_per_s"] < four["completed_per_s"]
    assert min(alone["records_per_s"], four["records_per_s"]) > 0
