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
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.runtime.processes import wait_until
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
    assert re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE) == ["python:3.13-slim"] * 2
    last_stage = DOCKERFILE.rpartition("FROM ")[2]
    assert re.search(r"^USER runner$", last_stage, re.MULTILINE)
    extras = re.search(r"^ARG EXTRAS=(\S+)", last_stage, re.MULTILINE)
    assert extras is not None
    assert set(extras[1].split(",")) <= set(PROJECT["project"]["optional-dependencies"])
    assert 'ENTRYPOINT ["minirt"]' in last_stage


def test_only_those_who_ask_start_the_job() -> None:
    assert service("job")["profiles"] == service("page")["profiles"] == ["job"]
    assert service("job")["image"] == service("page")["image"] == "minirt"
    checkpoints = service("job")["environment"]["MINIRT_CHECKPOINTING_STORAGE"]
    assert service("page")["command"] == ["ui", checkpoints]
    assert f"s3://{BUCKET}/" in checkpoints


@pytest.mark.processes
def test_the_job_stops_with_a_savepoint_and_goes_on(
    endpoint: Endpoint, prefix: str, tmp_path: Path
) -> None:
    ours = {
        name: value.replace(f"s3://{BUCKET}", prefix)
        for name, value in service("job")["environment"].items()
        if not name.startswith(("AWS_", "MINIRT_OPTIONS_METRICS"))
    }
    shutil.copytree(ROOT / "docker/job", tmp_path / "app")
    command = [sys.executable, "-m", "minirt", *service("job")["command"]]
    # Event time runs a hundred times as fast, so that windows end while the test waits.
    job = tmp_path / "app/job.py"
    job.write_text(job.read_text().replace("speed=1.0", "speed=100.0"))
    environment = {**os.environ, **endpoint.environment, **ours, "PYTHONPATH": str(ROOT)}
    for _ in range(2):
        before = len(rows(endpoint, prefix))
        with subprocess.Popen(
            [*command, "--set", "checkpointing.interval=500ms"],
            cwd=tmp_path / "app",
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        ) as program:
            assert "savepoint" in stopped_after_rows(program, endpoint, prefix, before + 6)
    found = rows(endpoint, prefix)
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
