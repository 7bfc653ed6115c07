"""What a checkpoint remembers of a topic is compared with the topic, in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic

import minirt as rt
from minirt.testing.contracts import BEFORE, SourceMemoryContract
from minirt_connectors.kafka import KafkaSource
from minirt_connectors.kafka.progress import LastRecord
from tests.kafka.broker import Cluster

pytestmark = [pytest.mark.kafka]


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
