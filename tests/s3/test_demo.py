"""The demo on S3: workers are killed, and Spark verifies what is in the bucket."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.demo_command import demo
from tests.s3.endpoint import Endpoint


@pytest.mark.spark
@pytest.mark.processes
@pytest.mark.soak  # tests/cli has the demo, and test_whole_jobs.py kills on S3.
def test_two_workers_are_killed_and_nothing_is_lost_or_duplicated(
    tmp_path: Path, endpoint: Endpoint, prefix: str
) -> None:
    arguments = ["--mode", "aligned", "--rows", "20000", "--seconds", "8", "--seed", "1"]
    ended = demo(tmp_path, *arguments, "--storage", prefix, "--json", "figures.json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (run,) = json.loads((tmp_path / "figures.json").read_text())["runs"]
    assert run["rows_in"] == 20000
    assert run["rows_out"] > 5000
    assert run["kills"] == run["restarts"] == 2
    assert (run["lost"], run["duplicated"], run["unexpected"]) == (0, 0, 0)
    assert f"minirt checkpoints list {prefix}/aligned/checkpoints" in ended.stdout
    assert endpoint.secret not in ended.stdout + ended.stderr
    assert "exactly once" in ended.stdout
    assert "is not empty" in demo(tmp_path, "--storage", prefix).stderr


def test_a_storage_that_cannot_be_used_is_refused_before_spark_starts(tmp_path: Path) -> None:
    for arguments, says in [
        (["--storage", "s3://minirt-no-such-bucket/demo"], "create the bucket, or correct the URL"),
        (["--storage", "s3://minirt/demo", "--keep", "here"], "--keep has no effect"),
        (["--storage-option", "anon=true"], "no effect without --storage"),
    ]:
        refused = demo(tmp_path, *arguments)
        assert refused.returncode in (1, 2)
        (line,) = refused.stderr.splitlines()
        assert says in line
