"""The control port: who proves the token is answered, everybody else learns nothing and disturbs nobody."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from minirt import ConfigurationError, MinirtError
from minirt.operations import exchange, port
from minirt.operations.access import ControlUrl, certificate_of
from minirt.operations.exchange import JobHasEndedError
from minirt.operations.port import ControlPort, ask_at
from minirt.operations.running import RemoteJob
from minirt.runtime.control import entrance
from minirt.runtime.control.handshake import REPLY_BYTES, Caller, call
from minirt.runtime.network.sockets import connected
from minirt.runtime.network.tls import TlsSocket
from minirt.version import __version__
from tests.operations.test_control import Desk

pytest.importorskip("cryptography")

TOKEN, OTHER = "a" * 64, "b" * 64
HELLO = {"request": "hello"}
REQUEST = json.dumps({**HELLO, "minirt": __version__}).encode() + b"\n"
TOO_LONG = json.dumps({**HELLO, "minirt": __version__, "more": "x" * 200_000}).encode() + b"\n"
"""Otherwise it would be a request."""


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def opened(desk: Desk) -> Iterator[ControlPort]:
    opened = ControlPort("127.0.0.1:0", TOKEN)
    opened.open("first", desk.answer)
    yield opened
    desk.go.set()
    opened.close()


@pytest.fixture
def url(opened: ControlPort) -> ControlUrl:
    return ControlUrl.parse(opened.url)


def is_served(url: ControlUrl) -> bool:
    return ask_at(url, TOKEN, HELLO, 30) == ({"said": "hello"}, "first")


def reply_to_who_proves(url: ControlUrl, line: bytes) -> bytes:
    """What the port sends to a caller with the token for a line of its own making."""
    with contextlib.closing(connected(url.address, 10, url.fingerprint)) as caller:
        call(caller, TOKEN.encode(), 10)
        caller.settimeout(30)
        try:
            caller.sendall(line)
            return caller.recv(10_000)
        except ConnectionError:
            return b""


def test_who_proves_the_token_is_answered(url: ControlUrl, desk: Desk) -> None:
    assert ask_at(url, TOKEN, {"request": "hello", "n": 1}, 30) == ({"said": "hello"}, "first")
    assert desk.asked == [{"request": "hello", "n": 1}]
    assert is_served(url)


def test_errors_of_the_job_are_raised_at_its_caller(url: ControlUrl) -> None:
    with pytest.raises(ConfigurationError, match="wrong call"):
        ask_at(url, TOKEN, {"request": "wrong"}, 30)
    with pytest.raises(MinirtError, match="failed") as failed:
        ask_at(url, TOKEN, {"request": "fail"}, 30)
    assert not isinstance(failed.value, ConfigurationError)
    with pytest.raises(JobHasEndedError, match="process 7 of host other; ask that one"):
        ask_at(url, TOKEN, {"request": "replaced"}, 30)


def test_a_wrong_token_is_told_and_nothing_is_done(url: ControlUrl, desk: Desk) -> None:
    with pytest.raises(ConfigurationError, match="has another token: give its own in MINIRT_TOKEN"):
        ask_at(url, OTHER, HELLO, 30)
    assert desk.asked == []
    assert is_served(url)


def test_a_caller_who_does_not_care_what_the_port_proves_is_refused_all_the_same(
    url: ControlUrl, desk: Desk
) -> None:
    """It goes on with a proof of its own although that of the port does not fit its token."""
    with contextlib.closing(connected(url.address, 10, url.fingerprint)) as liar:
        liar.settimeout(10)
        liar.sendall(bytes(32))
        assert len(received(liar, REPLY_BYTES)) == REPLY_BYTES
        liar.sendall(bytes(32) + REQUEST)
        assert received(liar, 1) == b""
    assert desk.asked == []
    assert is_served(url)


def test_another_certificate_than_that_of_the_url_gets_no_token(
    url: ControlUrl, desk: Desk
) -> None:
    wrong = replace(url, fingerprint=certificate_of(OTHER).fingerprint)
    with pytest.raises(ConfigurationError, match="another certificate than that of the URL"):
        ask_at(wrong, TOKEN, HELLO, 30)
    assert desk.asked == []


def test_a_program_of_another_version_is_told_both(url: ControlUrl, desk: Desk) -> None:
    line = json.dumps({**HELLO, "minirt": "9.8"}).encode() + b"\n"
    refused = json.loads(reply_to_who_proves(url, line))
    assert f"the job runs minirt {__version__}, and this is minirt 9.8" in refused["error"]
    assert b"this is minirt None" in reply_to_who_proves(url, b"{}\n")
    assert desk.asked == []


@pytest.mark.parametrize(
    "line",
    [b"\n", b"\x80\x05K\x01.\n", b"17\n", b"[" * 60_000 + b"\n", TOO_LONG],
    ids=range(5),
)
def test_what_is_no_request_is_answered_nothing(url: ControlUrl, desk: Desk, line: bytes) -> None:
    assert reply_to_who_proves(url, line) == b""
    assert desk.asked == []
    assert is_served(url)


def test_where_nobody_listens_the_job_has_ended(opened: ControlPort, url: ControlUrl) -> None:
    opened.close()
    with pytest.raises(
        JobHasEndedError, match=r"nobody listens at minirt://127.0.0.1:\d+: the job"
    ):
        ask_at(url, TOKEN, HELLO, 30)


def test_an_address_that_nobody_answers_for_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port, "CONNECT_S_MAX", 0.2)
    with (
        socket.socket() as full
    ):  # Its queue is full: it answers no more than an address of nobody.
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        url = ControlUrl(full.getsockname(), certificate_of(TOKEN).fingerprint)
        began_at = time.monotonic()
        with pytest.raises(
            MinirtError, match=r"cannot be reached \(timed out\)|no job has answered"
        ):
            ask_at(url, TOKEN, HELLO, None)
        assert time.monotonic() - began_at < 10
        for one in waiting:
            one.close()
    nowhere = replace(url, address=("nosuch.invalid", 7071))
    with pytest.raises(MinirtError, match=r"minirt://nosuch\.invalid:7071 cannot be reached"):
        ask_at(nowhere, TOKEN, HELLO, None)


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"\xff" * 500])
def test_something_else_that_listens_there_is_told(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def speak() -> None:
            caller, _ = other.accept()
            with caller:
                caller.recv(10_000)
                caller.sendall(said)

        speaking = threading.Thread(target=speak, daemon=True)
        speaking.start()
        url = ControlUrl(other.getsockname(), certificate_of(TOKEN).fingerprint)
        with pytest.raises(MinirtError, match=r"no job has answered at .* something else listens"):
            ask_at(url, TOKEN, HELLO, 10)
        speaking.join(10)


def test_an_address_that_is_taken_or_not_of_this_host_is_refused(url: ControlUrl) -> None:
    for control in (f"127.0.0.1:{url.address[1]}", "192.0.2.1:0", "nosuch.invalid:0"):
        with pytest.raises(ConfigurationError, match=f"the control port cannot be at {control}: "):
            ControlPort(control, TOKEN)


def test_only_the_address_that_is_named_is_bound(url: ControlUrl) -> None:
    with pytest.raises(ConnectionRefusedError):
        connected(("127.0.0.2", url.address[1]), 5)


def test_the_next_job_of_the_program_has_the_same_url(opened: ControlPort, desk: Desk) -> None:
    url = ControlUrl.parse(opened.url)
    job = RemoteJob(url, TOKEN)
    assert job.ask(HELLO, 30) == {"said": "hello"}
    opened.close()
    assert job.successor() is None
    again = ControlPort(f"127.0.0.1:{url.address[1]}", TOKEN)
    try:
        again.open("second", desk.answer)
        assert again.url == str(url)
        with pytest.raises(JobHasEndedError, match="another one runs there"):
            job.ask(HELLO, 30)
        following = job.successor()
        assert following is not None
        assert following.ask(HELLO, 30) == {"said": "hello"}
    finally:
        again.close()


def test_a_path_that_means_another_folder_there_is_refused(url: ControlUrl) -> None:
    job = RemoteJob(url, TOKEN)
    assert job.path("/shared/x") == "/shared/x"
    assert job.path("s3://bucket/x") == "s3://bucket/x"
    with pytest.raises(ConfigurationError, match="give a URL or an absolute path of its host"):
        job.path("savepoints/monday")


def test_answers_in_work_are_sent_before_it_closes(
    opened: ControlPort, url: ControlUrl, desk: Desk
) -> None:
    answers: list[object] = []
    caller = threading.Thread(
        target=lambda: answers.append(ask_at(url, TOKEN, {"request": "wait"}, 30))
    )
    caller.start()
    assert desk.waiting.acquire(timeout=30)
    threading.Timer(
        0.5, desk.go.set
    ).start()  # Long after a port would be closed that waits for nobody.
    opened.close()
    assert desk.go.is_set()
    caller.join(30)
    assert answers == [({"said": "wait"}, "first")]


# Attacks.


def strangers_logged(caplog: pytest.LogCaptureFixture) -> int:
    return sum("a stranger from" in message for message in caplog.messages)


def received(sock: TlsSocket | socket.socket, count: int) -> bytes:
    """So many bytes, or fewer if the other side hangs up before."""
    data = b""
    with contextlib.suppress(ConnectionError):
        while len(data) < count and (part := sock.recv(count - len(data))):
            data += part
    return data


def knock(url: ControlUrl, sent: bytes) -> bytes:
    """What a caller learns who sends this, without TLS."""
    with socket.create_connection(url.address, 10) as caller:
        with contextlib.suppress(ConnectionError):
            caller.sendall(sent)
            caller.shutdown(socket.SHUT_WR)
        return received(caller, 10_000)


def test_scans_garbage_and_plain_http_learn_nothing_and_are_logged_once(
    url: ControlUrl, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    request = json.dumps({**HELLO, "token": TOKEN, "minirt": __version__}).encode() + b"\n"
    with caplog.at_level(logging.WARNING, "minirt"):
        for sent in (b"", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x80\x05K\x01.", request):
            for _ in range(5):
                assert b"hello" not in knock(url, sent)
        assert is_served(url)
        assert strangers_logged(caplog) == 1
    assert desk.asked == [HELLO]


def test_a_garbage_flood_keeps_nobody_from_being_served(
    url: ControlUrl, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    over, count = threading.Event(), [0, 0]

    def flood(number: int) -> None:
        while not over.is_set():
            knock(url, bytes(range(256)) * 40)
            count[number] += 1

    with caplog.at_level(logging.WARNING, "minirt"):
        flooding = [threading.Thread(target=flood, args=(n,), daemon=True) for n in range(2)]
        for thread in flooding:
            thread.start()
        try:
            assert all(is_served(url) for _ in range(10))
        finally:
            over.set()
            for thread in flooding:
                thread.join(30)
    assert min(count) > 0
    assert strangers_logged(caplog) == 1
    assert desk.asked == [HELLO] * 10


def test_a_proof_that_is_sent_again_proves_nothing(url: ControlUrl, desk: Desk) -> None:
    """Who has recorded all that a caller said, within TLS, cannot say it again."""
    caller = Caller(TOKEN.encode())
    with contextlib.closing(connected(url.address, 10, url.fingerprint)) as honest:
        honest.settimeout(10)
        honest.sendall(caller.greeting)
        proof = caller.answer(received(honest, REPLY_BYTES))
        honest.sendall(proof + REQUEST)
        assert json.loads(received(honest, 10_000))["answer"] == {"said": "hello"}
    with contextlib.closing(connected(url.address, 10, url.fingerprint)) as replayed:
        replayed.settimeout(10)
        replayed.sendall(caller.greeting)
        received(replayed, REPLY_BYTES)
        replayed.sendall(proof + REQUEST)
        assert received(replayed, 1) == b""
    assert desk.asked == [HELLO]


@pytest.mark.parametrize("proves", [False, True])
def test_who_sends_a_byte_now_and_then_is_shown_out(
    url: ControlUrl, desk: Desk, monkeypatch: pytest.MonkeyPatch, proves: bool
) -> None:
    """Before the proof, and after it in the middle of a request."""
    monkeypatch.setattr(entrance, "_HANDSHAKE_S_MAX", 0.5)
    monkeypatch.setattr(exchange, "REQUEST_S_MAX", 0.5)
    over = threading.Event()
    with contextlib.closing(connected(url.address, 10, url.fingerprint)) as slow:
        slow.settimeout(10)
        if proves:
            call(slow, TOKEN.encode(), 10)

        def trickle() -> None:
            with contextlib.suppress(OSError):
                while not over.wait(0.05):
                    slow.sendall(b"{")

        trickling = threading.Thread(target=trickle, daemon=True)
        trickling.start()
        try:
            assert is_served(url)
            began_at = time.monotonic()
            slow.settimeout(10)
            assert received(slow, 1) == b""
            assert time.monotonic() - began_at < 5
        finally:
            over.set()
            trickling.join(10)
    assert desk.asked == [HELLO]


def test_silent_callers_beyond_all_bounds_make_room_for_others(
    url: ControlUrl, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would have a minute, but the oldest has to go for the next one."""
    monkeypatch.setattr(entrance, "_VISITORS_MAX", 8)
    monkeypatch.setattr(entrance, "_HANDSHAKE_S_MAX", 60.0)
    silent = [socket.create_connection(url.address, 10) for _ in range(40)]
    try:
        assert is_served(url)
        for one in silent[:20]:
            one.settimeout(10)
            assert received(one, 1) == b""
    finally:
        for one in silent:
            one.close()


def test_only_so_many_requests_are_answered_at_a_time(url: ControlUrl, desk: Desk) -> None:
    callers = [
        threading.Thread(target=ask_at, args=(url, TOKEN, {"request": "wait"}, 30))
        for _ in range(exchange.REQUESTS_MAX)
    ]
    for caller in callers:
        caller.start()
        assert desk.waiting.acquire(timeout=30)
    with pytest.raises(MinirtError, match="too busy"):
        ask_at(url, TOKEN, HELLO, 30)
    desk.go.set()
    for caller in callers:
        caller.join(30)
    assert len(desk.asked) == exchange.REQUESTS_MAX
