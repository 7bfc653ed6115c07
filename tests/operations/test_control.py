"""The control socket: who knows the token is answered, everybody else learns nothing."""

from __future__ import annotations

import json
import socket
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from minirt import ConfigurationError, MinirtError, SupersededError
from minirt.operations import exchange
from minirt.operations.control import ControlSocket, ask
from minirt.operations.exchange import JobHasEndedError, Plain

TOKEN = "a" * 64


class Desk:
    """Remembers what it was asked; "wait" is answered once `go` is set."""

    def __init__(self) -> None:
        self.asked: list[Plain] = []
        self.waiting = threading.Semaphore(0)
        self.go = threading.Event()

    def answer(self, request: Plain) -> Plain:
        self.asked.append(request)
        match request.get("request"):
            case "wait":
                self.waiting.release()
                self.go.wait(30)
            case "wrong":
                raise ConfigurationError("wrong call")
            case "fail":
                raise MinirtError("failed")
            case "replaced":
                raise SupersededError("process 7 of host other")
        return {"said": request.get("request")}


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="control-") as folder:  # The path must be short.
        yield Path(folder) / "socket"


@pytest.fixture
def desk(path: Path) -> Iterator[Desk]:
    desk = Desk()
    server = ControlSocket(path, TOKEN, desk.answer)
    yield desk
    desk.go.set()
    server.close()


def replies(path: Path, sent: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(30)
        caller.connect(str(path))
        try:
            caller.sendall(sent)
            caller.shutdown(socket.SHUT_WR)
            return caller.recv(1000)
        except (ConnectionResetError, BrokenPipeError):
            return b""


def test_who_knows_the_token_is_answered(path: Path, desk: Desk) -> None:
    assert ask(path, TOKEN, {"request": "hello", "n": 1}, 30) == {"said": "hello"}
    assert desk.asked == [{"request": "hello", "n": 1}]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("token", ["", "b" * 64, "a" * 63, "a" * 65, "\udcff", None, 7, ["a"]])
def test_a_wrong_token_is_answered_nothing_and_nothing_is_done(path, desk, token) -> None:
    assert replies(path, json.dumps({"request": "hello", "token": token}).encode() + b"\n") == b""
    with pytest.raises(MinirtError, match="gave no answer"):
        ask(path, token, {"request": "hello"}, 30)
    assert desk.asked == []
    assert ask(path, TOKEN, {"request": "hello"}, 30) == {"said": "hello"}


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\n",
        b"\x80\x05K\x01.\n",
        b"17\n",
        b'{"request": "hello"}\n',
        f'{{"request": "hello", "token": "{TOKEN}"}}'.encode(),
        b'{"a":' + b"[" * 50_000 + b"\n",
        f'{{"token": "{TOKEN}", "more": "{"x" * exchange.REQUEST_BYTES_MAX}"}}\n'.encode(),
    ],
    ids=range(8),
)
def test_what_is_no_request_is_answered_nothing(path: Path, desk: Desk, sent: bytes) -> None:
    assert replies(path, sent) == b""
    assert desk.asked == []


def test_errors_of_the_job_are_raised_at_its_caller(path: Path, desk: Desk) -> None:
    with pytest.raises(ConfigurationError, match="wrong call"):
        ask(path, TOKEN, {"request": "wrong"}, 30)
    with pytest.raises(MinirtError, match="failed") as failed:
        ask(path, TOKEN, {"request": "fail"}, 30)
    assert not isinstance(failed.value, ConfigurationError)
    with pytest.raises(JobHasEndedError, match="process 7 of host other; ask that one"):
        ask(path, TOKEN, {"request": "replaced"}, 30)


def test_a_caller_that_stays_silent_is_shown_out(path, desk, monkeypatch) -> None:
    monkeypatch.setattr(exchange, "REQUEST_S_MAX", 0.05)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.settimeout(30)
        silent.connect(str(path))
        assert silent.recv(1) == b""


def test_only_so_many_are_answered_at_a_time(path: Path, desk: Desk) -> None:
    callers = [
        threading.Thread(target=ask, args=(path, TOKEN, {"request": "wait"}, 30))
        for _ in range(exchange.REQUESTS_MAX)
    ]
    for caller in callers:
        caller.start()
        assert desk.waiting.acquire(timeout=30)
    with pytest.raises(MinirtError, match="too busy"):
        ask(path, TOKEN, {"request": "hello"}, 30)
    desk.go.set()
    for caller in callers:
        caller.join(30)
    assert len(desk.asked) == exchange.REQUESTS_MAX


def test_answers_in_work_are_sent_before_it_closes(path: Path) -> None:
    desk, answers = Desk(), []
    server = ControlSocket(path, TOKEN, desk.answer)
    caller = threading.Thread(
        target=lambda: answers.append(ask(path, TOKEN, {"request": "wait"}, 30))
    )
    caller.start()
    assert desk.waiting.acquire(timeout=30)
    threading.Timer(0.05, desk.go.set).start()
    server.close()
    assert desk.go.is_set()
    caller.join(30)
    assert answers == [{"said": "wait"}]
    with pytest.raises(ConnectionRefusedError):
        ask(path, TOKEN, {"request": "hello"}, 30)
