"""The container of the compose file, without an engine: its image can be built, its job stops, goes on."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.runtime.processes import children, send, wait_until
from tests.s3.endpoint import BUCKET, ROOT, Endpoint

DOCKERFILE = (ROOT / "docker/Dockerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def service(name: str) -> dict[str, Any]:
    text = re.sub(r"\$\{[A-Z0-9_]+:-([^}]*)\}", r"\1", (ROOT / "docker-compose.yml").read_text())
    found: dict[str, Any] = yaml.safe_load(text)["services"][name]
    return found


def copied() -> list[str]:
    """What the Dockerfile takes from the repository."""
    lines = (shlex.split(line) for line in DOCKERFILE.splitlines() if line.startswith("COPY "))
    return [source for _, *sources, _ in lines for source in sources]


def test_what_is_copied_makes_the_wheel(tmp_path: Path) -> None:
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if "!" in line]
    for name in copied():
        assert any(fnmatch(name, pattern) for pattern in kept), f"{name} is not in the context"
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name)
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    named = [PROJECT["project"]["readme"], *PROJECT["project"]["license-files"]]
    packages = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    for path in (*named, *packages, PROJECT["tool"]["hatch"]["version"]["path"]):
        assert (tmp_path / path).exists(), f"the build needs {path}"


def test_the_image_is_slim_without_root_and_has_extras_that_exist() -> None:
    assert (
        re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE) == ["python:3.13.9-slim-bookworm"] * 2
    )
    last_stage = DOCKERFILE.rpartition("FROM ")[2]
    assert re.search(r"^USER runner$", last_stage, re.MULTILINE)
    extras = re.search(r"^ARG EXTRAS=(\S+)", last_stage, re.MULTILINE)
    assert extras is not None
    assert set(extras[1].split(",")) <= set(PROJECT["project"]["optional-dependencies"])
    assert 'ENTRYPOINT ["minirt"]' in last_stage


def test_only_those_who_ask_start_the_job() -> None:
    services = [service(name) for name in ("job", "standby", "page")]
    assert [each["profiles"] for each in services] == [["job"]] * 3
    assert {each["image"] for each in services} == {"minirt"}
    checkpoints = service("job")["environment"]["MINIRT_CHECKPOINTING_STORAGE"]
    assert service("page")["command"] == ["ui", checkpoints]
    assert f"s3://{BUCKET}/" in checkpoints


def test_the_standby_is_like_the_job_but_does_not_begin_it() -> None:
    job, standby = service("job"), service("standby")
    assert [one for one in job["command"] if one != "--at-once"] == standby["command"]
    assert f"--storage={job['environment']['MINIRT_CHECKPOINTING_STORAGE']}" in job["command"]
    differing = {name for name in job if job[name] != standby.get(name)}
    assert differing == {"command", "depends_on", "ports"}


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """What is mounted. Event time runs twenty times as fast, so that windows end while a test waits."""
    shutil.copytree(ROOT / "docker/job", tmp_path / "app")
    job = tmp_path / "app/job.py"
    job.write_text(job.read_text().replace("speed=1.0", "speed=20.0"))
    return tmp_path / "app"


Start = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def start(endpoint: Endpoint, prefix: str, app: Path) -> Start:
    """Starts what the container of a service runs, with a place of its own on S3."""

    def begin(name: str) -> subprocess.Popen[str]:
        ours = {
            variable: value.replace(f"s3://{BUCKET}", prefix)
            for variable, value in service(name)["environment"].items()
            if not variable.startswith(("AWS_", "MINIRT_OPTIONS_METRICS"))
        }
        minirt = [sys.executable, "-m", "minirt"]
        command = [*minirt]
        for one in service(name)["command"]:
            command += minirt if one == "minirt" else [one.replace(f"s3://{BUCKET}", prefix)]
        return subprocess.Popen(
            [*command, "--set", "checkpointing.interval=500ms"],
            cwd=app,
            env={**os.environ, **endpoint.environment, **ours, "PYTHONPATH": str(ROOT)},
            stderr=subprocess.PIPE,
            text=True,
        )

    return begin


@pytest.mark.processes
def test_the_job_stops_with_a_savepoint_and_goes_on(
    endpoint: Endpoint, prefix: str, start: Start
) -> None:
    for _ in range(2):
        before = len(rows(endpoint, prefix))
        with start("job") as program:
            assert "savepoint" in stopped_after_rows(program, endpoint, prefix, before + 6)
    each_window_once(rows(endpoint, prefix))


@pytest.mark.processes
def test_the_standby_takes_over_when_the_container_of_the_job_is_killed(
    endpoint: Endpoint, prefix: str, start: Start
) -> None:
    with start("job") as job, start("standby") as standby:
        try:
            wait_until(lambda: len(rows(endpoint, prefix)) >= 6, "output", 60)
            for pid in [*children(job.pid), job.pid]:
                send(pid, signal.SIGKILL)
            before = len(rows(endpoint, prefix))
            said = stopped_after_rows(standby, endpoint, prefix, before + 6)
        finally:
            job.kill()
            standby.kill()
    assert standby.returncode == 0
    assert "the job's program has died" in said
    assert "savepoint" in said
    each_window_once(rows(endpoint, prefix))


def each_window_once(found: list[dict[str, Any]]) -> None:
    assert max(Counter((row["shop"], row["window_start"]) for row in found).values()) == 1
    assert {row["orders"] for row in found} <= {166, 167}


def stopped_after_rows(
    program: subprocess.Popen[str], endpoint: Endpoint, prefix: str, least: int
) -> str:
    """What the program said that got SIGTERM once there was so much output."""
    try:
        wait_until(lambda: len(rows(endpoint, prefix)) >= least, f"{least} rows of output")
        program.send_signal(signal.SIGTERM)
        return program.communicate(timeout=60)[1]
    finally:
        program.kill()


def rows(endpoint: Endpoint, prefix: str) -> list[dict[str, Any]]:
    files = endpoint.filesystem()
    paths = [path for path in files.find(f"{prefix}/turnover") if path.endswith(".jsonl")]
    return [json.loads(line) for path in paths for line in files.cat_file(path).splitlines()]
