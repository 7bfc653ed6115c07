"""The Kafka sink with direct delivery: transactions of writers that the coordinator ends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import minirt as rt
from minirt.data.batch import Rows
from minirt.io.base import Committable, Handle, Sink, SinkContext, Staging
from minirt.storage.store import ObjectStore
from minirt.testing.contracts import SinkContract
from minirt.testing.sinks import check_sink
from minirt_connectors.kafka import KafkaSink, LostTransactionError
from minirt_connectors.kafka.cluster import Cluster as Client
from minirt_connectors.kafka.ending import TransactionClient
from minirt_connectors.kafka.login import login_of
from tests.jobs import named_rows
from tests.kafka.broker import PASSWORD, USER, Broker, Cluster
from tests.kafka.coordinators import JOB, committer, ids, prepared
from tests.kafka.test_sink import KafkaTrial, refused

pytestmark = [pytest.mark.kafka, pytest.mark.processes]


def direct(cluster: Cluster, topic: str, **options: Any) -> KafkaSink:
    given = {"delivery": "direct", "ledger": f"ledger-{topic}", **options}
    return KafkaSink(cluster.bootstrap, topic, **given)


def open_ones(cluster: Cluster) -> list[str]:
    client = TransactionClient(Client(cluster.bootstrap, None))
    try:
        return sorted(client.open_ones())
    finally:
        client.close()


class TestContract(SinkContract):
    """Each record has a partition of its own: readers of one wait behind any transaction that is open there."""

    @pytest.fixture(autouse=True)
    def _place(self, cluster: Cluster, tmp_path: Path) -> None:
        self.cluster = cluster
        self.topic = cluster.topic(10)
        self.store = ObjectStore(str(tmp_path / "staged"))
        self.strange = set(open_ones(cluster))

    def new_sink(self) -> Sink:
        sink = direct(self.cluster, self.topic, partition="id")
        sink.validate()
        return sink

    def visible(self, sink: Sink) -> list[Any]:
        return self.cluster.values(self.topic)

    def pending(self) -> list[str]:
        return [id for id in open_ones(self.cluster) if id not in self.strange]

    def staging(self) -> Staging:
        return self.store

    def crafted(self, handle: Handle) -> Iterator[Handle]:
        """Some: after each, a connection is made anew."""
        return islice(super().crafted(handle), 0, None, 6)


class DirectTrial(KafkaTrial):
    def sink(self) -> Sink:
        return direct(self.cluster, self.topic)


def test_the_kit_finds_nothing(cluster: Cluster) -> None:
    check_sink(DirectTrial(cluster), runs=1)


def test_a_job_writes_each_record_once(cluster: Cluster, tmp_path: Path) -> None:
    topic = cluster.topic(3)
    checkpointing = rt.Checkpointing(tmp_path / "chk", interval=0.2)
    sink = direct(cluster, topic, key="id")
    named_rows(sink, 5000, job="to-kafka").execute(checkpointing=checkpointing)
    assert ids(cluster, topic) == list(range(5000))
    assert not (tmp_path / "chk" / "staged").exists()
