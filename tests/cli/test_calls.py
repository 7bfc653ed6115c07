"""Calls that are answered at once: help, and what is refused before anything runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Call


@pytest.mark.parametrize(
    ("command", "mentions"),
    [
        ([], ["run", "demo", "verify", "checkpoints", "conformance"]),
        (
            ["run"],
            ["JOB.PY", "--restore", "--parallelism", "--mode", "--storage", "--set", "--config"],
        ),
        (["jobs"], ["--json"]),
        (["savepoint"], ["JOB", "PATH", "--mode"]),
        (["stop"], ["JOB", "--savepoint", "--drain"]),
        (["cancel"], ["JOB"]),
        (["rescale"], ["JOB", "N"]),
        (["demo"], ["--json", "--mode", "--kills", "--keep"]),
        (["verify"], ["OUTPUT", "EXPECTED", "--keys"]),
        (["checkpoints"], ["list", "show", "diff", "verify", "export", "delete"]),
        (["conformance"], ["MODE", "--runs", "--start", "--jobs", "--seed", "--replay", "--json"]),
        (["kafka"], ["lag"]),
        (["kafka", "lag"], ["[STORAGE]", "--bootstrap", "--group", "--client-options", "--json"]),
        (["checkpoints", "list"], ["STORAGE", "--json"]),
        (["checkpoints", "show"], ["STORAGE", "[ID]", "--handles", "--json"]),
        (["checkpoints", "diff"], ["STORAGE", "ID", "[OTHER]", "--keys", "--json"]),
        (["checkpoints", "verify"], ["STORAGE", "[ID]", "--json", "exit status"]),
        (
            ["checkpoints", "export"],
            ["[ID]", "--to", "--what", "--uid", "--name", "--allow-pickle"],
        ),
        (["checkpoints", "delete"], ["STORAGE", "ID", "--yes", "--force", "--json"]),
    ],
)
def test_every_command_explains_itself(call: Call, command: list[str], mentions: list[str]) -> None:
    called = call(*command, "--help")
    assert called.status == 0
    assert [word for word in mentions if word not in called.out] == []


@pytest.mark.usefixtures("cold_starts")
def test_the_package_can_be_run_as_a_module_and_help_loads_neither_spark_nor_connectors() -> None:
    code = (
        "import runpy, sys\n"
        "sys.argv = ['minirt', '--help']\n"
        "try: runpy.run_module('minirt')\n"
        "except SystemExit as exited: status = exited.code\n"
        "loaded = {name.split('.')[0] for name in sys.modules}\n"
        "print(status, sorted(loaded & {'pyspark', 'minirt_connectors', 'pandas'}))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "0 []"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["demo", "--speed", "3"], "No such option: --speed"),
        (["fly"], "No such command 'fly'"),
        (["demo", "--mode", "both"], "'both' is not one of"),
        (["demo", "--kills", "-1"], "--kills"),
        (["demo", "--rows", "0"], "--rows"),
        (["demo", "here"], "'here' is not one of 'kafka'"),
        (["demo", "kafka", "here"], "unexpected extra argument"),
        (["verify", "only-one"], "Missing argument"),
        (["checkpoints", "list"], "Missing argument"),
        (["checkpoints", "show"], "Missing argument"),
        (["checkpoints", "diff", "here"], "Missing argument"),
        (["checkpoints", "delete", "here"], "Missing argument"),
        (["checkpoints", "export", "here", "--what", "keys"], "'keys' is not one of"),
        (["checkpoints", "export", "here", "--json"], "--json has no effect with --to -"),
        (["rescale", "job", "many"], "Invalid value for 'N'"),
        (["savepoint", "job"], "Missing argument"),
    ],
)
def test_a_wrong_call_says_what_is_wrong_with_it(
    call: Call, arguments: list[str], complaint: str
) -> None:
    called = call(*arguments)
    assert called.status == 2
    assert complaint in called.err
    assert called.out == ""


def test_no_command_at_all_shows_the_help(call: Call) -> None:
    called = call()
    assert called.status == 2
    assert "Commands:" in called.out + called.err


def test_the_demo_refuses_at_once_what_it_could_only_fail_at_in_the_end(
    call: Call, tmp_path: Path
) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine.txt").write_text("precious")
    refused = {
        ("--json", str(tmp_path / "nowhere" / "x.json")): "--json: cannot write",
        ("--json", str(full)): "--json: cannot write",
        ("--keep", str(full)): f"--keep: {full} is not empty",
        ("--keep", str(full / "mine.txt")): "--keep: cannot use",
    }
    for arguments, complaint in refused.items():
        called = call("demo", *arguments)
        assert called.status == 2
        assert called.out == ""
        assert called.err.startswith(f"minirt: error: {complaint}")
        assert called.err.count("\n") == 1
    assert (full / "mine.txt").read_text() == "precious"


def test_a_missing_java_is_one_line(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    for command in (["demo", "--json", "-"], ["verify", "a", "b"]):
        called = call(*command)
        assert called.status == 2
        assert "Java 17" in called.err.splitlines()[-1]
        assert "Traceback" not in called.err
        assert called.out == ""
