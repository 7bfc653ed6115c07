"""Coordinators that die at every call, or are replaced; and mistakes that these tests are known to find."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import minirt as rt
from minirt.io.ledger import LedgerConnection, LedgerTransaction
from minirt.storage.store import ObjectStore
from minirt.testing.faults import ProcessDiedError
from minirt.testing.sinks.lives import Life, Step
from minirt.testing.sinks.trial import Fault
from minirt.testing.sinks.world import play
from minirt_connectors.kafka import KafkaSink
from minirt_connectors.kafka.cluster import Cluster as Client
from minirt_connectors.kafka.ledger import LedgerTopic, packed
from minirt_connectors.kafka.transactions import KafkaConnection, Sender, _Transaction
from tests.coordinators import JOB, committer, prepared
from tests.kafka.broker import Cluster, ids
from tests.kafka.test_sink import KafkaTrial
from tests.ledgers import Bent

pytestmark = [pytest.mark.kafka, pytest.mark.processes]

Connect = Callable[[Client, str, Callable[[dict[str, Any]], Sender]], LedgerConnection]
"""What makes the connection of a sink: the right one, or one with a mistake."""

_CALLS = ("init_transactions", "begin_transaction", "produce", "commit_transaction")
_NEVER = Fault(None, "", print)
_UNBLOCK = "minirt_connectors.kafka.ledger._UNBLOCK_S"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_UNBLOCK, 0.1)
    monkeypatch.setattr("minirt_connectors.kafka.ledger.READ_TIMEOUT_S", 3.0)


class DyingProducer:
    """The producer of a coordinator that may die at one of its calls, and then makes none any more."""

    def __init__(self, right: Any, fault: Fault) -> None:
        self._right = right
        self._fault = fault

    def __len__(self) -> int:
        return self._fault.dead or len(self._right)

    def __getattr__(self, name: str) -> Any:
        right = getattr(self._right, name)

        def call(*given: Any) -> Any:
            if name in _CALLS:
                return self._fault.call(name, lambda: right(*given))
            if self._fault.dead:
                raise ProcessDiedError
            return right(*given)

        return call


class PlantedSink(KafkaSink):
    """A Kafka sink of one process, with a connection of the test's and producers that may die."""

    def __init__(self, cluster: Cluster, topic: str, connect: Connect, fault: Fault) -> None:
        super().__init__(cluster.bootstrap, topic, ledger=f"ledger-{topic}")
        self._made_by = connect
        self._fault = fault

    def connect(self) -> LedgerConnection:
        return self._made_by(self._cluster, self._ledger, self._sender)

    def _sender(self, options: dict[str, Any]) -> Sender:
        sender = super()._sender(options)
        sender.producer = DyingProducer(sender.producer, self._fault)
        return sender


class PlantedTrial(KafkaTrial):
    """The trial of the kit, of sinks with such a connection."""

    def __init__(self, cluster: Cluster, connect: Connect) -> None:
        super().__init__(cluster)
        self._connect = connect

    def sink(self) -> Any:
        return PlantedSink(self.cluster, self.topic, self._connect, _NEVER)


# What is looked at. Each gives what is wrong, or nothing.


def dies_anywhere(cluster: Cluster, folder: Path, connect: Connect) -> str:
    """A coordinator dies behind each call of a commit; the next one commits the same."""
    staging = ObjectStore(str(folder))
    for at in itertools.count():
        topic, fault = cluster.topic(), Fault(None, "", print)
        sink = PlantedSink(cluster, topic, connect, fault)
        handles = prepared(sink, 1, 1, staging)
        dying = committer(sink, 1, staging)
        fault.arm(Fault(at, "dies behind", print))
        with suppress(ProcessDiedError):
            dying.commit(handles)
        after = committer(PlantedSink(cluster, topic, connect, _NEVER), 2, staging)
        with suppress(rt.StorageError):  # What was removed behind a commit is not read again.
            after.commit_restored(handles)
        after.commit(prepared(sink, 2, 2, staging))
        after.close()
        if (seen := ids(cluster, topic)) != [1, 2]:
            return f"it died behind call {at}: {seen}"
        if not fault.struck:
            return ""
    raise AssertionError


