from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

pytest.importorskip("confluent_kafka", reason="the extra kafka is not installed")

from tests.kafka.broker import Broker, Cluster, classes
from tests.needs import lacks
from tests.servers import running


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Any Kafka: that of TEST_KAFKA_BOOTSTRAP, or a broker of the tests."""
    if bootstrap := os.environ.get("TEST_KAFKA_BOOTSTRAP"):
        yield Cluster(bootstrap)
        return
    class_path = classes()
    if class_path is None or shutil.which("java") is None:
        lacks(
            "kafka",
            "no Kafka broker: .ci/install-services installs one, KAFKA_HOME names one, "
            "TEST_KAFKA_BOOTSTRAP names one that runs",
        )
    with running("kafka", lambda folder: Broker(folder, class_path)) as started:
        yield started


@pytest.fixture
def broker(cluster: Cluster) -> Broker:
    """A broker that a test may stop."""
    if not isinstance(cluster, Broker):
        pytest.skip("the broker of TEST_KAFKA_BOOTSTRAP is none of the tests'")
    return cluster
