"""Agents that cannot serve: each says at once what is wrong and what to do, and none waits in silence."""

from __future__ import annotations

import contextlib
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import minirt as rt
from minirt.cli.host import host
from minirt.clusters import parse_address
from minirt.errors import ConfigurationError, MinirtError
from minirt.runtime.control.entrance import Entrance
from minirt.runtime.control.host_hello import Credentials
from minirt.runtime.network.sockets import Network, Socket
from minirt.runtime.worker import agent
from tests.cluster.agents import PlayedCluster, agents_of
from tests.runtime.processes import needs_proc

pytest.importorskip("cryptography")


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture(autouse=True)
def as_an_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs within the test, which keeps its own handlers of signals."""
    monkeypatch.setattr(signal, "signal", lambda *of: None)
    monkeypatch.delenv("MINIRT_CREDENTIALS", raising=False)
    monkeypatch.setattr(agent, "_RETRY_S", 0.01)


def serve(coordinator: str, wait: str | None = None, **options: str) -> None:
    given = {"credentials": None, "address": None, **options}
    host(coordinator=coordinator, slots=1, wait=wait, **given)


def credentials(path: Path, token: bytes) -> str:
    path.write_text(Credentials(token, None).text())
    return str(path)


def test_missing_credentials_are_told_at_once(nobody: str, tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(ConfigurationError, match=r"--credentials: .*no-such.*--wait"):
        serve(nobody, credentials=str(tmp_path / "no-such"))
    assert time.monotonic() - began < agent._PATIENCE_S


class Heard(Exception): ...


def test_who_waits_says_for_what_once_for_each_cause(nobody: str) -> None:
    told: list[str] = []
    asked: list[None] = []

    def known() -> Credentials:
        asked.append(None)
        if len(asked) < 4:
            raise FileNotFoundError("no such file")
        return Credentials(bytes(32), None)

    def say(line: str) -> None:
        told.append(line)
        if len(told) == 2:
            raise Heard

    with pytest.raises(Heard):
        agent.run_agent([parse_address(nobody, "nobody")], known, 1, None, 60.0, say)
    assert "no such file" in told[0]
    assert "tries again for 60 s in all" in told[0]
    assert told[1].startswith(f"no coordinator of that job at {nobody}: ")


def test_who_has_waited_for_long_enough_gives_up(
    nobody: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(MinirtError, match=f"no coordinator of that job at {nobody}: .*refused"):
        serve(nobody, "100ms", credentials=credentials(tmp_path / "good", bytes(32)))
    told = capsys.readouterr().err.splitlines()
    assert all(line.startswith("minirt host: no coordinator") for line in told)


def test_each_of_several_addresses_is_tried_and_named(nobody: str, tmp_path: Path) -> None:
    known = credentials(tmp_path / "c", secrets.token_bytes(32))
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        other = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(MinirtError) as raised:
            serve(f"{nobody}, {other}", wait="50ms", credentials=known)
    for address in (nobody, other):
        assert f"no coordinator of that job at {address}: " in str(raised.value)
    with pytest.raises(ConfigurationError, match="HOST:PORT"):
        serve(f"{nobody},", credentials=known)


def test_an_agent_that_has_served_does_not_mind_if_nobody_takes_over(
    nobody: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_MINIRT_HOST_HAS_SERVED", "1")
    known = credentials(tmp_path / "c", secrets.token_bytes(32))
    serve(nobody, wait="50ms", credentials=known)
    assert "nobody has taken the job over: no coordinator" in capsys.readouterr().err


@contextlib.contextmanager
def coordinator(folder: Path, token: bytes) -> Iterator[str]:
    """The address of one that lets in who knows the token, and says nothing."""
    admitted: list[Socket] = []
    entrance = Entrance(Network(token, str(folder), "127.0.0.1"), admitted.append)
    over = threading.Event()

    def accept() -> None:
        while not over.wait(0.01):
            entrance.accept()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield "{}:{}".format(*entrance.address)
    finally:
        over.set()
        accepting.join()
        entrance.close()
        for connection in admitted:
            connection.close()


def test_a_coordinator_of_another_run_is_told_from_none(tmp_path: Path) -> None:
    path = credentials(tmp_path / "old", secrets.token_bytes(32))
    with (
        coordinator(tmp_path, secrets.token_bytes(32)) as where,
        pytest.raises(MinirtError, match=r"does not know .*credentials of an earlier run\?"),
    ):
        serve(where, "0s", credentials=path)


def test_a_coordinator_that_says_nothing_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It froze behind the handshake."""
    monkeypatch.setattr(agent, "_ANSWER_S_MAX", 0.1)
    token = secrets.token_bytes(32)
    path = credentials(tmp_path / "good", token)
    with (
        coordinator(tmp_path, token) as where,
        pytest.raises(MinirtError, match=r"it has not answered within 0\.1 s"),
    ):
        serve(where, "50ms", credentials=path)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{}", "these are no credentials of a job"),
        ("\x7fELF\x00\xff", "these are no credentials of a job"),
        (None, "cannot read .*: Is a directory"),
    ],
)
def test_what_holds_no_credentials_is_refused_however_long_it_may_wait(
    nobody: str, tmp_path: Path, content: str | None, why: str
) -> None:
    path = tmp_path / "wrong"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ConfigurationError, match=why):
        serve(nobody, "1h", credentials=str(path))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"address": "192.0.2.1"}, "--address: workers cannot listen at 192.0.2.1"),
        ({"address": "nosuch.invalid"}, "--address: workers cannot listen at nosuch.invalid"),
        ({"coordinator": "127.0.0.1:0"}, "--coordinator: port 0"),
        ({"coordinator": "127.0.0.1"}, "--coordinator is HOST:PORT"),
    ],
)
def test_addresses_that_cannot_be_are_refused_however_long_it_may_wait(
    nobody: str, tmp_path: Path, options: dict[str, str], why: str
) -> None:
    path = credentials(tmp_path / "good", bytes(32))
    with pytest.raises(ConfigurationError, match=why):
        serve(**{"coordinator": nobody, "wait": "1h", "credentials": path, **options})


