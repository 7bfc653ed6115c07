"""What the coordinator waits for: connections come, go, and leave their descriptors to others."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from minirt.runtime.cluster.watch import Watch


@pytest.fixture
def watch() -> Iterator[Watch]:
    watch = Watch()
    yield watch
    watch.close()


def pair() -> tuple[socket.socket, socket.socket]:
    one, other = socket.socketpair()
    return one, other


def test_what_can_be_read_is_found_and_what_is_left_out_is_not(watch: Watch) -> None:
    (one, to_one), (two, to_two) = pair(), pair()
    with one, to_one, two, to_two:
        assert watch.readable([one, two], 0) == []
        to_two.send(b"x")
        assert watch.readable([one, two], 5) == [two]
        to_one.send(b"x")
        assert watch.readable([one], 5) == [one]
        assert set(watch.readable([two, one], 5)) == {one, two}
        assert watch.readable([], 0) == []


def test_a_closed_one_leaves_its_descriptor_to_another(watch: Watch) -> None:
    old, to_old = pair()
    watch.readable([old], 0)
    descriptor = old.fileno()
    old.close()
    new, to_new = pair()
    with to_old, new, to_new:
        assert descriptor in (new.fileno(), to_new.fileno())
        reused, sender = (new, to_new) if new.fileno() == descriptor else (to_new, new)
        assert watch.readable([reused], 0) == []
        sender.send(b"x")
        assert watch.readable([reused], 5) == [reused]


def test_the_end_of_a_connection_can_be_read(watch: Watch) -> None:
    one, other = pair()
    with one:
        other.close()
        assert watch.readable([one], 5) == [one]
