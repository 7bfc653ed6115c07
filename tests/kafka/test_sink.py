"""The Kafka sink against a real broker, read back with the client of Kafka."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import confluent_kafka as kafka
import pytest

import minirt as rt
from minirt.data.batch import Rows
from minirt.io.base import Committable, Handle, Sink, SinkContext, Staging
from minirt.storage.store import ObjectStore
from minirt.testing.contracts import SinkContract
from minirt.testing.sinks import SinkTrial, check_sink
from minirt_connectors.kafka import KafkaSink, KafkaSource
from minirt_connectors.kafka.cluster import START_TIMEOUT_S
from tests.coordinators import JOB, check_two_coordinators, committer, prepared
from tests.jobs import named_rows
from tests.kafka.broker import PASSWORD, USER, Broker, Cluster, ids

pytestmark = [pytest.mark.kafka, pytest.mark.processes]


class TestContract(SinkContract):
    def never_taken(self) -> list[Any]:
        return [{"id": 1, "name": "x" * 2_000_000}, {"id": 1, "name": float("nan")}]

    @pytest.fixture(autouse=True)
    def _place(self, cluster: Cluster, tmp_path: Path) -> None:
        self.cluster = cluster
        self.topic = cluster.topic()
        self.ledger = f"ledger-{self.topic}"
        self.store = ObjectStore(str(tmp_path / "staged"))

    def new_sink(self) -> Sink:
        sink = KafkaSink(self.cluster.bootstrap, self.topic, ledger=self.ledger)
        sink.validate()
        return sink

    def visible(self, sink: Sink) -> list[Any]:
        return self.cluster.values(self.topic)

    def pending(self) -> list[str]:
        return list(self.store.list())

    def staging(self) -> Staging:
        return self.store

    def crafted(self, handle: Handle) -> Iterator[Handle]:
        """Some: after each, a connection is made anew."""
        return islice(super().crafted(handle), 0, None, 6)


class KafkaTrial(SinkTrial):
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def begin(self) -> None:
        self.topic = self.cluster.topic(2)

    def sink(self) -> Sink:
        return KafkaSink(self.cluster.bootstrap, self.topic, ledger=f"ledger-{self.topic}")

    def visible(self) -> Sequence[int]:
        return [row["id"] for row in self.cluster.values(self.topic)]


def test_the_kit_finds_nothing(cluster: Cluster) -> None:
    check_sink(KafkaTrial(cluster), runs=1)


def test_a_job_writes_each_record_once(cluster: Cluster, tmp_path: Path) -> None:
    topic = cluster.topic(3)
    checkpointing = rt.Checkpointing(tmp_path / "chk", interval=0.2)
    sink = KafkaSink(cluster.bootstrap, topic, key="id")
    named_rows(sink, 5000, job="to-kafka").execute(checkpointing=checkpointing)
    assert ids(cluster, topic) == list(range(5000))
    assert not list(ObjectStore(str(tmp_path / "chk" / "staged")).list())


def test_at_least_once_needs_no_checkpoints(cluster: Cluster) -> None:
    topic = cluster.topic(2)
    sink = KafkaSink(cluster.bootstrap, topic, delivery="at_least_once")
    named_rows(sink, 2000, job="to-kafka").execute(runner="inline")
    assert ids(cluster, topic) == list(range(2000))


def test_records_go_where_they_are_told_to(cluster: Cluster, tmp_path: Path) -> None:
    topic, copy = cluster.topic(3), cluster.topic(3)
    sink = KafkaSink(
        cluster.bootstrap,
        topic,
        key="name",
        partition=lambda row: row["id"] % 3,
        headers=lambda row: {"id": str(row["id"])},
        timestamp=lambda row: 1_700_000_000_000 + row["id"],
    )
    checkpointing = rt.Checkpointing(tmp_path / "one", interval=0.2)
    named_rows(sink, 30, job="to-kafka").execute(runner="inline", checkpointing=checkpointing)
    names = ("key", "timestamp", "partition", "headers")
    source = KafkaSource(cluster.bootstrap, topic, bounded=True, format="raw", metadata=names)
    env = rt.Environment("copy")
    again = KafkaSink(
        cluster.bootstrap, copy, format="raw", key="kafka_key", headers="kafka_headers",
        timestamp="kafka_timestamp", partition="kafka_partition",
    )  # fmt: skip
    env.source(source, uid="in").sink(again, uid="out")
    env.execute(runner="inline", checkpointing=rt.Checkpointing(tmp_path / "two", interval=0.2))
    for name in (topic, copy):
        messages = cluster.messages(name)
        assert len(messages) == 30
        for message in messages:
            number = int(dict(message.headers())["id"])
            assert message.partition() == number % 3
            assert message.key() == f"row {number}".encode()
            assert message.timestamp()[1] == 1_700_000_000_000 + number


def test_of_two_coordinators_one_ends_with_an_error(cluster: Cluster, tmp_path: Path) -> None:
    check_two_coordinators(KafkaTrial(cluster), ObjectStore(str(tmp_path)))


def test_a_coordinator_that_is_replaced_in_the_middle_of_a_commit_commits_nothing(
    cluster: Cluster, tmp_path: Path
) -> None:
    """It has read the ledger; its successor comes ahead of its last word."""
    topic = cluster.topic()
    staging = ObjectStore(str(tmp_path / "staged"))
    sink = KafkaSink(cluster.bootstrap, topic, ledger=f"ledger-{topic}")
    later: list[Any] = []

    class Held(ObjectStore):
        def read(self, path: str) -> bytes:
            later.append(committer(sink, 2, staging))
            return super().read(path)

    old = committer(sink, 1, Held(str(tmp_path / "staged")))
    one = prepared(sink, 1, 1, staging)
    with pytest.raises(rt.StorageError):
        old.commit(one)
    with pytest.raises(rt.SupersededError):
        old.commit(one)
    assert ids(cluster, topic) == []
    later[0].commit(one)
    assert ids(cluster, topic) == [1]
    old.close()
    later[0].close()


def test_a_transaction_that_a_dead_coordinator_has_left_is_ended_by_the_next(
    cluster: Cluster, tmp_path: Path
) -> None:
    """As after SIGKILL in the middle of a commit: the transaction is open, the producer is gone."""
    topic = cluster.topic()
    ledger = f"ledger-{topic}"
    staging = ObjectStore(str(tmp_path / "staged"))
    sink = KafkaSink(cluster.bootstrap, topic, ledger=ledger)
    first = committer(sink, 1, staging)
    first.commit(prepared(sink, 1, 1, staging))
    name = JOB.name
    dead = kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": f"minirt-{name}"}
    )
    dead.init_transactions(30)
    dead.begin_transaction()
    dead.produce(topic, b'{"id": -1}')
    dead.produce(ledger, b'{"checkpoint_id": 9, "generation": 1, "written_by": 1}', name.encode())
    dead.flush(30)
    began = time.monotonic()
    second = committer(sink, 2, staging)
    second.commit(prepared(sink, 2, 2, staging))
    assert time.monotonic() - began < 30
    assert ids(cluster, topic) == [1, 2]
    second.close()


# Bad input.


def refused(sink: Sink | rt.Source, message: str) -> None:
    began = time.monotonic()
    with pytest.raises(rt.ConfigurationError, match=message) as caught:
        sink.validate()
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)
    assert time.monotonic() - began < 12


@pytest.mark.parametrize("end", [KafkaSink, KafkaSource])
def test_brokers_that_are_down_are_told_in_time(end: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert START_TIMEOUT_S <= 9
    monkeypatch.setattr("minirt_connectors.kafka.cluster.START_TIMEOUT_S", 2.0)
    refused(end("127.0.0.1:1", "t"), "127.0.0.1:1: no broker answers")


@pytest.mark.parametrize("end", [KafkaSink, KafkaSource])
def test_a_topic_that_is_missing_is_refused(cluster: Cluster, end: Any) -> None:
    refused(end(cluster.bootstrap, "nowhere"), "cannot use the topic 'nowhere'")


@pytest.mark.parametrize("delivery", ["exactly_once", "direct", "at_least_once"])
def test_a_topic_that_is_deleted_meanwhile_is_an_error_that_says_so(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delivery: Any
) -> None:
    for module in ("transactions", "sink"):
        monkeypatch.setattr(f"minirt_connectors.kafka.{module}.MESSAGE_TIMEOUT_S", 3)
    topic, staging = cluster.topic(), ObjectStore(str(tmp_path))
    sink = KafkaSink(cluster.bootstrap, topic, delivery=delivery, ledger=f"ledger-{topic}")
    commits = committer(sink, 1, staging)
    writer = sink.open_writer(SinkContext(JOB, "out", 0, 1, 1, staging))
    cluster.admin.delete_topics([topic])[topic].result(60)

    def write() -> None:
        writer.write(Rows([{"id": 1}]))
        ready = writer.prepare(1)
        assert ready.finish is not None
        ready.finish()
        commits.commit([Committable(1, handle) for handle in ready.handles])

    with pytest.raises(rt.SinkDataError, match="the topic was deleted"):
        write()
    writer.close()
    commits.close()


@pytest.mark.parametrize("end", [KafkaSink, KafkaSource])
def test_wrong_credentials_are_refused_and_right_ones_work(broker: Broker, end: Any) -> None:
    topic = broker.topic()
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    end(broker.secured, topic, options=login).validate()
    wrong = {**login, "sasl.password": "another-secret"}
    refused(end(broker.secured, topic, options=wrong), "cannot log in")


@pytest.mark.parametrize("end", [KafkaSink, KafkaSource])
def test_a_listener_that_asks_for_a_login_is_told_from_one_that_is_down(
    broker: Broker, end: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minirt_connectors.kafka.cluster.START_TIMEOUT_S", 3.0)
    refused(end(broker.secured, broker.topic()), "no broker answers .*security.protocol")


def test_a_ledger_that_forgets_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    topic, forgetful, wide = cluster.topic(), cluster.topic(), cluster.topic(2)
    staging = ObjectStore(str(tmp_path))
    for ledger, message in ((forgetful, "compact"), (wide, "1 partition")):
        with pytest.raises(rt.ConfigurationError, match=message):
            committer(KafkaSink(cluster.bootstrap, topic, ledger=ledger), 1, staging)


@pytest.mark.parametrize("delivery", ["exactly_once", "direct", "at_least_once"])
def test_a_record_larger_than_the_topic_takes_is_refused_when_written(
    cluster: Cluster, tmp_path: Path, delivery: Any
) -> None:
    topic = cluster.topic(**{"max.message.bytes": "2000"})
    staging = ObjectStore(str(tmp_path / "staged"))
    sink = KafkaSink(cluster.bootstrap, topic, delivery=delivery, ledger=f"ledger-{topic}")
    writer = sink.open_writer(SinkContext(JOB, "out", 0, 1, 1, staging))
    with pytest.raises(rt.SinkDataError, match="larger than the topic takes, which is 2000"):
        writer.write(Rows([{"id": 1, "text": "x" * 1900}]))
    fits = "x" * (2000 - 128 - len('{"id":2,"text":""}'))
    writer.write(Rows([{"id": 2, "text": fits}] * 3))
    ready = writer.prepare(1)
    assert ready.finish is not None
    ready.finish()
    commits = committer(sink, 1, staging)
    commits.commit([Committable(1, handle) for handle in ready.handles])
    assert ids(cluster, topic) == [2, 2, 2]
    writer.close()
    commits.close()


def test_a_job_without_checkpoints_is_told_what_it_needs(cluster: Cluster) -> None:
    with pytest.raises(rt.ConfigurationError, match="Checkpointing"):
        named_rows(KafkaSink(cluster.bootstrap, cluster.topic()), 10, job="to-kafka").execute()
