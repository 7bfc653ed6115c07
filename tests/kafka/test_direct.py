"""The Kafka sink with direct delivery: transactions of writers that the coordinator ends."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from kafka.net.inet import KafkaNetSocket

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
from tests.coordinators import JOB, check_two_coordinators, committer, prepared
from tests.jobs import named_rows
from tests.kafka.broker import PASSWORD, USER, Broker, Cluster, ids
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
    """Each record has a partition of its own, as readers wait behind whatever is open in one."""

    def never_taken(self) -> list[Any]:
        return [{"id": 10, "name": "no such partition"}, {"id": 1, "name": float("nan")}]

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


def own_ones(cluster: Cluster) -> list[str]:
    """Those of the sinks of this run: others may use the brokers, too."""
    return [id for id in open_ones(cluster) if id.startswith(f"minirt-{JOB.name}.")]


# Coordinators.


def test_of_two_coordinators_one_ends_with_an_error(cluster: Cluster, tmp_path: Path) -> None:
    check_two_coordinators(DirectTrial(cluster), ObjectStore(str(tmp_path)))


def test_whoever_was_replaced_hears_that_and_not_that_records_are_lost(
    cluster: Cluster, tmp_path: Path
) -> None:
    topic = cluster.topic()
    staging = ObjectStore(str(tmp_path))
    sink = direct(cluster, topic)
    old = committer(sink, 1, staging)
    old.commit(prepared(sink, 1, 1, staging))
    late = prepared(sink, 2, 1, staging)
    new = committer(sink, 2, staging)
    new.discard_uncommitted([])
    with pytest.raises(rt.SupersededError):
        old.commit(late)
    assert ids(cluster, topic) == [1]
    old.close()
    new.close()


def test_what_a_crash_has_left_open_is_ended_at_any_parallelism(
    cluster: Cluster, tmp_path: Path
) -> None:
    topic, staging = cluster.topic(), ObjectStore(str(tmp_path))
    sink = direct(cluster, topic)
    before = own_ones(cluster)
    crashed = [sink.open_writer(SinkContext(JOB, "out", n, 4, 1, staging)) for n in range(4)]
    for writer in crashed:
        writer.write(Rows([{"id": -1}]))
    kept = prepared(sink, 1, 1, staging)
    assert len(own_ones(cluster)) == len(before) + 5
    second = committer(sink, 2, staging)
    second.discard_uncommitted([one.handle for one in kept])
    second.commit_restored(kept)
    second.commit(prepared(sink, 2, 2, staging))
    assert own_ones(cluster) == before
    assert ids(cluster, topic) == [1, 2]
    for one in (second, *crashed):
        one.close()


@dataclass
class Running:
    """A sink of one writer whose job runs."""

    topic: str
    writer: Any
    commits: Any
    sent: list[Committable] = field(default_factory=list)

    def send(self, number: int) -> None:
        self.sent += finished(self.writer, number)


def finished(writer: Any, number: int) -> list[Committable]:
    """What is to be committed of one record, written for the checkpoint of this number."""
    writer.write(Rows([{"id": number}]))
    ready = writer.prepare(number)
    ready.finish()
    return [Committable(number, handle) for handle in ready.handles]


@pytest.fixture
def running(cluster: Cluster, tmp_path: Path) -> Iterator[Running]:
    topic, staging = cluster.topic(), ObjectStore(str(tmp_path))
    sink = direct(cluster, topic)
    writer = sink.open_writer(SinkContext(JOB, "out", 0, 1, 1, staging))
    made = Running(topic, writer, committer(sink, 1, staging))
    yield made
    made.writer.close()
    made.commits.close()


def test_ids_are_used_in_turn_and_old_handles_end_nothing(
    cluster: Cluster, running: Running
) -> None:
    writer, commits, sent = running.writer, running.commits, running.sent
    for number in range(1, 11):
        running.send(number)
        commits.commit(sent[-1:])
    used = [one.handle["transaction"] for one in sent]
    assert len(set(used)) <= 4
    writer.write(Rows([{"id": 11}]))
    client = TransactionClient(Client(cluster.bootstrap, None))
    old = [one.handle for one in sent if one.handle["transaction"] in own_ones(cluster)]
    assert old
    for handle in old:  # The id is that of the open transaction, the epoch is not.
        assert not client.commit(handle["transaction"], handle["producer"], handle["epoch"])
    for one in sent:
        commits.commit([one])
    assert ids(cluster, running.topic) == list(range(1, 11))
    client.close()


def test_commits_that_are_behind_lose_nothing(cluster: Cluster, running: Running) -> None:
    for number in range(1, 7):
        running.send(number)
        if number % 3 == 0:
            running.commits.commit(running.sent[::-1])
    assert ids(cluster, running.topic) == list(range(1, 7))


# Transactions that the broker has ended.


def expired(cluster: Cluster, before: list[str]) -> None:
    end = time.monotonic() + 60
    while own_ones(cluster) != before:
        assert time.monotonic() < end, "the broker ends no transaction"
        time.sleep(0.1)


def test_records_that_are_lost_are_told(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic, staging = cluster.topic(2), ObjectStore(str(tmp_path))
    hasty = direct(cluster, topic, partition=lambda row: 0, transaction_timeout="1s")
    sink = direct(cluster, topic, partition=lambda row: 1, on_lost="skip")
    before = own_ones(cluster)
    lost = prepared(hasty, 1, 1, staging)
    expired(cluster, before)
    both = [*lost, *prepared(sink, 1, 1, staging)]
    first = committer(hasty, 1, staging)
    for _ in range(2):
        with pytest.raises(LostTransactionError, match="out: 1 records of checkpoint 1 are lost"):
            first.commit(both)
    assert ids(cluster, topic) == [1]
    first.close()
    second = committer(sink, 2, staging)
    second.commit_restored(both)
    assert "1 records of checkpoint 1 are lost" in caplog.text
    caplog.clear()
    second.commit([*both, *prepared(sink, 2, 2, staging)])
    assert not caplog.text
    assert ids(cluster, topic) == [1, 2]
    second.close()


def test_a_transaction_that_ends_before_its_checkpoint_fails_that(
    cluster: Cluster, tmp_path: Path
) -> None:
    staging = ObjectStore(str(tmp_path))
    sink = direct(cluster, cluster.topic(), transaction_timeout="1s")
    before = own_ones(cluster)
    writer = sink.open_writer(SinkContext(JOB, "out", 0, 1, 1, staging))
    writer.write(Rows([{"id": 1}]))
    expired(cluster, before)
    ready = writer.prepare(1)
    assert ready.finish is not None
    with pytest.raises(rt.StorageError, match="longer than checkpoints are apart"):
        ready.finish()
    writer.close()


# Bad input.


def test_a_timeout_that_brokers_do_not_allow_is_refused(cluster: Cluster) -> None:
    sink = direct(cluster, cluster.topic(), transaction_timeout="1d")
    refused(sink, "86400 s, but brokers allow at most")


def test_a_timeout_below_a_second_is_refused() -> None:
    with pytest.raises(rt.ConfigurationError, match="at least 1 s"):
        KafkaSink("localhost:9092", "t", delivery="direct", transaction_timeout=0)


def test_options_without_effect_are_refused() -> None:
    for given in ({"transaction_timeout": "1min"}, {"on_lost": "skip"}):
        with pytest.raises(rt.ConfigurationError, match='need delivery="direct"'):
            KafkaSink("localhost:9092", "t", **given)  # type: ignore[arg-type]


def test_it_logs_in_and_says_no_password(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    caplog.set_level("DEBUG")
    client = TransactionClient(Client(broker.secured, login))
    client.open_ones()
    client.close()
    assert "KafkaAdminClient" in caplog.text
    assert PASSWORD not in caplog.text
    wrong = {**login, "sasl.password": "another-secret"}
    refused(KafkaSink(broker.secured, broker.topic(), delivery="direct", options=wrong), "log in")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sasl.oauthbearer.config": "x"}, "sasl.oauthbearer.config"),
        ({"security.protocol": "sasl_ssl"}, "GSSAPI"),
        ({"security.protocol": "ssl", "ssl.ca.location": "/nowhere.pem"}, "No such file"),
    ],
)
def test_a_login_that_cannot_be_had_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(rt.ConfigurationError, match=message):
        KafkaSink("localhost:9092", "t", delivery="direct", options=options)


def test_a_client_whose_brokers_are_away_closes_what_it_opens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It tries again every second, for as long as they are away."""
    made: list[socket.socket] = []
    make = KafkaNetSocket.socket

    def made_by(maker: KafkaNetSocket, *kind: Any) -> socket.socket:
        made.append(make(maker, *kind))
        return made[-1]

    monkeypatch.setattr(KafkaNetSocket, "socket", made_by)
    monkeypatch.setattr("minirt_connectors.kafka.ending.START_TIMEOUT_S", 1.0)
    monkeypatch.setattr("minirt_connectors.kafka.ending._TRY_S", 0.0)
    with pytest.raises(rt.StorageError, match=r"127\.0\.0\.1:1"):
        TransactionClient(Client("127.0.0.1:1", None)).open_ones()
    assert len(made) > 1
    assert all(one.fileno() == -1 for one in made)


def test_tls_is_asked_for_as_told() -> None:
    strict = login_of({"security.protocol": "ssl"})["ssl_context"]
    assert strict.check_hostname
    for lax in (
        {"ssl.endpoint.identification.algorithm": "none"},
        {"enable.ssl.certificate.verification": "false"},
    ):
        context = login_of({"security.protocol": "SSL", **lax})["ssl_context"]
        assert not context.check_hostname


def test_a_job_without_checkpoints_is_told_what_it_needs(cluster: Cluster) -> None:
    with pytest.raises(rt.ConfigurationError, match="Checkpointing"):
        named_rows(direct(cluster, cluster.topic()), 10, job="to-kafka").execute(runner="inline")