def replaced_in_a_commit(cluster: Cluster, folder: Path, connect: Connect) -> str:
    """A successor comes, and commits, while the old coordinator is about to write."""
    topic, staging = cluster.topic(), ObjectStore(str(folder))
    sink = PlantedSink(cluster, topic, connect, _NEVER)
    one = prepared(sink, 1, 1, staging)
    successors: list[Any] = []

    class Held(ObjectStore):
        def read(self, path: str) -> bytes:
            piece = super().read(path)
            successors.append(committer(sink, 2, staging))
            successors[0].commit(one)
            return piece

    old = committer(sink, 1, Held(str(folder)))
    with suppress(rt.StorageError, rt.SupersededError):
        old.commit(one)
    for open_one in (old, *successors):
        open_one.close()
    seen = ids(cluster, topic)
    return "" if seen == [1] else f"committed: {seen}"


def overtaken_at_its_start(cluster: Cluster, folder: Path, connect: Connect) -> str:
    """A successor has read the ledger; before it begins, the old coordinator commits once more."""
    topic, staging = cluster.topic(), ObjectStore(str(folder))
    old_sink = PlantedSink(cluster, topic, connect, _NEVER)
    old, one = committer(old_sink, 1, staging), prepared(old_sink, 1, 1, staging)
    waiting = [one]

    class Late(PlantedSink):
        def _sender(self, options: dict[str, Any]) -> Sender:
            if waiting:
                old.commit(waiting.pop())
            return super()._sender(options)

    with pytest.MonkeyPatch.context() as patience, suppress(rt.StorageError):
        patience.setattr(_UNBLOCK, 60.0)  # It begins because it commits, not because it waits.
        committer(Late(cluster, topic, connect, _NEVER), 2, staging).close()
    assert not waiting
    old.close()
    ledger = LedgerTopic(Client(cluster.bootstrap, None), f"ledger-{topic}")
    entry = ledger.entry(JOB.name)
    ledger.close()
    if entry is None or entry.checkpoint_id != 1:
        return f"the ledger has forgotten a commit: {entry}"
    seen = ids(cluster, topic)
    return "" if seen == [1] else f"committed: {seen}"


def no_answer_to_a_commit(cluster: Cluster, folder: Path, connect: Connect) -> str:
    """A life of the kit: the answer to a commit is lost, so it is repeated, and older ones as well."""
    steps = (
        Step("write", 0, 1),
        Step("checkpoint", at=5, fault="error behind"),
        Step("retry"),
        Step("write", 1, 1),
        Step("checkpoint"),
        Step("repeat", 1),
    )
    return "; ".join(play(Life(0, steps), PlantedTrial(cluster, connect)).wrong)


CHECKS = [dies_anywhere, replaced_in_a_commit, overtaken_at_its_start, no_answer_to_a_commit]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_nothing_is_lost_or_repeated(cluster: Cluster, tmp_path: Path, check: Any) -> None:
    assert check(cluster, tmp_path, KafkaConnection) == ""


# Planted mistakes: connections that differ from the right one in one thing.


def planted(transaction: type[_Transaction]) -> Connect:
    """A connection whose transactions are of this kind."""

    class Planted(KafkaConnection):
        @contextmanager
        def transaction(self) -> Iterator[LedgerTransaction]:
            known = self._senders
            begun = transaction(self._cluster, self._ledger, self._sender, known)
            try:
                yield begun
                begun.commit()
            except BaseException:
                begun.abort()
                raise

    return Planted


