"""`minirt new`: the project that it makes runs as it stands, and its test passes."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections import defaultdict

import pytest
import yaml

import minirt
from minirt.cli.new import _TEMPLATES, Template, orders, project
from minirt.settings.build import read_settings
from tests.docs.blocks import environment


def commands(readme: str) -> list[str]:
    """The commands of a README, without what needs a container engine or a package index."""
    [block] = re.findall(r"```sh\n(.*?)```", readme, re.DOTALL)
    written = [line.partition("  #")[0].strip() for line in block.splitlines()]
    run = [one.removeprefix("pip install pytest && ") for one in written]
    return [one for one in run if not one.startswith("docker ")]


@pytest.mark.processes
@pytest.mark.parametrize("name", ["sales", "My Shop"])
def test_every_command_that_the_project_and_its_readme_print_runs(
    call, tmp_path, monkeypatch, name
):
    monkeypatch.chdir(tmp_path)
    made = call("new", name)
    assert made.status == 0
    folder = tmp_path / name
    printed = [line.strip() for line in made.out.splitlines()[1:]]
    assert printed[0] == f"cd {shlex.quote(name)}"
    of_readme = commands((folder / "README.md").read_text())
    assert {one.split()[0] for one in of_readme} == {"minirt", "cat", "python"}
    programs = f'minirt() {{ "{sys.executable}" -m minirt "$@"; }}\n'
    programs += f'python() {{ "{sys.executable}" "$@" -p no:cacheprovider; }}\n'
    for command in (*printed[1:], *of_readme):
        ran = subprocess.run(
            ["sh", "-c", programs + command],
            cwd=folder,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert ran.returncode == 0, (command, ran.stdout + ran.stderr)
        assert ran.stdout + ran.stderr, command
        assert "Traceback" not in ran.stderr, command
    lines = [
        line for file in (folder / "out").glob("*.jsonl") for line in file.read_text().splitlines()
    ]
    found = {(row["shop"], row["window_start"]): row for row in map(json.loads, lines)}
    assert len(found) == len(lines)
    revenue: dict[str, int] = defaultdict(int)
    for row in found.values():
        revenue[row["shop"]] += row["revenue"]
    expected: dict[str, int] = defaultdict(int)
    for order in orders():
        expected[order["shop"]] += max(0, order["amount"])
    assert revenue == expected


@pytest.mark.spark
@pytest.mark.processes
def test_a_project_of_spark_runs_and_is_judged_right(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = call("new", "sales", "--template", "spark")
    assert made.status == 0
    assert "python verdict.py" in made.out
    folder = tmp_path / "sales"
    for command, said in (
        (["-m", "pytest", "-q", "-p", "no:cacheprovider"], "6 passed"),
        (["-m", "minirt", "run", "job.py", "--config", "minirt.toml"], ""),
        (["verdict.py"], "verdict                 ok"),
    ):
        ran = subprocess.run(
            [sys.executable, *command],
            cwd=folder,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=400,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert said in ran.stdout
    [part, *_] = sorted((folder / "out").glob("*.jsonl"))
    part.write_text(part.read_text().replace('"orders":', '"orders":1', 1))
    ran = subprocess.run(
        [sys.executable, "verdict.py"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "unexpected               1" in ran.stdout


def test_nothing_is_overwritten(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/job.py").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "empty").mkdir()
    for name in ("full", "file"):
        called = call("new", name)
        assert called.status == 2
        assert f"{name} exists already" in called.err
    assert (tmp_path / "full/job.py").read_text() == "mine"
    assert call("new", "empty").status == 0


@pytest.mark.parametrize("name", ["-x/..", "a$b", ".hidden", "a'b", 'a"b'])
def test_a_name_that_no_job_can_have_is_refused(call, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    called = call("new", "--", name)
    assert called.status == 2
    assert list(tmp_path.iterdir()) == [] or ".." in name


@pytest.mark.parametrize("name", ["My Shop", "é", "7-days", "a_b.c"])
def test_names_that_jobs_have_are_names_of_projects(call, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    called = call("new", name)
    assert called.status == 0, called
    assert f"  cd {shlex.quote(name)}\n" in called.out
    compile((tmp_path / name / "job.py").read_text(), "job.py", "exec")
    assert f'rt.Environment("{name}"' in (tmp_path / name / "job.py").read_text()


@pytest.mark.parametrize("template", Template)
def test_every_file_is_filled_in_and_can_be_read(template):
    made = dict(project("sales", template))
    assert made.keys() == {*_TEMPLATES[template], "data/orders.jsonl"}
    assert not any("$" in text for text in made.values())
    assert minirt.__version__ in made["requirements.txt"]
    for name, text in made.items():
        if name.endswith(".py"):
            compile(text, name, "exec")
            assert f"`{name}`" in made["README.md"]
    tomllib.loads(made["minirt.toml"])


def test_the_options_of_the_container_are_known(tmp_path):
    made = dict(project("sales"))
    service = yaml.safe_load(made["compose.yml"])["services"]["job"]
    (tmp_path / "minirt.toml").write_text(made["minirt.toml"])
    read_settings(str(tmp_path / "minirt.toml"), service["environment"], [], {})
    copied = [line.split()[1:-1] for line in made["Dockerfile"].splitlines() if "COPY" in line]
    assert {name for names in copied for name in names} <= {*made, "*.whl"}
