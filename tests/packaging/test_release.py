"""What is released: versions, extras, what archives hold, and a workflow that does what .ci/run does."""

from __future__ import annotations

import importlib.util
import re
import tomllib

import pytest
import yaml
from typer.testing import CliRunner

import minirt
from minirt.cli import app
from tests.docs.blocks import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
FOR_WORK_ON_MINIRT = {"dev", "demo", "bench", "site", "all"}
GOOD = ["LICENSE", "minirt/py.typed", "connectors/minirt_connectors/py.typed"]
PAGE = "minirt/ui/page/index.html"


def release_check():
    spec = importlib.util.spec_from_file_location("release_check", ROOT / ".ci/release_check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CHECK = release_check()


def test_the_version_is_the_same_wherever_it_is_asked_for():
    said = CliRunner().invoke(app, ["--version"]).output
    assert said == f"minirt {minirt.__version__}\n"
    assert "version" in PROJECT["dynamic"]
    newest = re.search(r"^## (\S+)", (ROOT / "docs/changes.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == minirt.__version__


def test_all_has_every_extra_that_jobs_can_use():
    named, sketches = EXTRAS["all"]
    match = re.fullmatch(r"minirt\[(.*)\]", named)
    assert match is not None
    assert {*match[1].split(","), "sketches"} == set(EXTRAS) - FOR_WORK_ON_MINIRT
    assert [sketches.partition(";")[0]] == EXTRAS["sketches"]


def test_the_page_on_installing_names_every_extra():
    page = (ROOT / "docs/install.md").read_text()
    rows = re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == set(EXTRAS) - FOR_WORK_ON_MINIRT | {"all"}


def test_the_workflow_runs_every_python_that_the_package_names():
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    test, release = workflow["jobs"]["test"], workflow["jobs"]["release"]
    assert test["strategy"]["matrix"]["python"] == CHECK.supported()
    assert {"run": ".ci/run", "env": {"PYTHON": "python${{ matrix.python }}"}} in test["steps"]
    [setup] = [step for step in release["steps"] if "setup-python" in step.get("uses", "")]
    assert sorted(setup["with"]["python-version"].split()) == CHECK.supported()
    makefile = (ROOT / "Makefile").read_text()
    for job in workflow["jobs"].values():
        for step in job["steps"]:
            command, _, target = step.get("run", "").partition(" ")
            if command == "make":
                assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("form", ["problem", "wish"])
def test_a_form_for_issues_has_what_the_site_demands(form):
    content = yaml.safe_load((ROOT / f".github/ISSUE_TEMPLATE/{form}.yml").read_text())
    assert {"name", "description", "body"} <= content.keys()
    ids = [item["id"] for item in content["body"] if item["type"] != "markdown"]
    assert len(ids) == len(set(ids))
    assert all("label" in item["attributes"] for item in content["body"] if "id" in item)


def test_an_archive_with_licence_and_types_and_nothing_else_passes():
    assert list(CHECK.faults_in("minirt-1.tar.gz", [*GOOD, PAGE])) == []


@pytest.mark.parametrize(
    ("archive", "names", "fault"),
    [
        ("minirt-1.tar.gz", [*GOOD[1:], PAGE], "lacks LICENSE"),
        ("minirt-1.tar.gz", GOOD, "lacks ui/page/index.html"),
        ("minirt-1.tar.gz", [*GOOD, PAGE, "tests/api/jobs.py"], "holds tests/api/jobs.py"),
        ("minirt-1.tar.gz", [*GOOD, PAGE, "minirt/test_x.py"], "holds minirt/test_x.py"),
        ("minirt-1.whl", [*GOOD, PAGE], "would install connectors/minirt_connectors/py.typed"),
    ],
)
def test_what_an_archive_lacks_or_has_too_much_is_found(archive, names, fault):
    assert any(fault in found for found in CHECK.faults_in(archive, names))


def test_a_python_that_nobody_has_is_not_seen(tmp_path):
    assert CHECK.tried("3.99", tmp_path / "minirt.whl") == CHECK.NOT_SEEN
