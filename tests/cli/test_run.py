"""`minirt run` as its user sees it: jobs from files, options from outside, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Call

JOB = """
import minirt as rt
from shifted import shift

class Add:
    def __call__(self, a, b):
        return a + b

env = rt.Environment("sums", parallelism=2)
numbers = env.source(rt.SequenceSource(20), uid="numbers", parallelism=1)
numbers.map(shift, uid="shift").key_by(lambda n: n % 2).reduce(Add(), uid="sums").sink(
    rt.JsonlSink("out"), uid="out"
)

if __name__ == "__main__":
    env.execute()
"""
ENDLESS = """
import time
import minirt as rt

env = rt.Environment("endless")
env.source(rt.SequenceSource(10**9)).map(lambda n: time.sleep(0.001)).sink(rt.DiscardSink())
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "shifted.py").write_text("def shift(n):\n    return n + 1\n")
    yield tmp_path
    for name in ("__minirt_job__", "shifted"):
        sys.modules.pop(name, None)


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def rows(folder: Path) -> int:
    return sum(len(path.read_text().splitlines()) for path in folder.glob("*.jsonl"))


@pytest.mark.processes
def test_a_job_runs_with_its_own_modules_and_options_from_outside(call: Call, folder: Path) -> None:
    (folder / "minirt.toml").write_text('[checkpointing]\nstorage = "in-file"\nretain = 1\n')
    arguments = ["--config", "minirt.toml", "--mode", "unaligned", "--parallelism", "3"]
    called = call("run", "job.py", *arguments, "--set", "checkpointing.storage=set", "--json")
    assert called.status == 0, called.err
    result = json.loads(called.out)
    assert (result["name"], result["status"]) == ("sums", "finished")
    assert (result["completed_checkpoints"], result["restarts"]) == (1, 0)
    assert "job 'sums' finished" in called.err
    assert rows(folder / "out") == 20
    [entry] = json.loads(call("checkpoints", "list", "set", "--json").out)
    assert entry["mode"] == "unaligned"
    assert {part["subtask"] for part in entry["subtasks"]} == {0, 1, 2}
    assert not (folder / "in-file").exists()


@pytest.mark.processes
def test_a_job_is_restored_at_another_parallelism_and_not_from_another_job(
    call: Call, folder: Path
) -> None:
    assert call("run", "job.py", "--storage", "stored").status == 0
    before = files(folder)
    again = call("run", "job.py", "--storage", "stored")
    assert again.status == 2
    assert "--restore latest" in again.err
    assert "restore=" not in again.err
    (folder / "other.py").write_text(JOB.replace('uid="sums"', 'uid="other-sums"'))
    other = call("run", "other.py", "--storage", "stored", "--restore", "latest")
    assert other.status != 0
    assert "sums" in other.err
    assert "Traceback" not in other.err
    changed = {name for name, content in files(folder).items() if before.get(name) != content}
    assert not {name for name in changed if name.startswith(("stored/manifests", "out"))}
    restored = call("run", "job.py", "--storage", "stored", "--restore", "1", "--parallelism", "3")
    assert restored.status == 0
    assert rows(folder / "out") == 20


