"""A Kafka broker of the tests in KRaft mode: made, stopped, killed, started again; read by its client."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka as kafka
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.needs import SERVICES, lacks
from tests.servers import running

_START_TIMEOUT_S = 120
USER, PASSWORD = "minirt", "minirt-secret"
HEAP = "-Xmx400m"
SMALL_JVM = (HEAP, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "log.retention.check.interval.ms": "1000",
}
"""Of the broker, wherever it listens and stores; docker-compose.yml has the same."""


def classes() -> str | None:
    """The class path of a broker: that of `KAFKA_HOME`, or what .ci/install-services has installed."""
    homes = [os.environ.get("KAFKA_HOME"), str(SERVICES / "kafka")]
    for libs in (Path(home) / "libs" for home in homes if home):
        if list(libs.glob("kafka_2.1*.jar")):
            return str(libs / "*")
    return None


class Cluster:
    """Topics and records of a cluster, by its own client and none of ours."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._made = 0

    def topic(self, partitions: int = 1, **config: str) -> str:
        """A new topic, and nobody else has its name."""
        self._made += 1
        name = f"t{os.getpid()}-{time.monotonic_ns():x}-{self._made}"
        kept = {"retention.ms": "-1", **config}
        new = NewTopic(name, partitions, replication_factor=-1, config=kept)
        self.admin.create_topics([new])[name].result(60)
        end = time.monotonic() + 60
        while len(self._partitions(name)) < partitions:
            assert time.monotonic() < end, f"{name} was not made"
            time.sleep(0.02)
        return name

    def add_partitions(self, topic: str, count: int) -> None:
        self.admin.create_partitions([NewPartitions(topic, count)])[topic].result(60)
        while len(self._partitions(topic)) < count:
            time.sleep(0.02)

    def _partitions(self, topic: str) -> list[int]:
        found = self.admin.list_topics(topic, timeout=30).topics[topic].partitions
        return [one for one, state in found.items() if state.error is None and state.leader >= 0]

    def send(
        self,
        topic: str,
        values: list[Any],
        partition: int = 0,
        times: Sequence[int] | None = None,
        **fields: Any,
    ) -> None:
        """Values that are neither bytes nor None are written as JSON."""
        producer = kafka.Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True})
        for place, value in enumerate(values):
            if times is not None:
                fields["timestamp"] = times[place]
            raw = value if value is None or isinstance(value, bytes) else json.dumps(value)
            producer.produce(topic, raw, partition=partition, **fields)
            producer.poll(0)
        assert producer.flush(60) == 0

    def messages(self, topic: str) -> list[Any]:
        """All that a reader with read_committed sees now, partition by partition."""
        options = {
            "bootstrap.servers": self.bootstrap,
            "group.id": "tests",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
        consumer = kafka.Consumer(options)
        partitions = self._partitions(topic)
        consumer.assign([kafka.TopicPartition(topic, p, 0) for p in partitions])
        found: dict[int, list[Any]] = {p: [] for p in partitions}
        ended = set[int]()
        end = time.monotonic() + 60
        while len(ended) < len(partitions):
            assert time.monotonic() < end, f"{topic} cannot be read to its end"
            for message in consumer.consume(5000, 0.2):
                error = message.error()
                if error is None:
                    found[message.partition()].append(message)
                elif error.code() == kafka.KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
                else:
                    assert error.retriable(), error
        consumer.close()
        return [message for p in sorted(found) for message in found[p]]

    def values(self, topic: str) -> list[Any]:
        return [json.loads(message.value()) for message in self.messages(topic)]


class Broker(Cluster):
    """One broker on free ports of this machine, with a second listener that asks for a password."""

    def __init__(self, folder: Path, class_path: str, jvm: Sequence[str] = SMALL_JVM) -> None:
        self._folder = folder
        self._java = ["java", *jvm]
        self._java += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", class_path]
        self.port, self.secured_port, controller = _free_ports(3)
        self._config = folder / "broker.properties"
        self._config.write_text(
            _properties(folder / "data", self.port, self.secured_port, controller)
        )
        self._server: subprocess.Popen[bytes] | None = None
        format = ["kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ"]
        made = subprocess.run(
            [*self._java, *format, "-c", self._config],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        if made.returncode:
            raise RuntimeError(
                f"the storage of the broker was not made: {made.stdout}{made.stderr}"
            )
        self.start()
        super().__init__(f"127.0.0.1:{self.port}")

    @property
    def secured(self) -> str:
        return f"127.0.0.1:{self.secured_port}"

    @property
    def has_ended(self) -> bool:
        """Whether it has ended by itself."""
        return self._server is not None and self._server.poll() is not None

    def start(self) -> None:
        """Start it and wait until it answers."""
        with (self._folder / "log").open("ab") as log:
            command = [*self._java, "kafka.Kafka", self._config]
            self._server = subprocess.Popen(command, stdout=log, stderr=log)
        end = time.monotonic() + _START_TIMEOUT_S
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                    return
            except OSError:
                if self._server.poll() is not None or time.monotonic() > end:
                    text = (self._folder / "log").read_text()[-3000:]
                    raise RuntimeError(f"the broker does not start: {text}") from None
                time.sleep(0.1)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._server is not None:
            self._server.send_signal(how)
            self._server.wait(60)
            self._server = None

    def restart(self, how: signal.Signals) -> None:
        self.stop(how)
        self.start()

    def keep(self, folder: Path) -> None:
        """Copy what it has said and its logs of records, which kafka-dump-log reads, into a folder."""
        shutil.copytree(self._folder, folder, dirs_exist_ok=True)


@contextmanager
def a_broker() -> Iterator[Broker]:
    """A broker for as long as it is needed; without the programs of one the test is skipped."""
    class_path = classes()
    if class_path is None or shutil.which("java") is None:
        lacks(
            "kafka",
            "no Kafka broker: .ci/install-services installs one, KAFKA_HOME names one, "
            "TEST_KAFKA_BOOTSTRAP names one that runs",
        )
    with running("kafka", lambda folder: Broker(folder, class_path)) as started:
        yield started


def ids(cluster: Cluster, topic: str) -> list[int]:
    """The field `id` of all records, in order."""
    return sorted(row["id"] for row in cluster.values(topic))


def _properties(data: Path, port: int, secured: int, controller: int) -> str:
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    lines = {
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},SECURED://127.0.0.1:{secured},"
        f"CONTROLLER://127.0.0.1:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURED:SASL_PLAINTEXT,"
        "CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secured.plain.sasl.jaas.config": f'{login} user_{USER}="{PASSWORD}";',
        "log.dirs": str(data),
        **SETTINGS,
    }
    return "".join(f"{name}={value}\n" for name, value in lines.items())


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
