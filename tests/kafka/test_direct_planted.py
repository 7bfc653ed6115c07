"""Direct delivery: coordinators that die at every call, and mistakes that these tests are known to find."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import minirt as rt
from minirt.io.base import Committable, CommitterContext, Handle, SinkCommitter, SinkContext
from minirt.io.ledger import FencedCommitter, LedgerConnection
from minirt.storage.store import ObjectStore
from minirt.testing.faults import ProcessDiedError
from minirt.testing.sinks.trial import Fault
from minirt_connectors.kafka import KafkaSink
from minirt_connectors.kafka.direct import DirectCommitter, SentTransaction, Transactions
from minirt_connectors.kafka.ending import TransactionClient
from minirt_connectors.kafka.transactions import Sender
from tests.coordinators import JOB, committer, prepared
from tests.kafka.broker import Cluster, ids
from tests.kafka.test_direct import direct, finished
from tests.kafka.test_planted import DyingProducer
from tests.ledgers import Bent

pytestmark = [pytest.mark.kafka, pytest.mark.processes]


class DyingClient(TransactionClient):
    """That of a coordinator that may die at one of its calls."""

    fault: Fault

    def commit(self, id: str, producer: int, epoch: int) -> bool:
        return self.fault.call(
            "commit", lambda: super(DyingClient, self).commit(id, producer, epoch)
        )

    def settle(self, ids: Any) -> None:
        self.fault.call("settle", lambda: super(DyingClient, self).settle(ids))


class DyingSink(KafkaSink):
    """The sink of a coordinator that may die, with a committer of the test's."""

    def __init__(
        self, cluster: Cluster, topic: str, kind: type[DirectCommitter], fault: Fault
    ) -> None:
        super().__init__(cluster.bootstrap, topic, delivery="direct", ledger=f"ledger-{topic}")
        self._kind = kind
        self._fault = fault

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        client = DyingClient(self._cluster)
        client.fault = self._fault
        return self._kind(self.connect, context, client, "fail")

    def _sender(self, options: dict[str, Any]) -> Sender:
        sender = super()._sender(options)
        sender.producer = DyingProducer(sender.producer, self._fault)
        return sender


# What is looked at. Each gives what is wrong, or nothing.


def dies_anywhere(cluster: Cluster, folder: Path, kind: type[DirectCommitter]) -> str:
    """A coordinator dies behind each call of a commit of two checkpoints, while a writer goes on.

    Its successor commits the same, twice.
    """
    staging = ObjectStore(str(folder))
    for at in itertools.count():
        topic, fault = cluster.topic(), Fault(None, "", print)
        writer = direct(cluster, topic).open_writer(SinkContext(JOB, "out", 0, 1, 1, staging))
        dying = committer(DyingSink(cluster, topic, kind, fault), 1, staging)
        handles = [*finished(writer, 1), *finished(writer, 2)]
        fault.arm(Fault(at, "dies behind", print))
        with suppress(ProcessDiedError):
            dying.commit(handles)
        for number in (101, 102, 103):
            finished(writer, number)
        sink = DyingSink(cluster, topic, kind, Fault(None, "", print))
        after = committer(sink, 2, staging)
        for _ in range(2):
            after.commit_restored(handles)
        after.discard_uncommitted([one.handle for one in handles])
        after.commit(prepared(direct(cluster, topic), 3, 2, staging))
        for one in (after, dying, writer):
            one.close()
        if (seen := ids(cluster, topic)) != [1, 2, 3]:
            return f"it died behind call {at}: {seen}"
        if not fault.struck:
            return ""
    raise AssertionError


def discards_late(cluster: Cluster, folder: Path, kind: type[DirectCommitter]) -> str:
    """A coordinator that was replaced discards what writers of its successor have sent."""
    topic, staging = cluster.topic(), ObjectStore(str(folder))
    sink = DyingSink(cluster, topic, kind, Fault(None, "", print))
    old, new = committer(sink, 1, staging), committer(sink, 2, staging)
    theirs = prepared(direct(cluster, topic), 1, 2, staging)
    old.discard_uncommitted([])
    new.commit(theirs)
    old.close()
    new.close()
    seen = ids(cluster, topic)
    return "" if seen == [1] else f"committed: {seen}"


