"""Jobs that are reached by URL and token: every command does what it does to a job of this machine."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import socket
import stat
import subprocess
import sys
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import minirt as rt
from minirt.operations.access import ControlUrl, certificate_of
from minirt.operations.registry import Registry
from minirt.operations.running import RemoteJob
from tests.cli.test_jobs import ENDLESS
from tests.jobs import paced_numbers
from tests.runtime.jobs import numbers_of
from tests.runtime.processes import wait_until

if TYPE_CHECKING:
    from tests.cli.conftest import Call

pytest.importorskip("cryptography")
pytestmark = pytest.mark.processes

TOKEN = "the token of the test, 32 at least"


@pytest.fixture
def elsewhere(tmp_path: Path, registry: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registry that knows nothing of the job, as on another host; the job has one of its own."""
    (tmp_path / "job.py").write_text(ENDLESS)
    monkeypatch.setenv("MINIRT_TOKEN", TOKEN)
    monkeypatch.delenv("MINIRT_TOKEN_FILE", raising=False)
    monkeypatch.chdir(tmp_path)
    return registry


class Program:
    """`minirt run` as on another host, with a control port at `url`."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder)}
        command = [sys.executable, "-m", "minirt", "run", "job.py", *arguments]
        self.said: list[str] = []
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        self.url = ""
        while not self.url:
            line = self.line()
            if "other hosts reach the job by " in line:
                self.url = line.split()[6].rstrip(",")

    def line(self) -> str:
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        assert line, self.said
        self.said.append(line)
        return line

    def end(self) -> tuple[int, str]:
        """The exit status, and all that it has said."""
        _, err = self.process.communicate(timeout=60)
        return self.process.returncode, "".join(self.said) + err


Start = Callable[..., Program]


@pytest.fixture
def start(elsewhere: Path, tmp_path: Path) -> Iterator[Start]:
    programs: list[Program] = []
    there = elsewhere.parent.parent / "there"  # Paths of sockets must be short.

    def start(*arguments: str, control: str = "127.0.0.1:0") -> Program:
        given = ("--storage", "stored", "--set", f"options.control={control}", *arguments)
        programs.append(Program(there, *given))
        return programs[-1]

    yield start
    for program in programs:
        program.process.kill()
        program.process.communicate()


def row(call: Call, url: str) -> dict[str, Any]:
    called = call("jobs", url, "--json")
    assert (called.status, called.err) == (0, "")
    [row] = json.loads(called.out)
    return row  # type: ignore[no-any-return]


def test_every_command_reaches_a_job_by_its_url(call: Call, start: Start, tmp_path: Path) -> None:
    program = start()
    url = program.url
    assert call("jobs").out == "no jobs are running\n"
    wait_until(lambda: row(call, url)["status"] == "running", "the job runs")
    told = row(call, url)
    assert (told["name"], told["pid"], told["control"]) == ("endless", program.process.pid, url)
    assert "endless" in call("jobs", url).out
    figures = json.loads(call("top", url, "--json").out)
    assert figures["name"] == "endless"
    taken = call("savepoint", url, str(tmp_path / "taken"), "--mode", "unaligned", "--json")
    assert taken.status == 0, taken.err
    assert json.loads(taken.out)["path"] == str(tmp_path / "taken")
    again = call("savepoint", url, str(tmp_path / "taken"))
    assert again.status == 2
    assert "taken is not empty" in again.err
    refused = call("savepoint", url, "taken-too")
    assert refused.status == 2
    assert "give a URL or an absolute path of its host" in refused.err
    assert "running" in call("history", url).out
    assert call("advise", url).status == 0
    stopped = call("stop", url, "--savepoint", str(tmp_path / "stopped"))
    assert (stopped.status, stopped.err) == (0, "")
    assert (tmp_path / "stopped").is_dir()
    status, said = program.end()
    assert status == 0
    assert TOKEN not in said
    gone = call("cancel", url)
    assert (gone.status, gone.err.count("\n")) == (2, 1)
    assert "nobody listens at" in gone.err


def test_a_rescaled_job_keeps_its_url_if_its_port_is_given(call: Call, start: Start) -> None:
    free = free_port()
    program = start(control=f"127.0.0.1:{free}")
    url = program.url
    wait_until(lambda: row(call, url)["status"] == "running", "the job runs")
    first = row(call, url)["id"]
    refused = call("rescale", url, "129")
    assert refused.status == 2
    assert "above max_parallelism 128" in refused.err
    called = call("rescale", url, "3")
    assert (called.status, called.err) == (0, "")
    wait_until(lambda: other_that_runs(call, url, first), "the job runs again")
    wait_until(lambda: parallelism_of_source(call, url) == [3], "three subtasks have told figures")
    assert call("cancel", url).out == f"job {url} cancelled\n"
    assert program.end()[0] == 130


def other_that_runs(call: Call, url: str, first: str) -> bool:
    """Whether another job than the first one answers there, and runs. In between nobody listens."""
    called = call("jobs", url, "--json")
    rows = json.loads(called.out) if called.status == 0 else []
    return [(row["id"] != first, row["status"]) for row in rows] == [(True, "running")]


def parallelism_of_source(call: Call, url: str) -> list[int]:
    """Of the subtasks that have told figures by now; empty if none has."""
    operators = json.loads(call("top", url, "--json").out)["operators"]
    return [operator["parallelism"] for operator in operators[:1]]


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


def test_the_live_page_shows_and_stops_a_job_by_its_url(call: Call, start: Start) -> None:
    pytest.importorskip("uvicorn")
    program = start()
    wait_until(lambda: row(call, program.url)["status"] == "running", "the job runs")
    command = [sys.executable, "-m", "minirt", "ui", "--port", "0", program.url]
    page = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert page.stdout is not None
        shown = urllib.parse.urlsplit(page.stdout.readline().strip())
        assert shown.port is not None
        token = shown.query.partition("=")[2]
        cookie = {"cookie": f"minirt_ui_{shown.port}={token}"}
        snapshot = json.loads(asked(shown.port, "GET", "/api/snapshot", cookie))
        assert snapshot["job"]["name"] == "endless"
        acting = {
            **cookie,
            "origin": f"http://127.0.0.1:{shown.port}",
            "content-type": "application/json",
        }
        answer = json.loads(asked(shown.port, "POST", "/api/cancel", acting))
        assert answer["status"] == "cancelled"
    finally:
        page.terminate()
        page.communicate(timeout=60)
    assert program.end()[0] == 130


def asked(port: int, method: str, path: str, headers: dict[str, str]) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, "{}" if method == "POST" else None, headers)
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, body
        return body
    finally:
        connection.close()


def test_who_asks_in_a_wrong_way_gets_one_line(
    call: Call, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = start()
    other = ControlUrl(ControlUrl.parse(program.url).address, certificate_of("x" * 32).fingerprint)

    def refused(url: str, status: int = 2) -> str:
        called = call("cancel", url)
        assert (called.status, called.out, called.err.count("\n")) == (status, "", 1), called.err
        return called.err

    assert "shows another certificate" in refused(str(other))
    assert "the fingerprint of the job's certificate" in refused(other.place)
    assert "cannot be reached" in refused(
        program.url.replace("127.0.0.1", "nosuch.invalid"), status=1
    )
    monkeypatch.setenv("MINIRT_TOKEN", "x" * 32)
    assert "has another token" in refused(program.url)
    monkeypatch.delenv("MINIRT_TOKEN")
    assert "a job is asked by URL with its token" in refused(program.url)
    assert "is no URL of a job" in call("jobs", "endless").err
    monkeypatch.setenv("MINIRT_TOKEN", TOKEN)
    wait_until(lambda: row(call, program.url)["status"] == "running", "the job has not noticed")


# In a program.


def endless() -> rt.Environment:
    env = rt.Environment("own")
    paced_numbers(env).sink(rt.DiscardSink())
    return env


def test_a_token_that_was_made_is_in_a_file_beside_the_entry(
    call: Call, registry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("MINIRT_TOKEN", "MINIRT_TOKEN_FILE"):
        monkeypatch.delenv(variable, raising=False)
    job = endless().start(options=rt.Options(control="127.0.0.1:0"))
    [entry] = Registry.of_user().entries()
    file = registry / f"{entry.id}.token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert job.control_url is not None
    assert entry.control == job.control_url
    assert job.control_url in call("jobs").out
    monkeypatch.setenv("MINIRT_TOKEN_FILE", str(file))
    assert call("cancel", job.control_url).status == 0
    assert job.wait(60).status is rt.JobStatus.CANCELLED
    assert list(registry.iterdir()) == []


def test_strangers_at_its_port_do_not_harm_a_job(
    registry: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MINIRT_TOKEN", TOKEN)
    count, sink, env = 3000, rt.CollectSink(), rt.Environment("own")
    numbers_of(env, count, "numbers", per_second=1000).sink(sink)
    job = env.start(options=rt.Options(control="127.0.0.1:0"))
    assert job.control_url is not None
    url = ControlUrl.parse(job.control_url)
    silent = [socket.create_connection(url.address) for _ in range(300)]
    for noise in (b"GET / HTTP/1.1\r\n\r\n", secrets.token_bytes(100_000), b""):
        for _ in range(10):
            with socket.create_connection(url.address) as visitor, suppress(ConnectionError):
                visitor.sendall(noise)
    assert RemoteJob(url, TOKEN).ask({"request": "status"}, 30)["restarts"] == 0
    with pytest.raises(rt.ConfigurationError, match="has another token"):
        RemoteJob(url, "x" * 32).ask({"request": "cancel"}, 30)
    assert job.wait(60).restarts == 0
    for visitor in silent:
        visitor.close()
    assert sorted(sink.rows) == list(range(count))
    assert len([said for said in caplog.messages if "a stranger from" in said]) == 1


def test_what_cannot_work_is_refused_before_anything_starts(
    registry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MINIRT_TOKEN", raising=False)
    env, stored = endless(), rt.Checkpointing(tmp_path / "stored")
    with pytest.raises(rt.ConfigurationError, match='control has no effect with runner="inline"'):
        env.execute(runner="inline", options=rt.Options(control="127.0.0.1:0"))
    with pytest.raises(rt.ConfigurationError, match=r"control port cannot be at 192\.0\.2\.1:0"):
        env.start(checkpointing=stored, options=rt.Options(control="192.0.2.1:0"))
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "file"))
    with pytest.raises(rt.ConfigurationError, match="control needs a token in MINIRT_TOKEN"):
        env.start(checkpointing=stored, options=rt.Options(control="127.0.0.1:0"))
    monkeypatch.setenv("MINIRT_TOKEN", "short")
    with pytest.raises(rt.ConfigurationError, match="a token of 32 to 1024 characters"):
        env.start(checkpointing=stored, options=rt.Options(control="127.0.0.1:0"))
    assert not [path for path in tmp_path.glob("stored/**/*") if path.is_file()]
