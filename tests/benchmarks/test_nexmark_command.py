"""`python -m benchmarks.nexmark`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from benchmarks.nexmark import __main__ as command
from minirt.laboratory.nexmark.generator import generator
from minirt.laboratory.nexmark.schemas import KINDS
from minirt.laboratory.nexmark.workload import Workload


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["nexmark", *arguments])
    command.main()


def test_generate_writes_a_file_of_each_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_ROW_GROUP_EVENTS", 400)
    out = tmp_path / "new" / "events"
    call(monkeypatch, "generate", "--events", "1000", "--seed", "4", "--out", str(out))
    for kind in KINDS[:3]:
        expected = generator(Workload(seed=4)).events(kind, 0, 1000)
        assert pq.read_table(out / f"{kind}.parquet").to_pylist() == expected.to_pylist()


@pytest.mark.processes
def test_run_prints_a_row_a_repetition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "rows.json"
    options = ["--events", "20000", "--repeat", "1", "--no-checkpoints", "--json", str(report)]
    call(monkeypatch, "run", "--queries", "q2,q10", *options)
    rows: list[dict[str, Any]] = json.loads(report.read_text())["rows"]
    assert [(row["query"], row["system"]) for row in rows] == [("q2", "minirt"), ("q10", "minirt")]
    assert all(row["events_per_s"] > 0 < row["cpu_s_per_million"] for row in rows)


def test_speed_measures_every_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "rows.json"
    call(monkeypatch, "speed", "--events", "20000", "--json", str(report))
    rows: list[dict[str, Any]] = json.loads(report.read_text())["rows"]
    assert [(row["kind"], row["records"]) for row in rows] == [
        ("person", 400),
        ("auction", 1200),
        ("bid", 18_400),
        ("all", 20_000),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--queries", "q0,q99"], "q99"),
        (["run", "--peers", "storm"], "storm"),
        (["run", "--events", "30000"], "20000"),
        (["run", "--queries", "q0", "--rate", "0"], "rate"),
        (["speed", "--events", "0"], "--events"),
        (["run", "--repeat", "-1"], "--repeat"),
        (["generate"], "--out"),
    ],
)
def test_what_cannot_work_is_refused(
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as stopped:
        call(monkeypatch, *arguments)
    assert message in f"{stopped.value} {capsys.readouterr().err}"
