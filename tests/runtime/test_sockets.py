"""Channels over sockets, where the other side does not read."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from minirt.runtime.channels.channels import InputChannel, OutputChannel
from minirt.runtime.channels.frames import CREDIT, Frame, Kind
from minirt.runtime.channels.sockets import SocketReceiver, SocketSender

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    one, other = socket.socketpair()
    with one, other:
        one.setblocking(False)
        other.setblocking(False)
        yield one, other


def test_credit_that_the_socket_does_not_take_is_sent_when_it_does(pair):
    stuck: list[SocketReceiver] = []
    channel = InputChannel(100)
    receiver = SocketReceiver(pair[0], channel, lambda frame: None, 1000, stuck.append)
    granted, read = 0, b""
    while not stuck:
        granted += 1
        channel.grant(granted, 100)
    channel.grant(granted + 1, 100)
    while receiver.flush_credit():
        read += pair[1].recv(4096)
    while len(read) % CREDIT.size or CREDIT.unpack(read[-CREDIT.size :])[0] <= granted:
        read += pair[1].recv(4096)
    assert CREDIT.unpack(read[-CREDIT.size :]) == (granted + 1, 100)
    consumed = [credit for credit, _ in CREDIT.iter_unpack(read)]
    assert consumed == sorted(consumed)


def test_a_frame_larger_than_the_window_travels_alone(pair):
    received: list[Frame] = []
    sending = OutputChannel(1000, 100)
    receiving = InputChannel(100)
    receiver = SocketReceiver(pair[0], receiving, received.append, 1000, lambda receiver: None)
    sender = SocketSender(pair[1], sending)
    for size in (500, 10):
        sending.put(Frame(Kind.ROWS, bytes(size), 1))
    sender.send()
    receiver.on_readable(memoryview(bytearray(10_000)))
    assert [len(frame.payload) for frame in received] == [500]
    receiving.put(received[0])
    receiving.take()
    sender.on_readable()
    sender.send()
    receiver.on_readable(memoryview(bytearray(10_000)))
    assert [len(frame.payload) for frame in received] == [500, 10]
