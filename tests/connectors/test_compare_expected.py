"""`minirt compare --expect`: Spark judges what a job that ends by itself has put out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("psutil", reason="the extra lab is not installed")

from minirt.laboratory.expected import verify_expected
from minirt.laboratory.measured import read_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.cli.conftest import Call

pytestmark = pytest.mark.spark

JOB = """
import minirt as rt

env = rt.Environment("doubles")
by_number = rt.Watermarks.monotonous(timestamp=lambda n: n)
numbers = env.source(rt.SequenceSource(8000, splits=2), uid="n", watermarks=by_number, speed=0.5)
doubled = numbers.map(lambda n: {"n": n, "twice": 2 * n}, uid="double")
doubled.sink(rt.JsonlSink("out"), uid="out")
"""


def write(file: Path, numbers: range) -> None:
    file.parent.mkdir(exist_ok=True)
    rows = (json.dumps({"n": number, "twice": 2 * number}) for number in numbers)
    file.write_text("\n".join(rows) + "\n")


@pytest.mark.parametrize(
    ("there", "verdict", "missing", "twice"),
    [(range(100), "passed", 0, 0), (range(90), "failed", 10, 0), (range(110), "failed", 0, 0)],
)
def test_rows_are_judged(
    spark: SparkSession, tmp_path: Path, there: range, verdict: str, missing: int, twice: int
) -> None:
    write(tmp_path / "out/part.jsonl", there)
    write(tmp_path / "expected.jsonl", range(100))
    found = verify_expected(tmp_path / "out", str(tmp_path / "expected.jsonl"))
    assert (found.verdict, found.missing, found.twice) == (verdict, missing, twice)
    assert found.words.startswith("Spark: of 100 rows of ")


def test_output_that_cannot_be_compared_is_not_verified(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path / "out/part.jsonl", range(3))
    (tmp_path / "expected.jsonl").write_text('{"other": 1}\n')
    found = verify_expected(tmp_path / "out", str(tmp_path / "expected.jsonl"))
    assert found.verdict == "not verified"
    assert "missing other" in found.words


@pytest.mark.processes
def test_a_killed_job_puts_out_what_was_expected(
    spark: SparkSession, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text(JOB)
    write(tmp_path / "expected/part.jsonl", range(8000))
    done = call(
        *("compare", "job.py"),
        *("--modes", "unaligned", "--seconds", "6", "--repeat", "1", "--kill", "every=3s"),
        *("--expect", "expected", "--json", "all.json"),
    )
    assert done.status == 0, done.err
    [run] = read_json(tmp_path / "all.json").runs
    assert (run.verification.verdict, run.verification.expected) == ("passed", 8000)
    assert len(run.kills) == 1
    assert "of 8,000 records none is missing and none came twice" in done.out


def test_a_job_that_never_ends_cannot_be_expected_to(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text(
        JOB.replace("SequenceSource(8000, ", "SequenceSource.endless(")
    )
    write(tmp_path / "expected.jsonl", range(3))
    done = call("compare", "job.py", "--expect", "expected.jsonl")
    assert done.status == 2
    assert "--expect needs a job that ends by itself; the source n is endless" in done.err