class EntryBehind(_Transaction):
    """The records are committed, and in another transaction the entry of the ledger."""

    def commit(self) -> None:
        for owner, sender in self._begun.items():
            sender.flush()
            self._end(sender)
            sender.producer.begin_transaction()
            sender.put(self._ledger.name, packed(self._entries[owner]), owner.encode())
            self._end(sender)


class EntryFirst(_Transaction):
    """The entry is committed by itself as soon as it is known, ahead of the records."""

    def write(self, piece: bytes) -> None:
        self._begin(self._owner)
        self._pieces = [*getattr(self, "_pieces", ()), piece]

    def commit(self) -> None:
        for owner, sender in self._begun.items():
            sender.put(self._ledger.name, packed(self._entries[owner]), owner.encode())
            self._end(sender)
            sender.producer.begin_transaction()
            for piece in getattr(self, "_pieces", ()):
                super().write(piece)
            self._end(sender)


class NotLookedAtAgain(_Transaction):
    """Trusts what it has read of the ledger before others were ended."""

    def _begin(self, owner: str) -> Sender:
        self._sender(owner)
        return super()._begin(owner)


class OutsideOfTransactions(KafkaConnection):
    """Records and the entry go out at once; nothing ties them together."""

    @contextmanager
    def transaction(self) -> Iterator[LedgerTransaction]:
        class Loose(_Transaction):
            def _begin(self, owner: str) -> Sender:
                sender = self._sender(owner)
                self._begun[owner] = sender
                return sender

            def _end(self, sender: Sender) -> None:
                sender.flush()

        begun = Loose(self._cluster, self._ledger, self._sender, self._senders)
        yield begun
        begun.commit()

    def _sender(self, owner: str) -> Sender:
        if owner not in self._senders:
            self._senders[owner] = self._new_sender({})
        return self._senders[owner]


class AnIdOfItsOwn(KafkaConnection):
    """Each coordinator has a transactional id of its own, so none ends those of another."""

    def _sender(self, owner: str) -> Sender:
        made = self._new_sender
        self._new_sender = lambda options: made(
            {**options, "transactional.id": f"{options['transactional.id']}-{uuid.uuid4().hex}"}
        )
        try:
            return super()._sender(owner)
        finally:
            self._new_sender = made


class ReadsWhatIsNotCommitted(KafkaConnection):
    """Takes the entry of a commit that was broken off for one that counts."""

    def __init__(self, cluster: Client, ledger: str, sender: Any) -> None:
        made = cluster.consumer
        cluster.consumer = lambda options=None, heard=None: made(  # type: ignore[method-assign]
            {**(options or {}), "isolation.level": "read_uncommitted"}, heard
        )
        try:
            super().__init__(cluster, ledger, sender)
        finally:
            del cluster.consumer  # type: ignore[method-assign]


def never_recognised(cluster: Client, ledger: str, sender: Any) -> LedgerConnection:
    """Whatever comes is new."""
    right = KafkaConnection(cluster, ledger, sender)
    return Bent(right, lambda entry: type(entry)(0, entry.generation, 0))


MISTAKES: list[tuple[Any, Connect]] = [
    (dies_anywhere, planted(EntryBehind)),
    (dies_anywhere, planted(EntryFirst)),
    (dies_anywhere, OutsideOfTransactions),
    (dies_anywhere, ReadsWhatIsNotCommitted),
    (dies_anywhere, never_recognised),
    (no_answer_to_a_commit, never_recognised),
    (replaced_in_a_commit, AnIdOfItsOwn),
    (overtaken_at_its_start, planted(NotLookedAtAgain)),
]


@pytest.mark.parametrize(("check", "connect"), MISTAKES)
def test_a_planted_mistake_is_found(
    cluster: Cluster, tmp_path: Path, check: Any, connect: Connect
) -> None:
    try:
        wrong = check(cluster, tmp_path, connect)
    except (rt.JobFailedError, rt.SupersededError, rt.SinkDataError) as error:
        wrong = str(error)
    assert wrong