# The side of the program.


def endless() -> rt.Environment:
    env = rt.Environment("endless", parallelism=1)
    env.source(rt.SequenceSource.endless(splits=1)).sink(rt.DiscardSink())
    return env


@pytest.mark.parametrize("listen", ["192.0.2.1:7070", "nosuch.invalid:0"])
def test_an_address_that_the_program_cannot_listen_at_is_refused(listen: str) -> None:
    with pytest.raises(ConfigurationError, match=f"the coordinator cannot listen at {listen}: "):
        endless().start(cluster=PlayedCluster(listen=listen))


def test_more_slots_than_the_job_needs_cannot_be_the_least(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="min_slots=2 is more than the job needs: 1"):
        endless().start(cluster=PlayedCluster(min_slots=2))


@pytest.mark.parametrize("where", ["missing/file", "folder"])
def test_credentials_that_cannot_be_written_leave_nothing(tmp_path: Path, where: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigurationError, match="the credentials cannot be written"):
        endless().start(cluster=rt.HostCluster("127.0.0.1:0", credentials=tmp_path / where))
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.mark.processes
@needs_proc
def test_a_host_that_cannot_load_the_job_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text("def twice(n):\n    return n + n\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    from only_here import twice  # type: ignore[import-not-found]

    env = rt.Environment("elsewhere", parallelism=1)
    env.source(rt.SequenceSource.endless(splits=1)).map(twice).sink(rt.DiscardSink())
    job = env.start(cluster=PlayedCluster())
    with agents_of(job) as agents:
        monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(tmp_path)])
        stranger = agents.add(1, options=("--wait", "20s"))
        assert stranger.wait() == 2
        assert "this host cannot load the job: ModuleNotFoundError" in stranger.said()
        assert "Traceback" not in stranger.said()
        with pytest.raises(rt.JobFailedError, match="only_here"):
            job.wait(30)
