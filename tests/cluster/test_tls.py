"""TLS below channels and control connections: what sockets promise still holds."""

from __future__ import annotations

import contextlib
import secrets
import selectors
import socket
import threading
from collections.abc import Iterator

import pytest

from minirt.runtime.control.connection import MessageConnection
from minirt.runtime.network.sockets import Network, connected
from minirt.runtime.network.tls import Certificate, TlsSocket, has_pending

pytest.importorskip("cryptography")

Pair = tuple[TlsSocket, TlsSocket]


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    return Certificate.make()


@pytest.fixture
def pair(certificate: Certificate) -> Iterator[Pair]:
    """Both ends of a connection, whose buffers are small."""
    with linked() as (one, other):
        yield certificate.client(one), certificate.server(other)


@contextlib.contextmanager
def linked() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    for sock in (one, other):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        sock.settimeout(10)
    with one, other:
        yield one, other


def send_in_thread(sock: TlsSocket, data: bytes) -> threading.Thread:
    thread = threading.Thread(target=sock.sendall, args=(data,), daemon=True)
    thread.start()
    return thread


def read(sock: TlsSocket, count: int, size: int = 70_000) -> bytes:
    found = b""
    while len(found) < count:
        found += sock.recv(min(size, count - len(found)))
    return found


def test_bytes_arrive_both_ways_while_both_sides_write(pair: Pair) -> None:
    there, back = secrets.token_bytes(3_000_000), secrets.token_bytes(2_000_000)
    threads = [send_in_thread(pair[0], there), send_in_thread(pair[1], back)]
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(read(pair[1], len(there))), daemon=True)
    reader.start()
    assert read(pair[0], len(back)) == back
    reader.join(30)
    assert found == [there]
    for thread in threads:
        thread.join(10)


def test_a_selector_and_pending_find_all_that_has_come(pair: Pair) -> None:
    """Whoever reads when the socket is readable, and as long as something is pending, misses nothing."""
    data = secrets.token_bytes(1_000_000)
    receiver = pair[1]
    receiver.setblocking(False)
    sending = send_in_thread(pair[0], data)
    buffer, found = memoryview(bytearray(10_000)), b""
    with selectors.DefaultSelector() as selector:
        selector.register(receiver, selectors.EVENT_READ)
        while len(found) < len(data):
            assert selector.select(10), "nothing is readable, but bytes are missing"
            again = True
            while again:
                with contextlib.suppress(BlockingIOError):
                    found += buffer[: receiver.recv_into(buffer)]
                again = has_pending(receiver)
    assert found == data
    sending.join(10)


def test_what_a_full_socket_refused_is_sent_once_when_it_is_given_again(pair: Pair) -> None:
    greeting = send_in_thread(pair[0], b"x")
    assert pair[1].recv(1) == b"x"
    greeting.join(10)
    sender, data, sent = pair[0], secrets.token_bytes(900_000), 0
    sender.setblocking(False)
    found = b""
    while sent < len(data):
        try:
            sent += sender.send(data[sent:])
        except BlockingIOError:
            with contextlib.suppress(BlockingIOError):
                found += pair[1].recv(30_000, socket.MSG_DONTWAIT)
    assert found + read(pair[1], len(data) - len(found)) == data


def test_another_certificate_is_refused_by_whoever_calls(certificate: Certificate) -> None:
    with linked() as (one, other):
        calling, called = Certificate.make().client(one), certificate.server(other)
        failed: list[Exception] = []

        def answer() -> None:
            try:
                called.recv(10)
            except OSError as error:
                failed.append(error)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with pytest.raises(ConnectionError, match=r"no TLS|another certificate"):
            calling.sendall(b"the token")
        one.close()
        thread.join(10)
        assert [type(error) for error in failed] in ([], [ConnectionError])


@pytest.mark.parametrize(
    "noise", [bytes(500), b"GET / HTTP/1.0\r\n\r\n", secrets.token_bytes(9000)]
)
def test_what_is_not_tls_is_an_error_of_the_connection(
    certificate: Certificate, noise: bytes
) -> None:
    with linked() as (one, other):
        called = certificate.server(other)
        one.sendall(noise[:4000])
        with pytest.raises(ConnectionError, match="no TLS"):
            called.recv(100)


def test_an_end_that_says_nothing_runs_into_the_timeout(pair: Pair) -> None:
    pair[1].settimeout(0.1)
    with pytest.raises(TimeoutError):
        pair[1].recv(10)


def test_messages_are_found_although_several_came_at_once(pair: Pair) -> None:
    ends = [MessageConnection(sock) for sock in pair]

    def talk() -> None:
        for number in range(5):
            ends[0].send({"number": number, "filling": "x" * 40_000})

    thread = threading.Thread(target=talk, daemon=True)
    thread.start()
    first = ends[1].receive()
    thread.join(0.2)
    found = [first["number"]]
    with selectors.DefaultSelector() as selector:
        selector.register(ends[1], selectors.EVENT_READ)
        while len(found) < 5:
            found += [message["number"] for message in ends[1].arrived()]
            if len(found) < 5:
                assert selector.select(10)
    assert found == list(range(5))


def test_the_end_of_the_other_side_is_noticed(pair: Pair) -> None:
    greeting = send_in_thread(pair[0], b"x")
    assert pair[1].recv(1) == b"x"
    greeting.join(10)
    pair[0].close()
    assert pair[1].recv(10) == b""


def test_a_network_with_a_certificate_speaks_tls_at_the_named_address_only(
    certificate: Certificate,
) -> None:
    network = Network(b"token", "", "127.0.0.2", certificate)
    listener, address = network.listen("any")
    with listener:
        assert address[0] == "127.0.0.2"
        with pytest.raises(OSError):
            connected(("127.0.0.1", int(address[1])), 5)
        calling = connected(address, 5, certificate)
        called = network.accepted(listener.accept()[0])
        sending = send_in_thread(calling, b"hello")  # type: ignore[arg-type]
        assert called.recv(5) == b"hello"
        sending.join(5)
        calling.close()
        called.close()


def test_nothing_secret_shows_when_it_is_printed(certificate: Certificate) -> None:
    assert "PRIVATE" not in repr(certificate)
    assert "secret" not in repr(Network(b"secret", "", None, certificate))