@pytest.mark.parametrize(
    ("text", "status", "complaint"),
    [
        ("a = 1\nb = = 2\n", 2, "file.py:2: invalid syntax: b = = 2"),
        ("\0", 2, "file.py"),
        ("# coding: no-such\n", 2, "file.py"),
        ("a = 1\n", 2, "defines no Environment at its top level"),
        ("import minirt as rt\na = rt.Environment()\nb = rt.Environment()\n", 2, "say which"),
        ("\nraise SystemExit(0)\n", 2, "file.py:2: the file exits while it is loaded"),
        ("import minirt as rt\nenv = rt.Environment(parallelism=0)\n", 2, "file.py:2: Environment"),
        (JOB.replace('if __name__ == "__main__"', "if True"), 2, "runs its job while it is loaded"),
        ("def f():\n    return 1 // 0\nf()\n", 1, "ZeroDivisionError"),
        ("import not_there\n", 1, "No module named 'not_there'"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_file_that_is_no_job_is_refused(
    call: Call, folder: Path, text: str, status: int, complaint: str
) -> None:
    (folder / "file.py").write_text(text)
    before = files(folder)
    called = call("run", "file.py", "--storage", "stored")
    assert called.status == status
    assert called.out == ""
    assert called.err.startswith("minirt: error: ")
    assert complaint in called.err
    assert "job_file.py" not in called.err
    assert ("Traceback" in called.err) == (status == 1)
    assert files(folder) == before


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nowhere.py"], "cannot read the job"),
        ([""], "is a folder"),
        (["."], "is a folder"),
        (["x" * 5000], "cannot read the job"),
        (["job.py:"], "defines no Environment ''"),
        (["job.py:enw"], "did you mean env?"),
        (["job.py:rt"], "defines no Environment 'rt'"),
        (["job.py", "--parallelism", "0"], "parallelism must be a whole number above 0"),
        (["job.py", "--parallelism", "99999"], "job.py:9: Environment: parallelism 99999"),
        (["job.py", "--parallelism", "2", "--set", "parallelism=3"], "parallelism is given twice"),
        (["job.py", "--restore", "latest"], "--restore needs --storage"),
        (["job.py", "--mode", "unaligned"], "has no effect without checkpointing.storage"),
        (["job.py", "--set", "checkpointing.storge=x"], "did you mean checkpointing.storage?"),
        (["job.py", "--config", "no.toml"], "cannot read the settings no.toml"),
        (["job.py", "--name", " "], "name must be text"),
        (["job.py", "--storage", "job.py/x"], "job.py"),
        (["job.py", "--storage", "nosuch://x"], "nosuch"),
        (["job.py", "--storage", "stored", "--restore", "nowhere"], "nowhere"),
        (["job.py", "--storage", "stored", "--restore", "77"], "77"),
        (["job.py", "--allow-restore-fallback", "--storage", "s"], "has no effect"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_a_hostile_call_is_refused_and_stores_nothing(
    call: Call, folder: Path, arguments: list[str], complaint: str
) -> None:
    called = call("run", *arguments)
    assert called.status in (1, 2)
    assert complaint in called.err
    assert "Traceback" not in called.err
    assert not list(folder.rglob("*.manifest"))
    assert not (folder / "out").exists()


@pytest.mark.processes
def test_a_truncated_manifest_is_refused_by_its_name(call: Call, folder: Path) -> None:
    assert call("run", "job.py", "--storage", "stored").status == 0
    [manifest] = folder.rglob("*.manifest")
    manifest.write_bytes(manifest.read_bytes()[:-7])
    before = {path: path.read_bytes() for path in folder.rglob("*.manifest")}
    called = call("run", "job.py", "--storage", "stored", "--restore", "latest")
    assert called.status == 1
    assert manifest.name in called.err
    assert "Traceback" not in called.err
    assert {path: path.read_bytes() for path in folder.rglob("*.manifest")} == before


@pytest.mark.processes
@pytest.mark.parametrize("whole_group", [False, True], ids=["process", "terminal"])
def test_ctrl_c_cancels_the_job(folder: Path, whole_group: bool) -> None:
    (folder / "endless.py").write_text(
        ENDLESS.replace("env =", "print('loaded', flush=True)\nenv =")
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "minirt", "run", "endless.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    seen = ""
    while "running" not in seen:  # In a pipe, the state is said every few seconds.
        seen = process.stderr.readline()
        assert seen, "the job has ended"
    (os.killpg if whole_group else os.kill)(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (out, process.returncode) == ("loaded\n", 130)
    assert "SIGINT: job 'endless' is cancelled" in err
    assert "restarts in" not in err
