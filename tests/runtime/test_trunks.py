"""Both ends of a trunk on real sockets, plain and in TLS: some take little, some lose the other end."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterator

import pytest

from minirt import ProtocolError
from minirt.runtime.channels.channels import InputChannel, OutputChannel
from minirt.runtime.channels.frames import END_FRAME, Frame, Kind
from minirt.runtime.network.packets import CREDIT, HEADER, PAYLOAD_BYTES_MAX
from minirt.runtime.network.sockets import Socket
from minirt.runtime.network.tls import Certificate, has_pending
from minirt.runtime.network.trunks import TrunkReceiver, TrunkSender

Pair = tuple[Socket, Socket]
BUFFER = memoryview(bytearray(10_000))


@pytest.fixture(params=["plain", "tls"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """The receiver's end and the sender's; their buffers are small."""
    one, other = socket.socketpair()
    with one, other:
        for sock in (one, other):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
            sock.setblocking(False)
        if request.param == "plain":
            yield one, other
        else:
            pytest.importorskip("cryptography")
            certificate = Certificate.make()
            yield certificate.server(one), certificate.client(other)


class Ends:
    """A trunk of some channels; frames wait in the input channels until they are taken."""

    def __init__(self, pair: Pair, channels: int, window: int = 100_000) -> None:
        self.outputs = [OutputChannel(1 << 30, window) for _ in range(channels)]
        self.inputs = [InputChannel(window) for _ in range(channels)]
        self.came: list[list[Frame]] = [[] for _ in range(channels)]
        self.stuck = 0
        self.receiver = TrunkReceiver(
            pair[0], self.inputs, self._deliver, 1 << 24, self._on_stuck, lambda: 1.0
        )
        self.sender = TrunkSender(pair[1], self.outputs, lambda sender: None, lambda: 1.0)

    def _deliver(self, number: int, frame: Frame) -> None:
        self.came[number].append(frame)
        self.inputs[number].put(frame)

    def _on_stuck(self, receiver: TrunkReceiver) -> None:
        self.stuck += 1

    def receive(self) -> None:
        drained(self.receiver.sock, lambda: self.receiver.on_readable(BUFFER))

    def hear(self) -> None:
        drained(self.sender.sock, self.sender.on_readable)

    def take(self, number: int) -> None:
        while self.inputs[number].frames:
            self.inputs[number].take()

    def exchange(self) -> None:
        for _ in range(500):
            self.sender.send()
            self.receive()
            self.receiver.flush_credit()
            self.hear()


def drained(sock: Socket, read: Callable[[], bool]) -> None:
    assert read()
    while has_pending(sock):
        assert read()


@pytest.mark.parametrize("seed", range(5))
def test_all_frames_arrive_whatever_the_sockets_take(pair: Pair, seed: int) -> None:
    chosen, ends = random.Random(seed), Ends(pair, channels=5)
    sent: list[list[Frame]] = [[] for _ in ends.outputs]
    for _ in range(100):
        number, size = chosen.randrange(5), chosen.choice([0, 10, 5000, 70_000, 150_000])
        frame = Frame(Kind.ROWS, chosen.randbytes(size), 1)
        ends.outputs[number].put(frame)
        sent[number].append(frame)
    for output, frames in zip(ends.outputs, sent, strict=True):
        output.put(END_FRAME)
        frames.append(END_FRAME)
    for _ in range(200_000):
        if sum(map(len, ends.came)) == sum(map(len, sent)):
            break
        step = chosen.choice([ends.sender.send, ends.receive, ends.hear, None])
        if step is None:
            ends.take(chosen.randrange(5))
            ends.receiver.flush_credit()
        else:
            step()
    kinds = [[(frame.kind, frame.payload) for frame in frames] for frames in ends.came]
    assert kinds == [[(frame.kind, frame.payload) for frame in frames] for frames in sent]


def test_a_slow_channel_holds_up_no_other(pair: Pair) -> None:
    ends = Ends(pair, channels=2)
    for _ in range(50):
        for output in ends.outputs:
            output.put(Frame(Kind.ROWS, bytes(40_000), 1))
    for _ in range(60):
        ends.exchange()
        ends.take(1)
        if len(ends.came[1]) == 50:
            break
    assert [len(frames) for frames in ends.came] == [2, 50]


def test_credit_that_the_socket_does_not_take_is_sent_when_it_does(pair: Pair) -> None:
    ends = Ends(pair, channels=3)
    ends.outputs[0].put(END_FRAME)
    ends.exchange()  # TLS has shaken hands.
    granted = [0, 0, 0]
    heard: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for number, output in enumerate(ends.outputs):
        output.on_credit = lambda consumed, window, number=number: heard[number].append(consumed)
    while not ends.stuck:
        number = sum(granted) % 2
        granted[number] += 1
        ends.inputs[number].grant(granted[number], 100)
    for number in range(3):
        granted[number] += 1
        ends.inputs[number].grant(granted[number], 100)
    while ends.receiver.flush_credit():
        ends.hear()
    ends.hear()
    assert [heard[number][-1] for number in range(3)] == granted
    assert all(consumed == sorted(consumed) for consumed in heard.values())


def test_a_frame_larger_than_the_window_travels_alone(pair: Pair) -> None:
    ends = Ends(pair, channels=1, window=100)
    for size in (500, 10):
        ends.outputs[0].put(Frame(Kind.ROWS, bytes(size), 1))
    ends.exchange()
    assert [len(frame.payload) for frame in ends.came[0]] == [500]
    ends.take(0)
    ends.exchange()
    assert [len(frame.payload) for frame in ends.came[0]] == [500, 10]


def test_a_frame_that_was_cut_off_with_its_sender_is_never_delivered(pair: Pair) -> None:
    ends = Ends(pair, channels=2)
    ends.outputs[0].put(Frame(Kind.ROWS, bytes(3 * PAYLOAD_BYTES_MAX), 1))
    ends.outputs[1].put(Frame(Kind.ROWS, b"whole", 1))
    while not ends.came[1]:
        ends.sender.send()
        ends.receive()
    pair[1].close()
    alive = True
    while alive:
        try:
            alive = ends.receiver.on_readable(BUFFER)
        except ConnectionError:
            alive = False
    assert ends.came == [[], [Frame(Kind.ROWS, b"whole")]]


def test_credit_for_a_sender_that_is_gone_goes_nowhere(pair: Pair) -> None:
    ends = Ends(pair, channels=2)
    pair[1].close()
    for consumed in range(100):
        for input in ends.inputs:
            input.grant(consumed, 100)
    assert not ends.receiver.flush_credit()


def test_credit_for_a_channel_that_nobody_has_is_refused() -> None:
    one, other = socket.socketpair()
    with one, other:
        sender = TrunkSender(other, [OutputChannel(1000, 100)], lambda sender: None)
        one.sendall(CREDIT.pack(1, 5, 100))
        with pytest.raises(ProtocolError, match="credit for channel 1 of a trunk that has 1"):
            sender.on_readable()


def test_all_that_has_come_is_taken_in_at_once() -> None:
    one, other = socket.socketpair()
    with one, other:
        ends = Ends((one, other), channels=1)
        one.setblocking(False)
        wire = HEADER.pack(900, 0, Kind.ROWS) + bytes(900)
        other.sendall(wire * 60)
        assert ends.receiver.on_readable(memoryview(bytearray(4096)))
        assert len(ends.came[0]) == 60
