"""`minirt jobs`, `cancel`, `savepoint`, `stop`, `rescale`: jobs of other processes of the same user."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import minirt as rt
from minirt.operations.control import ask
from minirt.operations.registry import Registry
from tests.runtime.processes import wait_until

if TYPE_CHECKING:
    from tests.cli.conftest import Call

pytestmark = pytest.mark.processes

ENDLESS = """
import time

import minirt as rt


def slowly(number):
    time.sleep(0.002)
    return number


env = rt.Environment("endless", parallelism=1)
numbers = env.source(rt.SequenceSource(10**9), uid="numbers").map(slowly, uid="slowly")
sums = numbers.key_by(lambda n: n % 8).reduce(lambda a, b: a + b, uid="sums")
sums.sink(rt.DiscardSink(), uid="out")
"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def folder(tmp_path: Path, registry: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a registry of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text(ENDLESS)
    return tmp_path


@pytest.fixture
def start(folder: Path, call: Call) -> Iterator[Start]:
    """Starts `minirt run`, and waits until the job runs."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "minirt", "run", "job.py", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        wait_until(lambda: running(call, process.pid), "the job runs")
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def listed(call: Call) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(call("jobs", "--json").out)
    return rows


def running(call: Call, pid: int) -> bool:
    return any(row["pid"] == pid and row["status"] == "running" for row in listed(call))


def test_a_job_is_listed_asked_for_savepoints_and_stopped(
    call: Call, folder: Path, start: Start
) -> None:
    assert call("jobs").out == "no jobs are running\n"
    process = start("--storage", "stored")
    [row] = listed(call)
    assert (row["name"], row["pid"], row["restarts"]) == ("endless", process.pid, 0)
    assert row["id"] in call("jobs").out
    taken = call("savepoint", row["id"][:6], "taken", "--mode", "unaligned", "--json")
    assert taken.status == 0, taken.err
    assert json.loads(taken.out)["path"] == str(folder / "taken")
    assert json.loads(taken.out)["mode"] == "unaligned"
    again = call("savepoint", "endless", "taken")
    assert again.status == 2
    assert "taken is not empty" in again.err
    stopped = call("stop", "endless", "--savepoint", "stopped")
    assert (stopped.status, stopped.err) == (0, "")
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert f"savepoint: {folder / 'stopped'}" in out
    assert listed(call) == []
    assert not any((Path(os.environ["XDG_RUNTIME_DIR"]) / "minirt/jobs").iterdir())


def test_a_job_is_rescaled_by_the_process_that_runs_it(
    call: Call, folder: Path, start: Start
) -> None:
    process = start("--storage", "stored")
    for wrong, complaint in ((0, "parallelism must be"), (129, "above max_parallelism 128")):
        refused = call("rescale", "endless", "--", str(wrong))
        assert refused.status == 2
        assert complaint in refused.err
    called = call("rescale", "endless", "3")
    assert (called.status, called.err) == (0, "")
    wait_until(lambda: running(call, process.pid), "the job runs again")
    taken = json.loads(call("savepoint", "endless", "taken", "--json").out)
    assert taken["checkpoint_id"] >= 2
    assert call("cancel", "endless").status == 0
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "goes on from there at another parallelism" in out
    entries = json.loads(call("checkpoints", "list", "stored", "--json").out)
    assert max(part["subtask"] for part in entries[-1]["subtasks"]) == 2


REQUESTS = """
import asyncio

import minirt as rt


async def answer(number):
    await asyncio.sleep(0.05)
    return number


env = rt.Environment("requests", parallelism=2)
numbers = env.source(rt.SequenceSource(10**9), uid="numbers")
numbers.map_async(answer, uid="answers").sink(rt.DiscardSink(), uid="out")
"""


def test_a_job_that_cannot_go_on_at_another_parallelism_goes_on_at_its_own(
    call: Call, folder: Path, start: Start
) -> None:
    (folder / "job.py").write_text(REQUESTS)
    process = start("--storage", "stored")
    assert call("rescale", "requests", "3").status == 0
    wait_until(lambda: running(call, process.pid), "the job runs again")
    assert call("cancel", "requests").status == 0
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "cannot go on at parallelism 3" in out
    assert "records of one key would lose their order" in out
    entries = json.loads(call("checkpoints", "list", "stored", "--json").out)
    assert max(part["subtask"] for part in entries[-1]["subtasks"]) == 1


def test_a_job_without_checkpointing_goes_on_where_it_cannot_be_stopped_with_a_savepoint(
    call: Call, start: Start
) -> None:
    process = start()
    for command in (["stop", "endless"], ["rescale", "endless", "2"]):
        refused = call(*command)
        assert refused.status != 0
        assert "Traceback" not in refused.err
        assert running(call, process.pid)


def test_a_name_that_fits_none_or_several_is_refused_with_what_runs(
    call: Call, start: Start
) -> None:
    assert "no jobs are running" in call("cancel", "endless").err
    first, second = start(), start()
    ids = {row["pid"]: row["id"] for row in listed(call)}
    for command in (["cancel", "endless"], ["cancel", "nothing"], ["stop", ""]):
        called = call(*command)
        assert called.status == 2
        assert all(f"endless ({id})" in called.err for id in ids.values())
    assert call("cancel", ids[first.pid]).out == f"job {ids[first.pid]} cancelled\n"
    assert first.wait(60) == 130
    assert running(call, second.pid)


def test_a_killed_job_is_listed_no_more(call: Call, start: Start) -> None:
    process = start()
    process.kill()
    process.wait()
    assert listed(call) == []


def test_a_job_of_any_program_can_be_asked_with_its_token_only(folder: Path) -> None:
    env = rt.Environment("own")
    env.source(rt.SequenceSource.endless()).sink(rt.DiscardSink())
    job = env.start()
    registry = Registry.of_user()
    [entry] = registry.entries()
    path = registry.socket_path(entry)
    for request in ("status", "savepoint", "stop", "cancel"):
        with pytest.raises(rt.MinirtError, match="gave no answer"):
            ask(path, "0" * 64, {"request": request}, 30)
    with pytest.raises(rt.ConfigurationError, match="job 'own' cannot rescale"):
        ask(path, entry.token, {"request": "rescale", "parallelism": 2}, 30)
    assert ask(path, entry.token, {"request": "status"}, 30)["restarts"] == 0
    assert ask(path, entry.token, {"request": "cancel"}, 30)["status"] == "cancelled"
    assert job.wait(60).status is rt.JobStatus.CANCELLED
    assert registry.entries() == []


def test_a_job_that_cannot_be_registered_runs_all_the_same(folder, monkeypatch, caplog) -> None:
    (folder / "file").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder / "file"))
    env, sink = rt.Environment("alone"), rt.CollectSink()
    env.source(rt.SequenceSource(3)).sink(sink)
    with caplog.at_level(logging.WARNING, "minirt.job"):
        assert env.execute().status is rt.JobStatus.FINISHED
    assert sink.rows == [0, 1, 2]
    assert "`minirt jobs` will not show job 'alone': cannot list running jobs" in caplog.text


def test_a_registry_that_cannot_be_used_is_one_message(call: Call, folder, monkeypatch) -> None:
    (folder / "file").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder / "file"))
    for command in (["jobs"], ["cancel", "x"]):
        called = call(*command)
        assert (called.status, called.err.count("\n")) == (1, 1)
        assert "cannot list running jobs in" in called.err
