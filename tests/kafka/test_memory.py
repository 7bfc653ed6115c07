"""What a checkpoint remembers of a topic is compared with the topic, in both directions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

import minirt as rt
from minirt.io import Sink, Staging
from minirt.io.ledger import LedgerEntry
from minirt.storage.store import ObjectStore
from minirt.testing.contracts import BEFORE, JOB, SinkMemoryContract, SourceMemoryContract
from minirt_connectors.kafka import KafkaSink, KafkaSource
from minirt_connectors.kafka.ledger import packed
from tests.kafka.broker import Cluster

pytestmark = [pytest.mark.kafka]

NOTHING = packed(LedgerEntry())


class KafkaMemory(SourceMemoryContract):
    patience_s = 2.0

    @pytest.fixture(autouse=True)
    def _topics(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.topic = cluster.topic()

    def source(self, topic: str, accept: Sequence[str]) -> rt.Source:
        return KafkaSource(self.cluster.bootstrap, topic, accept=accept)  # type: ignore[arg-type]

    def first(self) -> rt.Source:
        self.cluster.send(self.topic, [{"id": id} for id in range(BEFORE)])
        return self.source(self.topic, ())

    def second(self, accept: Sequence[str]) -> rt.Source:
        return self.source(self.topic, accept)

    def older(self, offset: Any) -> Any:
        return offset[:2]


class TestAnotherTopic(KafkaMemory):
    while_running = False

    def change(self, count: int) -> None:
        self.other = self.cluster.topic()
        self.cluster.send(self.other, [{"id": id} for id in range(100, 100 + count)])
        self.names = (self.topic, self.other, "topic id")

    def second(self, accept: Sequence[str]) -> rt.Source:
        return self.source(self.other, accept)

    @pytest.mark.parametrize("count", [BEFORE, BEFORE + 3])
    def test_it_can_be_accepted_and_is_remembered_then(self, count: int) -> None:
        super().test_it_can_be_accepted_and_is_remembered_then(count)


class TestATopicMadeAnew(KafkaMemory):
    names = ("topic id",)

    def change(self, count: int) -> None:
        self.cluster.admin.delete_topics([self.topic])[self.topic].result(60)
        new = NewTopic(self.topic, 1, replication_factor=-1, config={"retention.ms": "-1"})
        self.cluster.admin.create_topics([new])[self.topic].result(60)
        self.cluster.send(self.topic, [{"id": id} for id in range(100, 100 + count)])

    @pytest.mark.parametrize("count", [BEFORE, BEFORE + 3])
    def test_it_can_be_accepted_and_is_remembered_then(self, count: int) -> None:
        super().test_it_can_be_accepted_and_is_remembered_then(count)


class TestKafkaSink(SinkMemoryContract):
    """A topic cannot be set back by its client: the ledger says what it said, and the records stay."""

    delivery = "exactly_once"

    @pytest.fixture(autouse=True)
    def _topics(self, cluster: Cluster, tmp_path: Path) -> None:
        self.cluster, self.topic = cluster, cluster.topic()
        self.ledger = cluster.topic(**{"cleanup.policy": "compact"})
        self.store = ObjectStore(str(tmp_path / "staging"), None)

    def new_sink(self, accept: Sequence[str]) -> Sink:
        return KafkaSink(
            self.cluster.bootstrap,
            self.topic,
            ledger=self.ledger,
            delivery=self.delivery,  # type: ignore[arg-type]
            accept=accept,  # type: ignore[arg-type]
        )

    def staging(self) -> Staging:
        return self.store

    def keep(self) -> None:
        self.kept = [(one.key(), one.value()) for one in self.cluster.messages(self.ledger)]

    def go_back(self) -> None:
        owner = JOB.name.encode()
        last = [value for key, value in self.kept if key == owner] or [NOTHING]
        self.cluster.send(self.ledger, [last[-1]], key=owner)

    def visible(self) -> list[Any]:
        return [json.loads(one.value())["id"] for one in self.cluster.messages(self.topic)]


class TestKafkaSinkWithoutASecondWrite(TestKafkaSink):
    delivery = "direct"
    stages = False
