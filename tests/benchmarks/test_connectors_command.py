"""The command `python -m benchmarks.connectors`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.servers import postgres_server
from tests.needs import ROOT


@pytest.mark.parametrize("case", ["delta", "iceberg"])
def test_commits_are_timed(case: str, tmp_path: Path) -> None:
    pytest.importorskip({"delta": "deltalake", "iceberg": "pyiceberg"}[case])
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "benchmarks.connectors", case]
    command += ["--files", "3", "--commits", "2", "--json", str(report)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=120)
    [row] = json.loads(report.read_text())["rows"]
    assert (row["case"], row["files_in_table"]) == (case, 3)
    assert 0 < row["one_file_ms"]["p50"] <= row["one_file_ms"]["max"]
    assert row["all_files_ms"]["p50"] > 0


@pytest.mark.parametrize("case", ["json-lines", "json-lines-read", "json-lines-read-short"])
def test_lines_of_json_are_timed(case: str, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "benchmarks.connectors", case]
    subprocess.run(
        [*command, "--records", "9000", "--json", str(report)], cwd=ROOT, check=True, timeout=120
    )
    [row] = json.loads(report.read_text())["rows"]
    assert min(row["columns_cpu_ns"], row["rows_cpu_ns"]) > 0


def test_a_server_is_asked_for_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.postgres.server.programs", lambda: None)
    with pytest.raises(SystemExit, match="--uri"), postgres_server(None):
        pass
