"""`minirt conformance`: its verdicts, its exit statuses, and what it refuses."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Call

HASTY = "minirt.testing.conformance.wrong_modes:HastyAligned"

MODULE = """
from minirt.modes.aligned import Aligned

class Own(Aligned):
    name = "own"

class Needy(Aligned):
    def __init__(self, patience):
        self.patience = patience

class Raises(Aligned):
    def on_reached(self, alignment, channel):
        return 1 // 0

own = Own()
number = 17
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_modes.py").write_text(MODULE)
    (tmp_path / "broken_modes.py").write_text("import not_installed_anywhere\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("own_modes", "broken_modes"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("mode", ["aligned", "at-least-once", "own_modes:Own", "own_modes:own"])
def test_a_right_mode_passes(call: Call, mode: str) -> None:
    called = call("conformance", mode, "--runs", "3")
    assert called.status == 0
    *_, lost, passed = called.out.splitlines()
    assert passed == "passed"
    assert re.match(r"0 records lost, (0 duplicated|\d+ repeated, which this mode may do)", lost)


@pytest.fixture
def brief_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a smaller counterexample: tests/conformance/test_shrink.py looks at how small it becomes."""
    module = import_module("minirt.testing.conformance.shrink")
    monkeypatch.setattr(module, "_SEEDS_PER_CANDIDATE", 0)
    monkeypatch.setattr(module, "_LAST_SEEDS", 5)


@pytest.mark.usefixtures("brief_search")
def test_a_wrong_mode_fails_and_the_counterexample_can_be_replayed(call: Call) -> None:
    called = call("conformance", HASTY, "--start", "115", "--runs", "2")
    assert called.status == 1
    assert "runs failed, those of the seeds " in called.out
    assert re.search(r"op0: source, \d+ splits? of \d+ records?", called.out)
    wrong = called.out.partition("what is wrong:\n")[2].splitlines()[0]
    command = called.out.splitlines()[-1].split()
    assert command[:3] == ["minirt", "conformance", HASTY]
    replayed = call(*command[1:])
    assert replayed.status == 1
    assert replayed.out.splitlines()[-1] == wrong
    assert call("conformance", "aligned", *command[3:]).status == 0


def test_one_seed_shows_all_steps(call: Call) -> None:
    called = call("conformance", "aligned", "--seed", "7")
    assert called.status == 0
    assert called.out.splitlines()[-1] == "nothing is wrong"
    assert "coordinator 1: starts, form 0" in called.out


@pytest.mark.usefixtures("brief_search")
def test_json_is_one_object_on_standard_output(call: Call) -> None:
    passed = json.loads(call("conformance", "unaligned", "--runs", "2", "--json").out)
    assert (passed["passed"], passed["runs"], passed["counterexample"]) == (True, 2, None)
    assert passed["cuts"] > 0
    called = call("conformance", HASTY, "--start", "116", "--runs", "1", "--json")
    assert called.status == 1
    failed = json.loads(called.out)
    assert failed["failures"][0]["seed"] == 116
    token = failed["counterexample"]["token"]
    replayed = json.loads(call("conformance", HASTY, "--replay", token, "--json").out)
    assert replayed == failed["counterexample"]


@pytest.mark.usefixtures("folder")
def test_a_mode_that_raises_shows_its_traceback(call: Call) -> None:
    called = call("conformance", "own_modes:Raises", "--runs", "20")
    assert called.status == 1
    assert "ZeroDivisionError" in called.out
    assert "own_modes.py" in called.out


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nowhere:Mode"], "nowhere:Mode: there is no module 'nowhere'"),
        (["minirt.nowhere:Mode"], "there is no module 'minirt.nowhere'"),
        ([":Mode"], "there is no module ''"),
        (["own_modes:Other"], "module 'own_modes' has no 'Other'"),
        (["own_modes:number"], "17 is no checkpoint mode: it lacks"),
        (["own_modes:Needy"], "cannot be called without arguments (missing a required argument"),
        (["unknown"], "chandy_lamport, communication_induced, epoch, unaligned, uncoordinated; "),
        (["aligned", "--replay", "x"], "'x' is no token of a case"),
        (["aligned", "--seed", "1", "--replay", "x"], "--seed and --replay"),
        (["aligned", "--seed", "1", "--runs", "5"], "--runs has no effect with --seed"),
        (["aligned", "--replay", "x", "--jobs", "2"], "--jobs has no effect with --replay"),
        (["aligned", "--runs", "0"], "--runs"),
        (["aligned", "--jobs", "0"], "--jobs"),
        ([], "Missing argument"),
    ],
)
def test_what_cannot_be_tested_is_refused_in_one_message(
    call: Call, arguments: list[str], complaint: str
) -> None:
    called = call("conformance", *arguments)
    assert called.status == 2
    assert complaint in called.err
    assert "Traceback" not in called.err
    assert called.out == ""


@pytest.mark.usefixtures("folder")
def test_a_module_that_cannot_be_imported_shows_its_own_error(monkeypatch) -> None:
    from minirt.cli import main

    monkeypatch.setattr(sys, "argv", ["minirt", "conformance", "broken_modes:Mode"])
    with pytest.raises(ModuleNotFoundError, match="not_installed_anywhere"):
        main()


def test_processes_find_a_mode_in_the_current_folder(folder: Path) -> None:
    arguments = ["conformance", "own_modes:Own", "--runs", "4", "--jobs", "2", "--json"]
    ran = subprocess.run(
        [sys.executable, "-m", "minirt", *arguments], cwd=folder, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["runs"] == 4
