"""The selector of workers, whose waits end on time."""

from __future__ import annotations

import os
import selectors
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from minirt.runtime.worker import short_waits
from minirt.runtime.worker.short_waits import new_selector

WAIT_S = 0.0012


@pytest.fixture
def selector() -> Iterator[selectors.BaseSelector]:
    with new_selector() as selector:
        yield selector


def waited(selector: selectors.BaseSelector, timeout: float | None) -> float:
    began_at = time.perf_counter()
    assert selector.select(timeout) == []
    return time.perf_counter() - began_at


def test_a_wait_is_not_rounded_to_milliseconds(selector: selectors.BaseSelector) -> None:
    """The shortest of many: a busy machine lengthens some."""
    times = [waited(selector, WAIT_S) for _ in range(100)]
    assert WAIT_S <= min(times) < 0.0019


@pytest.mark.skipif(not hasattr(selectors, "EpollSelector"), reason="this system has no epoll")
def test_an_epoll_alone_rounds(
    selector: selectors.BaseSelector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the test above would find; and so it is where there are too many descriptors for select."""
    monkeypatch.setattr(short_waits, "_SELECTABLE_MAX", 0)
    assert min(waited(selector, WAIT_S) for _ in range(10)) >= 0.0019


@pytest.mark.parametrize("timeout", [0.04, 30.0, None])
def test_what_arrives_ends_a_wait(selector: selectors.BaseSelector, timeout: float | None) -> None:
    here, there = socket.socketpair()
    with here, there:
        selector.register(here, selectors.EVENT_READ, "data")
        thread = threading.Timer(0.005, there.send, (b"x",))
        thread.start()
        began_at = time.perf_counter()
        ready: list[tuple[selectors.SelectorKey, int]] = []
        while not ready and time.perf_counter() - began_at < 20:
            ready = selector.select(timeout)
        assert [(key.data, mask) for key, mask in ready] == [("data", selectors.EVENT_READ)]
        thread.join()


def test_what_is_ready_is_told_whatever_the_timeout(selector: selectors.BaseSelector) -> None:
    read, write = os.pipe()
    selector.register(read, selectors.EVENT_READ)
    os.write(write, b"x")
    for timeout in (0, WAIT_S, 1.0, None):
        assert [key.fd for key, _ in selector.select(timeout)] == [read]
    os.close(read)
    os.close(write)
