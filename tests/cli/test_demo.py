"""`minirt demo` as its user sees it, on the first few flights."""

from __future__ import annotations

import importlib
import json
import os
import re
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.demo_command import demo
from tests.runtime.processes import is_alive, wait_until

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
    "left_running",
]


@pytest.mark.spark
@pytest.mark.processes
def test_workers_are_killed_in_all_modes_and_nothing_is_lost(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    arguments = ["--rows", "12000", "--seconds", "5", "--seed", "1", "--json", "figures.json"]
    ran = demo(tmp_path, *arguments, temporary=tmp_path / "t")
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert list(figures) == ["runs"]
    aligned, unaligned, at_least_once = figures["runs"]
    for run in figures["runs"]:
        assert list(run) == FIGURES
        assert (run["kills"], run["restarts"], run["rows_in"]) == (2, 2, 12000)
        assert run["checkpoints"] >= 3
        assert run["lost"] == run["left_running"] == 0
        expected = run["rows_out"] - run["duplicated"]
        assert expected > 3000
    assert (aligned["mode"], unaligned["mode"]) == ("aligned", "unaligned")
    for run in (aligned, unaligned):
        assert run["duplicated"] == run["unexpected"] == 0
        assert run["rows_out"] == aligned["rows_out"]
    assert at_least_once["mode"] == "at_least_once"
    assert at_least_once["rows_out"] - at_least_once["duplicated"] == aligned["rows_out"]
    assert ran.stdout.count("SIGKILL to process") == 6
    assert ran.stdout.count("exactly once, nothing lost, duplicated or wrong") == 2
    assert "start delay" in ran.stdout
    assert os.listdir(tmp_path / "t") == []


@pytest.mark.spark
@pytest.mark.processes
@pytest.mark.soak  # Three Java processes take long to start where others work as well.
@pytest.mark.timeout(900)
def test_on_a_spark_cluster_a_worker_and_an_executor_are_killed_and_nothing_is_left(
    tmp_path: Path,
) -> None:
    (tmp_path / "t").mkdir()
    arguments = ["--cluster", "spark", "--mode", "unaligned", "--rows", "20000", "--seconds", "8"]
    arguments += ["--json", "figures.json"]
    ran = demo(
        *(tmp_path, *arguments),
        temporary=tmp_path / "t",
        timeout=800,
        MARK_OF_TEST=str(tmp_path),
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    [run] = json.loads((tmp_path / "figures.json").read_text())["runs"]
    assert run["kills"] == 2
    assert run["restarts"] >= 2
    assert run["lost"] == run["duplicated"] == run["unexpected"] == run["left_running"] == 0
    assert len(re.findall(r"SIGKILL to process \d+", ran.stdout)) == 1
    assert len(re.findall(r"SIGKILL to executor, process \d+", ran.stdout)) == 1
    assert "Nothing is left running" in ran.stdout
    wait_until(lambda: not marked(f"MARK_OF_TEST={tmp_path}"), "its processes end", 20)
    assert os.listdir(tmp_path / "t") == []


def marked(entry: str) -> list[int]:
    """Processes with this in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if entry.encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
        except OSError:
            continue
    return [pid for pid in found if is_alive(pid)]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--master", "local-cluster[2,2,512]"], "--master has no effect without --cluster"),
        (["--cluster", "spark", "--master", "yarn"], "kills processes of this machine"),
        (["--cluster", "spark", "--master", "yarn", "--kills", "0"], "give --keep"),
    ],
)
def test_a_cluster_whose_processes_cannot_be_killed_is_refused(
    arguments: list[str], why: str, call: Call
) -> None:
    refused = call("demo", *arguments)
    assert refused.status == 2
    assert why in refused.err


def test_without_a_broker_it_says_within_seconds_how_to_get_one(call: Call, tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka", reason="the extra kafka is not installed")
    importlib.import_module("minirt_connectors.flights.kafka_demo")  # Loading it is not counted.
    began = time.monotonic()
    refused = call("demo", "kafka", "--bootstrap", "127.0.0.1:1", "--keep", str(tmp_path))
    assert time.monotonic() - began < 10
    assert refused.status == 2
    assert "127.0.0.1:1: no broker answers" in refused.err
    assert "docker compose up --detach --wait kafka" in refused.err
    assert refused.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--bootstrap", "127.0.0.1:1"], "--bootstrap has no effect without kafka"),
        (["kafka", "--cluster", "spark"], "--cluster has no effect with kafka"),
        (["kafka", "--storage", "s3://b/p"], "--storage has no effect with kafka"),
    ],
)
def test_options_without_effect_are_refused(arguments: list[str], why: str, call: Call) -> None:
    refused = call("demo", *arguments)
    assert refused.status == 2
    assert why in refused.err
