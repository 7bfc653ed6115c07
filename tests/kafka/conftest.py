from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

pytest.importorskip("confluent_kafka", reason="the extra kafka is not installed")

from tests.kafka.broker import Broker, Cluster, a_broker


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Any Kafka: that of TEST_KAFKA_BOOTSTRAP, or a broker of the tests."""
    if bootstrap := os.environ.get("TEST_KAFKA_BOOTSTRAP"):
        yield Cluster(bootstrap)
        return
    with a_broker() as started:
        yield started


@pytest.fixture
def broker(cluster: Cluster) -> Broker:
    """A broker that a test may stop."""
    if not isinstance(cluster, Broker):
        pytest.skip("the broker of TEST_KAFKA_BOOTSTRAP is none of the tests'")
    return cluster
