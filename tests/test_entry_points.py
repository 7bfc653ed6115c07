"""What `make` and `.ci` say before anything is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """As much of the repository as is needed to be told what is missing."""
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def java(folder: Path, said: str) -> dict[str, str]:
    """The environment of somebody whose Java answers `said`."""
    command = folder / "jdk" / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\ncat >&2 <<'EOF'\n{said}\nEOF\n")
    command.chmod(0o755)
    return {"PATH": os.environ["PATH"], "JAVA_HOME": str(folder / "jdk")}


def run(folder: Path, env: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("said", "accepted"),
    [
        ('openjdk version "17.0.9" 2023-10-17', True),
        ('Picked up JAVA_TOOL_OPTIONS: -Dversion=1\nopenjdk version "21" 2023-09-19', True),
        ('openjdk version "24-ea" 2025-03-18', True),
        ('java version "1.8.0_392"', False),
        ('openjdk version "11.0.2" 2019-01-15', False),
        ("not a version at all", False),
    ],
)
def test_java_17_and_newer_are_accepted(clone: Path, said: str, accepted: bool) -> None:
    checked = run(clone, java(clone, said), ".ci/require-java")
    assert (checked.returncode == 0) == accepted
    assert checked.stderr.count("\n") == (0 if accepted else 1)


@pytest.mark.parametrize("target", ["demo", "test"])
@pytest.mark.parametrize("present", [True, False])
def test_without_a_usable_java_make_says_so_in_one_line_and_installs_nothing(
    clone: Path, target: str, present: bool
) -> None:
    env = java(clone, 'openjdk version "11.0.2" 2019-01-15')
    if not present:
        shutil.rmtree(clone / "jdk")
    made = run(clone, env, "make", target)
    assert made.returncode != 0
    assert (made.stdout + made.stderr).count("\n") == 1
    assert "needs a JDK 17 or newer" in made.stderr
    assert "apt-get install openjdk-17" in made.stderr
    assert not (clone / ".venv").exists()


def test_without_a_usable_python_make_says_so_in_one_line(clone: Path) -> None:
    env = {**java(clone, 'openjdk version "17.0.9"'), "PYTHON": "python-of-nobody"}
    made = run(clone, env, "make", "demo")
    assert made.returncode != 0
    assert (made.stdout + made.stderr).count("\n") == 1
    assert "needs Python 3.11 or newer" in made.stderr


def test_make_alone_lists_what_there_is(clone: Path) -> None:
    made = run(clone, dict(os.environ), "make")
    for target in ("demo", "test", "lint", "soak", "bench", "clean"):
        assert f"make {target} " in made.stdout
