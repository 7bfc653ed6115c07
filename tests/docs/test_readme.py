"""Everything that the README tells a newcomer to type works as it stands."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from minirt.cli import app
from tests.docs.blocks import (
    ROOT,
    blocks,
    run_python,
    sleeping_until_checkpoints,
)
from tests.docs.shell import run_commands

README = ROOT / "README.md"


@pytest.mark.processes
def test_the_first_job_survives_what_the_readme_does_to_it(tmp_path):
    _, program = blocks(README, "python")
    [commands] = blocks(README, "bash")
    (tmp_path / "first_job.py").write_text(program)
    ran = run_commands(sleeping_until_checkpoints("totals") + commands, tmp_path)
    assert ran.returncode == 0, ran.stderr
    *said, count = ran.stdout.splitlines()
    assert re.fullmatch(r"finished after \d+ checkpoints", said[-1])
    assert count.strip() == "600"
    assert "restarts in 0.05 s: worker" in ran.stderr
    assert _totals_are_right(tmp_path)


@pytest.mark.processes
def test_the_shortest_job_prints_its_counts(tmp_path):
    shortest, _ = blocks(README, "python")
    printed = run_python(shortest, tmp_path)
    assert sorted(printed) == sorted(
        f"({word!r}, {n})"
        for word, count in {"to": 2, "be": 2, "or": 1, "not": 1}.items()
        for n in range(1, count + 1)
    )


def test_every_other_command_is_known():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    known = extras["optional-dependencies"]
    commands = [line for block in blocks(README, "sh") for line in block.splitlines()]
    for command in commands:
        words = command.partition("#")[0].split()
        if words[0] == "minirt":
            assert words[1] in {one.callback.__name__ for one in app.registered_commands}
            continue
        assert words[:2] == ["pip", "install"]
        extra = re.fullmatch(r"'?\.(?:\[(\w+)\])?'?", words[2])
        assert extra is not None
        assert extra[1] is None or extra[1] in known


def test_no_other_kind_of_block_hides_code_from_these_tests():
    fences = re.findall(r"^```(\S+)", README.read_text(), re.MULTILINE)
    assert set(fences) == {"python", "bash", "sh", "text"}


def test_it_is_short():
    assert len(README.read_text().splitlines()) < 150


CASES = {
    "sum by key of columns, million records/s": "keyed-sum-columns",
    "sum by key with Python functions, million/s": "keyed-sum-rows",
    "count in windows, million/s": "tumbling-count",
}


def test_its_figures_beside_others_are_those_that_the_page_on_performance_has_measured():
    measured: dict[tuple[str, str], float] = {}
    case = ""
    for row in _rows(ROOT / "docs/performance.md"):
        if len(row) == 6 and re.fullmatch(r"[\d.]+", row[2]):
            case = row[0] or case
            measured[case, row[1]] = float(row[2])
    head, *rows = [row for row in _rows(README) if len(row) == 6]
    assert head == ["", "minirt", "Flink", "Spark Structured Streaming", "Bytewax", "Pathway"]
    compared = set()
    for label, *cells in rows:
        for system, cell in zip(
            ("minirt", "flink", "spark", "bytewax", "pathway"), cells, strict=True
        ):
            if label in CASES and cell:
                name = (
                    "pyflink" if (system, CASES[label]) == ("flink", "keyed-sum-rows") else system
                )
                assert float(cell.strip("*")) == pytest.approx(
                    measured[CASES[label], name], rel=0.03
                )
                compared.add((CASES[label], name))
    assert compared == {key for key in measured if key[0] in CASES.values()}


def _rows(page: Path) -> list[list[str]]:
    lines = page.read_text().splitlines()
    return [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")
    ]


def _totals_are_right(folder) -> bool:
    """Ten users, and the last total of each is the sum of its amounts."""
    last: dict[str, dict] = {}
    for file in (folder / "out/totals").glob("*.jsonl"):
        for line in file.read_text().splitlines():
            row = json.loads(line)
            if row["time"] >= last.get(row["user"], row)["time"]:
                last[row["user"]] = row
    totals = {user: row["amount"] for user, row in last.items()}
    return totals == {f"user-{u}": sum(n % 7 for n in range(u, 600, 10)) for u in range(10)}