CHECKS = [dies_anywhere, discards_late]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minirt_connectors.kafka.ledger._UNBLOCK_S", 0.1)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_nothing_is_lost_or_repeated(cluster: Cluster, tmp_path: Path, check: Any) -> None:
    assert check(cluster, tmp_path, DirectCommitter) == ""


# Planted mistakes.


class EntryFirst(DirectCommitter):
    """The ledger knows of the commit before the transactions are ended."""

    def _publish(self, transaction: Any, outputs: Any, entry: Any) -> None:
        transaction.record(outputs[0].owner, entry)
        transaction.commit()
        super()._publish(transaction, outputs, entry)


class OneEntryForAll(DirectCommitter):
    """Ends the transactions of all checkpoints, and then enters the last one."""

    def commit(self, committables: Sequence[Committable]) -> None:
        FencedCommitter.commit(self, committables)


class NoLedger(DirectCommitter):
    """Takes whatever comes for new."""

    def __init__(self, connect: Callable[[], LedgerConnection], *given: Any) -> None:
        def blind() -> LedgerConnection:
            return Bent(connect(), lambda entry: type(entry)(0, entry.generation, 0))

        super().__init__(blind, *given)


class KeepsIds(DirectCommitter):
    """Keeps a transaction whose id a manifest names, even if it is a later one of that id."""

    def discard_uncommitted(self, committed: Sequence[Handle]) -> None:
        kept = {handle["transaction"] for handle in committed}
        for id in self._client.open_ones():
            if self._is_of_earlier(id) and id not in kept:
                self._client.fence(id)


class LeavesOpen(DirectCommitter):
    """Discards nothing: readers wait."""

    def discard_uncommitted(self, committed: Sequence[Handle]) -> None:
        pass


class DiscardsLater(DirectCommitter):
    """Ends transactions of any generation."""

    def discard_uncommitted(self, committed: Sequence[Handle]) -> None:
        self._generation += 100
        super().discard_uncommitted(committed)
        self._generation -= 100


class TakesLossForCommitted(DirectCommitter):
    """Goes on as if nothing had been lost."""

    def _is_lost(self, sent: SentTransaction) -> bool:
        super()._is_lost(sent)
        return False


class AtOnceAgain(Transactions):
    """Uses an id again that still waits for its commit."""

    def finish(self, transaction: Any) -> None:
        super().finish(transaction)
        self._free, self._spare = [one.id for one in self._waiting], None


MISTAKES: list[Any] = [
    pytest.param(dies_anywhere, EntryFirst, marks=pytest.mark.soak),
    (dies_anywhere, OneEntryForAll),
    (dies_anywhere, NoLedger),
    pytest.param(dies_anywhere, KeepsIds, marks=pytest.mark.soak),
    (dies_anywhere, LeavesOpen),
    (discards_late, DiscardsLater),
]


@pytest.mark.parametrize(("check", "kind"), MISTAKES)
def test_a_planted_mistake_is_found(
    cluster: Cluster, tmp_path: Path, check: Any, kind: type[DirectCommitter]
) -> None:
    assert found(check, cluster, tmp_path, kind)


@pytest.mark.parametrize("kind", [DirectCommitter, TakesLossForCommitted])
def test_ids_that_are_used_again_too_early_are_found(
    cluster: Cluster, tmp_path: Path, kind: type[DirectCommitter], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minirt_connectors.kafka.direct.Transactions", AtOnceAgain)
    assert found(dies_anywhere, cluster, tmp_path, kind)


def found(check: Any, cluster: Cluster, folder: Path, kind: type[DirectCommitter]) -> str:
    try:
        wrong: str = check(cluster, folder, kind)
    except (rt.JobFailedError, rt.SinkDataError, rt.StorageError) as error:
        wrong = str(error)
    return wrong
