"""`minirt demo kafka` as its user sees it, on the first few flights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.demo_command import demo
from tests.kafka.broker import Cluster

pytestmark = pytest.mark.kafka


@pytest.mark.spark
@pytest.mark.processes
def test_workers_and_a_coordinator_are_killed_and_spark_finds_each_result_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    arguments = ["--rows", "10000", "--seconds", "6", "--seed", "1", "--json", "figures.json"]
    ran = demo(tmp_path, "kafka", "--bootstrap", cluster.bootstrap, *arguments)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    [run] = json.loads((tmp_path / "figures.json").read_text())["runs"]
    assert (run["mode"], run["rows_in"]) == ("aligned", 10000)
    assert (run["kills"], run["coordinator_kills"]) == (2, 1)
    assert run["lost"] == run["duplicated"] == run["unexpected"] == run["left_running"] == 0
    assert run["rows_out"] > 2500
    assert ran.stdout.count("SIGKILL to process ") == 2
    assert ran.stdout.count("SIGKILL to the process of the coordinator") == 1
    assert "nothing lost, duplicated or wrong" in ran.stdout
    topics = cluster.admin.list_topics(timeout=30).topics
    assert [name for name in topics if name.startswith("minirt-demo")] == []
