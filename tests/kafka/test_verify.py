"""What verify reads of a topic: the values of committed records, up to the end."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka as kafka
import pytest

from minirt.errors import StorageError
from minirt_connectors.spark.verify.systems import Copy, copy_of
from tests.kafka.broker import Cluster


def copy_from(cluster: Cluster, topic: str) -> Copy:
    copy = copy_of(f"kafka://{cluster.bootstrap}/{topic}", {})
    assert copy is not None
    return copy


def write(cluster: Cluster, topic: str, *values: bytes | None, commit: bool) -> None:
    producer = kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": f"of {topic}", "log_level": 0}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for place, value in enumerate(values):
        producer.produce(topic, value, partition=place % 2)
    producer.flush()
    if commit:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


def test_only_committed_values_are_read_each_as_a_line(cluster: Cluster, tmp_path: Path) -> None:
    topic = cluster.topic(2)
    write(cluster, topic, b'{"n": 1}', b'{\n"n": 2}', commit=True)
    write(cluster, topic, b'{"n": 3}', commit=False)
    copy_from(cluster, topic)(tmp_path)
    lines = (tmp_path / "topic.jsonl").read_bytes().splitlines()
    assert sorted(lines) == [b'{ "n": 2}', b'{"n": 1}']


def test_a_record_without_a_value_is_named(cluster: Cluster, tmp_path: Path) -> None:
    topic = cluster.topic(2)
    write(cluster, topic, None, commit=True)
    with pytest.raises(StorageError, match="partition 0, offset 0 has no value"):
        copy_from(cluster, topic)(tmp_path)


def test_a_topic_that_is_not_there_is_told(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot read the topic"):
        copy_from(cluster, "no-such-topic-of-verify")(tmp_path)
