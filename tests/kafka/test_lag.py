"""`minirt kafka lag` against a real broker."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka as kafka
import pytest

import minirt as rt
from minirt_connectors.kafka import KafkaSource
from minirt_connectors.kafka.cluster import Cluster as Client
from minirt_connectors.kafka.lag import read_options
from tests.cli.conftest import call as call
from tests.kafka.broker import PASSWORD, USER, Broker, Cluster
from tests.runtime.processes import wait_until

if TYPE_CHECKING:
    from tests.cli.conftest import Call, Called

pytestmark = [pytest.mark.kafka, pytest.mark.processes]


def read_to_its_end(cluster: Cluster, topic: str, storage: Path, group: str | None) -> None:
    """A job that reads what there is, and leaves its last checkpoint."""
    env = rt.Environment("lagging", parallelism=2)
    source = KafkaSource(cluster.bootstrap, topic, bounded=True, group=group)
    env.source(source, uid="in").sink(rt.DiscardSink(), uid="out")
    env.execute(runner="inline", checkpointing=rt.Checkpointing(storage, interval=0.1))


def refused(called: Called, message: str) -> None:
    assert called.status == 2
    assert called.out == ""
    assert re.search(message, called.err), called.err
    assert called.err.count("\n") == 1


def test_it_counts_what_is_behind_the_checkpoint_and_the_group(
    cluster: Cluster, call: Call, tmp_path: Path
) -> None:
    topic, group, storage = cluster.topic(2), f"group-{time.monotonic_ns()}", tmp_path / "chk"
    for partition, count in ((0, 10), (1, 20)):
        cluster.send(topic, [{"n": n} for n in range(count)], partition)
    read_to_its_end(cluster, topic, storage, group)
    cluster.send(topic, [{"n": n} for n in range(5)], 1)
    cluster.add_partitions(topic, 3)
    cluster.send(topic, [{"n": 1}], 2)
    consumer = kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    consumer.commit(offsets=[kafka.TopicPartition(topic, 0, 8)], asynchronous=False)
    consumer.close()

    def rows(*arguments: str) -> Any:
        called = call("kafka", "lag", *arguments, "--bootstrap", cluster.bootstrap, "--json")
        assert called.status == 0, called.err
        return json.loads(called.out)

    names = ("topic", "partition", "end")
    places = [(topic, 0, 10), (topic, 1, 25), (topic, 2, 1)]
    of_job = [(10, 0), (20, 5), (None, None)]
    of_group = [(8, 2), (20, 5), (None, None)]
    both = [
        dict(zip(names, place, strict=True))
        | {"uid": "in", "checkpoint": job[0], "lag": job[1]}
        | {"group": told[0], "group_lag": told[1]}
        for place, job, told in zip(places, of_job, of_group, strict=True)
    ]
    assert rows(str(storage), "--group", group) == both
    only_job = [{k: v for k, v in row.items() if not k.startswith("group")} for row in both]
    assert rows(str(storage), "--uid", "in") == only_job
    of_checkpoint = ("uid", "checkpoint", "lag")
    assert rows("--group", group) == [
        {name: value for name, value in row.items() if name not in of_checkpoint} for row in both
    ]
    shown = call("kafka", "lag", str(storage), "--bootstrap", cluster.bootstrap, "--group", group)
    lines = shown.out.splitlines()[2:]
    assert [line.split() for line in lines[:4]] == [
        ["uid", "topic", "partition", "end", "checkpoint", "lag", "group", "group", "lag"],
        ["in", topic, "0", "10", "10", "0", "8", "2"],
        ["in", topic, "1", "25", "20", "5", "20", "5"],
        ["in", topic, "2", "1", "-", "-", "-", "-"],
    ]
    assert lines[4:] == [
        "behind the newest checkpoint: 5, and 1 without an offset",
        "behind the group: 7, and 1 without an offset",
    ]


def test_what_cannot_be_asked_is_one_line(
    cluster: Cluster, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, storage, other = cluster.topic(), tmp_path / "chk", tmp_path / "other"
    cluster.send(topic, [{"n": 1}])
    read_to_its_end(cluster, topic, storage, None)
    cluster.admin.delete_topics([topic])[topic].result(30)
    wait_until(lambda: topic not in cluster.admin.list_topics(timeout=30).topics, "it is gone")
    env = rt.Environment("numbers")
    env.source(rt.SequenceSource(5), uid="numbers").sink(rt.DiscardSink(), uid="out")
    env.execute(runner="inline", checkpointing=rt.Checkpointing(other))
    at = ("--bootstrap", cluster.bootstrap)
    for arguments, message in (
        ((str(storage), *at), f"cannot use the topic '{topic}'"),
        (("--group", "nobody", *at), "the group 'nobody' has no offsets"),
        ((str(other), *at), "has no Kafka source"),
        ((str(storage), "--uid", "inn", *at), "no operator 'inn'"),
        ((str(tmp_path / "nowhere"), *at), "nowhere holds no checkpoints"),
        (at, "storage of a job, --group, or both"),
        (("--group", "g", "--uid", "in", *at), "--uid has no effect"),
        (("--group", "g", "--client-options", "no.conf", *at), "no.conf"),
    ):
        refused(call("kafka", "lag", *arguments), message)
    monkeypatch.setattr("minirt_connectors.kafka.cluster.START_TIMEOUT_S", 0.5)
    nobody = call("kafka", "lag", str(storage), "--bootstrap", "127.0.0.1:1")
    refused(nobody, "127.0.0.1:1: no broker answers")


def test_brokers_that_take_over_a_group_or_a_partition_are_asked_again() -> None:
    taking_over = ["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "_WAIT_COORD"]
    taking_over += ["LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION"]

    def ask() -> str:
        if taking_over:
            raise kafka.KafkaException(
                kafka.KafkaError(getattr(kafka.KafkaError, taking_over.pop()))
            )
        return "offsets"

    cluster = Client("127.0.0.1:1", None)
    assert cluster.answer("cannot ask", ask, wait_s=60) == "offsets"
    taking_over.append("NOT_COORDINATOR")
    with pytest.raises(rt.StorageError, match="cannot ask: "):
        cluster.answer("cannot ask", ask, wait_s=-1)
    taking_over += ["NOT_COORDINATOR", "GROUP_AUTHORIZATION_FAILED"]
    with pytest.raises(rt.ConfigurationError, match="cannot ask: "):
        cluster.answer("cannot ask", ask, wait_s=60)
    assert taking_over == ["NOT_COORDINATOR"]


def test_options_come_from_a_file(broker: Broker, call: Call, tmp_path: Path) -> None:
    topic, storage = broker.topic(), tmp_path / "chk"
    broker.send(topic, [{"n": 1}])
    read_to_its_end(broker, topic, storage, None)
    file = tmp_path / "client.conf"
    login = (
        f"# login\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism = PLAIN\nsasl.username={USER}\n"
    )
    for word, status in ((PASSWORD, 0), ("another-word", 2)):
        file.write_text(f"{login}sasl.password={word}\n")
        arguments = ("--bootstrap", broker.secured, "--client-options", str(file))
        called = call("kafka", "lag", str(storage), *arguments)
        assert called.status == status, called
        assert "another-word" not in called.err
    file.write_text("nothing\n")
    with pytest.raises(rt.ConfigurationError, match=r"line 1 of .* is no name=value"):
        read_options(str(file))
