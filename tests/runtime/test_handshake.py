"""Who does not know the job's token learns nothing, wherever it listens or calls."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path

import pytest

from minirt import WorkerLostError
from minirt.runtime.control.connection import MessageConnection, UnreadableError, UnsendableError
from minirt.runtime.control.handshake import (
    NONCE_BYTES,
    REPLY_BYTES,
    Caller,
    Listener,
    call,
    welcome,
)
from minirt.runtime.network.sockets import Network
from minirt.runtime.worker.rendezvous import Rendezvous

TOKEN = b"the token of the job, 32 bytes.."
NETWORK = Network(TOKEN, "")
US, THEM = 1, 2


def test_both_sides_prove_that_they_know_the_token():
    caller, listener = Caller(TOKEN, b"hello"), Listener(TOKEN, 5)
    answer = caller.answer(listener.reply(caller.greeting))
    assert len(answer) == listener.answer_bytes
    assert listener.hello(answer) == b"hello"


@pytest.mark.parametrize("place", [0, 31, 32, 36], ids=["proof", "its end", "hello", "its last"])
def test_an_answer_that_was_changed_on_the_way_proves_nothing(place):
    caller, listener = Caller(TOKEN, b"hello"), Listener(TOKEN, 5)
    answer = bytearray(caller.answer(listener.reply(caller.greeting)))
    answer[place] ^= 1
    assert listener.hello(bytes(answer)) is None


def test_what_was_said_in_another_handshake_proves_nothing():
    caller, listener = Caller(TOKEN), Listener(TOKEN)
    answer = caller.answer(listener.reply(caller.greeting))
    another = Listener(TOKEN)
    another.reply(caller.greeting)
    assert another.hello(answer) is None
    with pytest.raises(WorkerLostError):
        Caller(TOKEN).answer(listener.reply(caller.greeting))


def test_a_listener_cannot_send_back_what_it_was_told():
    caller = Caller(TOKEN)
    with pytest.raises(WorkerLostError, match="does not know"):
        caller.answer(caller.greeting + caller.greeting)


class Impostor:
    """Listens where a worker did, and writes down what it is told."""

    def __init__(self, *replies: bytes) -> None:
        self.heard = b""
        self._replies = replies
        self._socket, self.address = Network(TOKEN, "", "127.0.0.1").listen("")
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        sock, _ = self._socket.accept()
        with sock, contextlib.suppress(ConnectionResetError):
            sock.settimeout(5)
            for reply in self._replies:
                self.heard += sock.recv(4096)
                sock.sendall(reply)
            while part := sock.recv(4096):
                self.heard += part

    def close(self) -> bytes:
        self._thread.join(10)
        self._socket.close()
        return self.heard


@pytest.mark.parametrize("reply", [bytes(REPLY_BYTES), b"\xff" * 500], ids=["zeros", "noise"])
def test_who_listens_at_the_port_of_a_dead_worker_learns_nothing(reply, tmp_path):
    impostor = Impostor(reply)
    own, _ = Network(TOKEN, str(tmp_path)).listen("own")
    rendezvous = Rendezvous(own, NETWORK, generation=1, worker=US)
    rendezvous.call(THEM, impostor.address)
    with pytest.raises(WorkerLostError, match="does not know the job's token"):
        rendezvous.meet([], timeout_s=10)
    heard = impostor.close()
    assert len(heard) == NONCE_BYTES
    assert TOKEN not in heard
    own.close()


def test_nor_does_who_listens_where_the_coordinator_did():
    impostor = Impostor(bytes(REPLY_BYTES))
    with (
        socket.create_connection(impostor.address) as sock,
        pytest.raises(WorkerLostError, match="does not know the job's token"),
    ):
        call(sock, TOKEN, timeout_s=10)
    assert len(impostor.close()) == NONCE_BYTES


def test_workers_that_call_each_other_wait_for_nobody_in_particular(tmp_path: Path):
    """Each calls before it listens, some strangers are there first, and stay silent or talk nonsense."""
    count = 6
    listeners = [Network(TOKEN, str(tmp_path)).listen(f"w{n}") for n in range(count)]
    strangers = []
    for _, address in listeners:
        for noise in (b"", b"x" * 10, bytes(200)):
            stranger = socket.socket(socket.AF_UNIX)
            stranger.connect(address)
            stranger.sendall(noise)
            strangers.append(stranger)
    met: dict[int, tuple[int, int]] = {}

    def meet(worker: int) -> None:
        rendezvous = Rendezvous(listeners[worker][0], NETWORK, generation=7, worker=worker)
        others = [other for other in range(count) if other != worker]
        for other in others:
            rendezvous.call(other, listeners[other][1])
        opened, accepted = rendezvous.meet(others, timeout_s=30)
        met[worker] = (len(opened), len(accepted))
        for sock in (*opened.values(), *accepted.values()):
            sock.close()

    threads = [threading.Thread(target=meet, args=(n,), daemon=True) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert met == dict.fromkeys(range(count), (count - 1, count - 1))
    for closing in (*strangers, *(listener for listener, _ in listeners)):
        closing.close()


@pytest.mark.parametrize(
    ("generation", "looks_for"), [(1, THEM), (2, THEM + 1)], ids=["of another generation", "lost"]
)
def test_a_worker_that_does_not_belong_here_is_turned_away(
    tmp_path: Path, generation: int, looks_for: int
) -> None:
    listener, address = Network(TOKEN, str(tmp_path)).listen("w")
    outdated_listener, _ = Network(TOKEN, str(tmp_path)).listen("old")
    outdated = Rendezvous(outdated_listener, NETWORK, generation, worker=US)
    outdated.call(looks_for, address)

    def meet() -> None:
        for sock in outdated.meet([], 10)[0].values():
            sock.close()

    thread = threading.Thread(target=meet, daemon=True)
    thread.start()
    with pytest.raises(WorkerLostError, match="have not opened their channels"):
        Rendezvous(listener, NETWORK, generation=2, worker=THEM).meet([US], timeout_s=1)
    thread.join(10)
    listener.close()
    outdated_listener.close()


# Control connections.


@pytest.fixture
def pair():
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def test_an_end_that_freezes_in_the_middle_of_a_message_keeps_nobody_waiting(pair):
    wire, sock = pair
    connection = MessageConnection(sock)
    recorded, recorder = socket.socketpair()
    MessageConnection(recorder).send({"large": "x" * 3000})
    message = recorded.recv(10_000)
    recorded.close()
    recorder.close()
    for part in (message[:4], message[4:1000]):
        wire.sendall(part)
        assert connection.arrived() == []
    wire.sendall(message[1000:] + message)
    assert connection.arrived() == [{"large": "x" * 3000}] * 2
    assert connection.arrived() == []


def test_what_was_sent_before_the_end_is_read_before_it(pair):
    wire, sock = pair
    MessageConnection(wire).send(1)
    wire.shutdown(socket.SHUT_RDWR)
    connection = MessageConnection(sock)
    assert connection.arrived() == [1]
    with pytest.raises(EOFError):
        connection.arrived()


def test_a_message_that_nothing_can_carry_is_refused_before_it_is_sent(pair):
    connection = MessageConnection(pair[0])
    with pytest.raises(UnsendableError, match="TypeError"):
        connection.send({"lock": threading.Lock()})
    connection.send("fine")
    assert MessageConnection(pair[1]).receive() == "fine"


class Explodes:
    """Cannot be turned into an object again."""

    def __reduce__(self):
        return (int, ("no number",))


def test_a_message_that_cannot_be_read_says_so(pair):
    MessageConnection(pair[0]).send(Explodes())
    with pytest.raises(UnreadableError, match="no number"):
        MessageConnection(pair[1]).receive()


@pytest.mark.parametrize("side", [call, welcome], ids=["caller", "listener"])
def test_who_says_one_byte_after_the_other_keeps_nobody_longer_than_who_is_silent(pair, side):
    ours, theirs = pair
    stop = threading.Event()

    def trickle() -> None:
        with contextlib.suppress(OSError):
            while not stop.wait(0.05):
                theirs.sendall(b"x")

    talking = threading.Thread(target=trickle)
    talking.start()
    try:
        with pytest.raises(TimeoutError):
            side(ours, TOKEN, 0.3)
    finally:
        stop.set()
        talking.join()


def test_callers_who_do_not_know_the_token_are_not_welcome(pair):
    calling, called = pair
    verdict: list[bool] = []
    thread = threading.Thread(target=lambda: verdict.append(welcome(called, TOKEN, 5)), daemon=True)
    thread.start()
    calling.sendall(bytes(NONCE_BYTES))
    assert len(calling.recv(REPLY_BYTES, socket.MSG_WAITALL)) == REPLY_BYTES
    calling.sendall(bytes(Listener(TOKEN).answer_bytes))
    thread.join(10)
    assert verdict == [False]
