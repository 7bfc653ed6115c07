"""What the client of Kafka says during an outage."""

from __future__ import annotations

import logging
import re

import pytest

from minirt_connectors.kafka.cluster import Cluster
from minirt_connectors.kafka.repeats import EVERY_S, Repeats
from tests.runtime.processes import wait_until

FAILED = "FAIL [minirt#{}] [thrd:{}]: Connect to {} failed: refused (after {}ms in state CONNECT)"


def said(quiet: Repeats, at: float, *values: object) -> str | None:
    record = logging.LogRecord("minirt.kafka", logging.ERROR, __file__, 1, "%s", (), None)
    record.args, record.created = (FAILED.format(*values),), at
    return record.getMessage() if quiet.filter(record) else None


def test_a_message_comes_once_in_a_while_and_counts_what_was_left_out() -> None:
    quiet = Repeats()
    first = said(quiet, 0, "consumer-1", "a:1", "a:1", 0)
    assert first == FAILED.format("consumer-1", "a:1", "a:1", 0)
    assert said(quiet, 1, "consumer-1", "a:1", "a:1", 12) is None
    assert said(quiet, EVERY_S - 1, "producer-22", "a:1", "a:1", 3) is None
    assert said(quiet, 2, "consumer-1", "b:1", "b:1", 0) is not None
    late = said(quiet, EVERY_S, "consumer-1", "a:1", "a:1", 0)
    assert late == f"{first} (2 more were left out)"
    assert said(quiet, 2 * EVERY_S, "consumer-1", "a:1", "a:1", 0) == first


def test_a_clock_that_is_set_back_silences_nothing() -> None:
    quiet = Repeats()
    assert said(quiet, 1000, "consumer-1", "a:1", "a:1", 0) is not None
    assert said(quiet, 10, "consumer-1", "a:1", "a:1", 0) is not None


def test_it_forgets_before_it_grows() -> None:
    quiet = Repeats()
    for number in range(5000):
        said(quiet, 0, "consumer-1", number, number, 0)
    assert len(quiet._told) <= 1000


def test_clients_that_find_no_broker_say_so_once(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster("127.0.0.1:1", None)
    consumers = [cluster.consumer() for _ in range(2)]

    def refused() -> int:
        for consumer in consumers:
            consumer.poll(0.1)
        return sum(re.search("FAIL.*refused", text) is not None for text in caplog.messages)

    wait_until(lambda: refused() > 0, "the first is told")
    assert [refused() for _ in range(10)] == [1] * 10
    for consumer in consumers:
        consumer.close()
