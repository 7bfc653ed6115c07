"""Rates from and to Kafka, beside other systems: `python -m benchmarks.kafka --peers bytewax flink`.

Records are JSON of 100 bytes, checkpoints come every second, and one broker shares the cores with the
systems. "source" reads a topic, "sink" writes one, "both" reads one and writes another. What was written is
read back after each run. `client` is the client of minirt without a job.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.kafka_work import (
    FIRST_ID,
    PARTITIONS,
    RECORDS_MAX,
    RUN,
    KafkaWork,
    expected_sum,
    id_of,
    value,
)
from benchmarks.measure import print_rows
from benchmarks.servers import kafka_broker
from benchmarks.systems import (
    BENCH,
    FLINK_CLASSES,
    FLINK_LIBRARIES,
    BenchmarkError,
    System,
    peer_python,
    watched,
)

CASES = ("source", "sink", "both")
_WORKS = frozenset(CASES)
_FLINK_KAFKA = BENCH / "flink-kafka"
_FLINK_PATHS = (_FLINK_KAFKA, _FLINK_KAFKA / "*", FLINK_CLASSES, FLINK_LIBRARIES / "*")
_JOBS = (sys.executable, "-m", "benchmarks.kafka_jobs")
_BYTEWAX = peer_python("bytewax")
_PYFLINK = peer_python("flink")

SYSTEMS: Mapping[str, System] = {
    system.name: system
    for system in (
        System("minirt", _WORKS, _JOBS),
        System("minirt-direct", _WORKS - {"source"}, (*_JOBS, "delivery=direct")),
        System("minirt-rows", _WORKS, (*_JOBS, "form=rows")),
        System("client", _WORKS, (sys.executable, "-m", "benchmarks.peers.kafka_client")),
        System(
            "bytewax",
            _WORKS,
            (str(_BYTEWAX), "-m", "benchmarks.peers.bytewax_kafka"),
            (
                _BYTEWAX,
                BENCH / "bytewax/lib/python3.11/site-packages/confluent_kafka",
            ),
        ),
        System(
            "flink",
            _WORKS,
            ("java", "-Xmx4g", "-cp", ":".join(map(str, _FLINK_PATHS)), "KafkaPeer"),
            (FLINK_LIBRARIES, _FLINK_KAFKA / "KafkaPeer.class"),
        ),
        System(
            "pyflink",
            _WORKS,
            (str(_PYFLINK), "-m", "benchmarks.peers.pyflink_kafka"),
            (_PYFLINK, _FLINK_KAFKA / "KafkaPeer.class"),
        ),
    )
}
OWN = ("minirt", "minirt-direct", "minirt-rows", "client")
_PEERS = [name for name in SYSTEMS if name not in OWN]


@dataclass
class Comparison:
    """Runs systems in turn on one broker. `rows` has one for each run."""

    bootstrap: str
    records: int
    rows: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[dict[str, Any]] = field(default_factory=list)
    failures: int = 0

    def run(self, case: str, systems: Sequence[System], topic: str) -> None:
        for system in systems:
            reason = system.skipped(case)
            if reason is not None:
                self.skipped.append({"case": case, "system": system.name, "reason": reason})
                continue
            try:
                row = self._measured(case, system, topic)
            except BenchmarkError as error:
                self.failures += 1
                print(f"benchmarks.kafka: {error}", file=sys.stderr, flush=True)
            else:
                print(
                    f"{case}: {system.name} {row['records_per_s']:,.0f}/s",
                    file=sys.stderr,
                    flush=True,
                )
                self.rows.append(row)

    def _measured(self, case: str, system: System, topic: str) -> dict[str, Any]:
        results = "" if case == "source" else make_topic(self.bootstrap, "results")
        try:
            with tempfile.TemporaryDirectory() as storage:
                work = KafkaWork(case, self.records, self.bootstrap, topic, results)
                own = replace(work, storage=storage)
                title = f"{system.name} at {case}"
                lines, usage = watched([*system.command, *own.arguments()], title)
            ended = [line for line in lines if "ended_at" in line]
            if case == "source":
                found = (
                    sum(line["count"] for line in ended),
                    sum(line["checksum"] for line in ended),
                )
            else:
                found = count_and_sum(self.bootstrap, results)
            if found != (self.records, expected_sum(self.records)):
                raise BenchmarkError(f"wrong results of {title}: {found[0]} records")
        finally:
            if results:
                delete_topic(self.bootstrap, results)
        started_at = min(line["started_at"] for line in lines if "started_at" in line)
        seconds = max(line["ended_at"] for line in ended) - started_at
        return {
            "case": case,
            "system": system.name,
            "records": self.records,
            "seconds": seconds,
            "records_per_s": self.records / seconds,
            "cpu_s_per_million": usage.cpu_s / self.records * 1e6,
            "peak_rss_bytes": usage.peak_rss_bytes,
        }


def summary(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Medians of each case and system, beside those of minirt in columns."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["case"], row["system"]), []).append(row)
    lines = []
    for (case, system), own in groups.items():
        rate = _median(own, "records_per_s")
        cpu = _median(own, "cpu_s_per_million")
        line = f"{case}: {system}  {rate:,.0f} records/s  {cpu:.2f} CPU s/M"
        ours = groups.get((case, "minirt"))
        if ours and system != "minirt":
            line += f"  minirt is {_median(ours, 'records_per_s') / rate:.2f} x"
        lines.append(line)
    return lines


def _median(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    return statistics.median(row[name] for row in rows)


# Topics.


def make_topic(bootstrap: str, name: str) -> str:
    """A new topic; its name begins with `name`."""
    import confluent_kafka.admin as kafka

    admin = kafka.AdminClient({"bootstrap.servers": bootstrap})
    topic = f"minirt-benchmark-{name}-{time.time_ns():x}"
    new = kafka.NewTopic(topic, PARTITIONS, config={"retention.ms": "-1"})
    admin.create_topics([new])[topic].result(30)
    end = time.monotonic() + 30
    while len(admin.list_topics(topic, timeout=30).topics[topic].partitions) < PARTITIONS:
        if time.monotonic() > end:
            raise BenchmarkError(f"the topic {topic} was not made")
        time.sleep(0.05)
    return topic


def delete_topic(bootstrap: str, topic: str) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(30)


def fill(bootstrap: str, records: int) -> str:
    """A topic with so many records."""
    import confluent_kafka as kafka

    topic = make_topic(bootstrap, "records")
    producer = kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 500_000,
            "linger.ms": 20,
        }
    )
    for number in range(records):
        if number % RUN == 0:
            while len(producer) > 400_000:
                producer.poll(0.1)
            producer.poll(0)
        producer.produce(topic, value(FIRST_ID + number), partition=number // RUN % PARTITIONS)
    if producer.flush(60):
        raise BenchmarkError(f"the broker at {bootstrap} does not take the records")
    return topic


def count_and_sum(bootstrap: str, topic: str) -> tuple[int, int]:
    """What a reader with read_committed finds: how many records, and the sum of their ids."""
    import confluent_kafka as kafka

    consumer = kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "benchmark",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    count = total = ended = 0
    end = time.monotonic() + 120
    while ended < PARTITIONS:
        if time.monotonic() > end:
            raise BenchmarkError(f"{topic} cannot be read to its end: a transaction is open in it")
        for message in consumer.consume(10_000, 0.2):
            if message.error() is None:
                count += 1
                total += id_of(message.value())
            elif message.error().code() == kafka.KafkaError._PARTITION_EOF:
                ended += 1
    consumer.close()
    return count, total


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help="any of: " + ", ".join(CASES))
    parser.add_argument("--systems", default=",".join(OWN), help="with commas, forms of minirt")
    parser.add_argument("--peers", default="", help="with commas, any of: " + ", ".join(_PEERS))
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--bootstrap", help="a broker; without it, one of the tests is started")
    parser.add_argument("--json", help="write the rows to this file, - for standard output")
    told = parser.parse_args()
    names = [name for name in f"{told.systems},{told.peers}".split(",") if name]
    for kind, given, known in ("case", told.cases, CASES), ("system", names, SYSTEMS):
        if unknown := [name for name in given if name not in known]:
            parser.error(f"unknown {kind} {unknown[0]!r}; there are: {', '.join(known)}")
    unit = RUN * PARTITIONS
    if told.records not in range(unit, RECORDS_MAX + 1, unit):
        parser.error(f"--records is a multiple of {unit}, up to {RECORDS_MAX}, got {told.records}")
    with kafka_broker(told.bootstrap) as bootstrap:
        comparison = Comparison(bootstrap, told.records)
        topic = fill(bootstrap, told.records)
        try:
            for _ in range(told.repetitions):
                for case in told.cases or CASES:
                    comparison.run(case, [SYSTEMS[name] for name in names], topic)
        finally:
            delete_topic(bootstrap, topic)
    if told.json:
        print_rows(comparison.rows, told.json, comparison.skipped)
    if told.json != "-":
        print("\n".join(summary(comparison.rows)))
        for one in comparison.skipped:
            print(f"{one['case']}: skipped: {one['reason']}")
    if comparison.failures:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
