"""`python -m benchmarks.scale`: its workers answer as real ones do, and all is said that was measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.scale import LargeJob, large_job, main
from minirt import Options
from minirt.monitoring.monitor import JobMonitor
from minirt.protocol.reports import CheckpointUnderWay


def test_a_row_for_each_size_says_what_a_checkpoint_took(tmp_path: Path) -> None:
    target = tmp_path / "rows.json"
    arguments = ["--per-worker", "4", "--checkpoints", "2", "--json", str(target)]
    main(["--subtasks", "16", "80", *arguments])
    rows = json.loads(target.read_text())["rows"]
    assert [(row["channels"], row["mode"]) for row in rows[:4]] == [
        (channels, mode) for channels in (16, 80) for mode in ("aligned", "unaligned")
    ]
    assert [row["channels"] for row in rows[4:6]] == [16, 80]
    assert all(200 < row["channel_bytes"] < 10_000 for row in rows[4:6])
    assert [row["connections"] for row in rows[6:8]] == [4, 20]
    small, large = rows[8:]
    assert [(row["subtasks"], row["workers"]) for row in (small, large)] == [(16, 2), (80, 10)]
    for row in (small, large):
        assert (
            row["messages"] == row["workers"]
        )  # A worker acknowledges all of its subtasks at once.
        assert row["puts"] == 2
        assert row["deletes"] == 2  # An old manifest, and all of its snapshots together.
        assert row["assignment_bytes"] < 100 * row["subtasks"]
        assert row["manifest_bytes"] < 600 * row["subtasks"]
    assert large["message_bytes"] == pytest.approx(5 * small["message_bytes"], rel=0.1)


def test_what_an_old_checkpoint_has_is_deleted(tmp_path: Path) -> None:
    job = LargeJob(large_job(4), Options(placement="slots"), tmp_path)
    job.start()
    for _ in range(6):
        job.checkpoint()
    assert len(list(tmp_path.glob("chk-*/*"))) == 3 * 8


def test_observers_do_not_hear_of_each_part_where_many_come_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []

    def hear(self: JobMonitor, checkpoints: Sequence[CheckpointUnderWay]) -> None:
        told.append(checkpoints)

    monkeypatch.setattr(JobMonitor, "on_checkpoints_under_way", hear)
    job = LargeJob(large_job(100), Options(placement="slots", workers=10), tmp_path)
    job.start()
    told.clear()
    job.checkpoint()
    assert len(told) < 10
    assert next(one.stored for [one] in filter(None, told)) == 0
    assert told[-1] == ()


@pytest.mark.parametrize("arguments", [["--subtasks", "1"], ["--checkpoints", "0"]])
def test_what_cannot_be_measured_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
