"""The Kafka client of minirt by itself, without a job: the least that the same work costs with it."""

from __future__ import annotations

import sys
import time
from typing import Any

import confluent_kafka as kafka

from benchmarks.kafka_work import KafkaWork, id_of, value
from benchmarks.peers.processes import in_processes
from benchmarks.workload import Tally, announce, report

_AT_ONCE = 2000


def _partitions(work: KafkaWork, part: int) -> list[Any]:
    consumer = kafka.Consumer({"bootstrap.servers": work.bootstrap, "group.id": "benchmark"})
    count = len(consumer.list_topics(work.topic, timeout=10).topics[work.topic].partitions)
    consumer.close()
    own = range(part, count, work.parallelism)
    return [kafka.TopicPartition(work.topic, number, 0) for number in own]


def _values(work: KafkaWork, part: int) -> Any:
    """Lists of values: read, or made."""
    if work.work == "sink":
        ids = work.share(part)
        announce()
        for first in range(0, len(ids), _AT_ONCE):
            yield [value(id) for id in ids[first : first + _AT_ONCE]]
        return
    left = _partitions(work, part)
    consumer = kafka.Consumer(
        {
            "bootstrap.servers": work.bootstrap,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign(left)
    announce()
    ended = 0
    while ended < len(left):
        messages = consumer.consume(_AT_ONCE, 0.1)
        ended += sum(one.error() is not None for one in messages)
        yield [one.value() for one in messages if one.error() is None]
    consumer.close()


def _run(work: KafkaWork, part: int) -> None:
    tally = Tally()
    if work.work == "source":
        for values in _values(work, part):
            tally.add(len(values), sum(map(id_of, values)))
        report(tally, time.monotonic())
        return
    producer = kafka.Producer(
        {
            "bootstrap.servers": work.bootstrap,
            "transactional.id": f"{work.results}-{part}",
            "queue.buffering.max.messages": 500_000,
            "linger.ms": 5,
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    commit_at = time.monotonic() + work.checkpoint_ms / 1000
    for values in _values(work, part):
        for one in values:
            while True:
                try:
                    producer.produce(work.results, one)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.poll(0)
        if time.monotonic() > commit_at:
            producer.commit_transaction(60)
            producer.begin_transaction()
            commit_at = time.monotonic() + work.checkpoint_ms / 1000
    producer.commit_transaction(60)
    report(tally, time.monotonic())


def main() -> None:
    work = KafkaWork.parse(sys.argv[1:])
    in_processes(_run, work, work.parallelism)


if __name__ == "__main__":
    main()
