"""`minirt demo` as its user sees it, on the first few flights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FIGURES = [
    "mode",
    "kills",
    "restarts",
    "checkpoints",
    "rows_in",
    "rows_out",
    "lost",
    "duplicated",
    "unexpected",
]


@pytest.mark.spark
@pytest.mark.processes
def test_workers_are_killed_in_all_modes_and_nothing_is_lost(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    arguments = ["--rows", "20000", "--seconds", "8", "--seed", "1", "--json", "figures.json"]
    demo = subprocess.run(
        [sys.executable, "-m", "minirt", "demo", *arguments],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path / "t")},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert demo.returncode == 0, demo.stderr
    assert demo.stderr == ""
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert list(figures) == ["runs"]
    aligned, unaligned, at_least_once = figures["runs"]
    for run in figures["runs"]:
        assert list(run) == FIGURES
        assert (run["kills"], run["restarts"], run["rows_in"]) == (2, 2, 20000)
        assert run["checkpoints"] >= 3
        assert run["lost"] == 0
        expected = run["rows_out"] - run["duplicated"]
        assert expected > 5000
    assert (aligned["mode"], unaligned["mode"]) == ("aligned", "unaligned")
    for run in (aligned, unaligned):
        assert run["duplicated"] == run["unexpected"] == 0
        assert run["rows_out"] == aligned["rows_out"]
    assert at_least_once["mode"] == "at_least_once"
    assert at_least_once["rows_out"] - at_least_once["duplicated"] == aligned["rows_out"]
    assert demo.stdout.count("SIGKILL to process") == 6
    assert demo.stdout.count("exactly once, nothing lost, duplicated or wrong") == 2
    assert "start delay" in demo.stdout
    assert os.listdir(tmp_path / "t") == []
