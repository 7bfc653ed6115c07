"""Records go to Kafka while they are written, in transactions that the coordinator ends.

A writer has one transaction open, and hands it over at a snapshot: all that belongs to it is with the
brokers, and the handle names it. The coordinator commits those that a checkpoint holds, and then enters
the checkpoint in the ledger: a commit that is repeated ends nothing again that the ledger knows.

Transactional ids are used in turn, since brokers remember each for days. An id is used again by a
producer with a new epoch, behind which handles of the old one name nothing. So it must be sure that
nobody needs these any more: the coordinator commits one checkpoint after another, each up to its entry in
the ledger. Once a transaction is committed, the ledger has the checkpoints before it, and the ids of those
are free.

Ids hold the generation and a random text, so no two writers share one. What a writer has left open, and no
manifest names, is ended by the coordinator of the next generation.

If nobody commits in time, the broker ends a transaction by itself, and its records are lost. No other mode
of delivery has that. It is told by a `LostTransactionError`, and never passed over.
"""

from __future__ import annotations

import logging
import re
import threading
import uuid
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from minirt.data.batch import Batch
from minirt.errors import (
    CorruptCheckpointError,
    JobFailedError,
    StorageError,
    SupersededError,
)
from minirt.io.base import (
    Committable,
    CommitterContext,
    Handle,
    Prepared,
    SinkContext,
    SinkWriter,
)
from minirt.io.ledger import (
    OWNER,
    FencedCommitter,
    LedgerConnection,
    LedgerEntry,
    LedgerTransaction,
)
from minirt_connectors.kafka.ending import COMMITTED, ONGOING, TransactionClient
from minirt_connectors.kafka.outgoing import Shape
from minirt_connectors.kafka.transactions import Sender

OnLost = Literal["fail", "skip"]

_ABORT_TIMEOUT_S = 5.0
_WAITING_MAX = 1000
"""So many transactions of a writer may wait for their commit."""

_ID = re.compile(
    rf"minirt-(?P<owner>{OWNER.pattern})\.(?P<generation>\d{{4,}})\.\d+\.[0-9a-f]{{8}}\.\d+",
    re.ASCII,
)

logger = logging.getLogger("minirt.sinks")


class LostTransactionError(JobFailedError):
    """Records of a complete checkpoint are lost: Kafka has ended their transaction without a commit."""


@dataclass(frozen=True, slots=True)
class SentTransaction:
    """A handle: a transaction whose records the brokers have, and which nobody has ended."""

    checkpoint_id: int
    id: str
    owner: str
    generation: int
    producer: int
    epoch: int
    records: int

    @classmethod
    def parse(cls, committable: Committable) -> SentTransaction:
        """Raises CorruptCheckpointError for whatever no writer has made."""
        handle = committable.handle
        try:
            id = handle["transaction"]
            numbers = [handle[name] for name in ("producer", "epoch", "records")]
            match = _ID.fullmatch(id)
            if match is None or not all(type(each) is int and each >= 0 for each in numbers):
                raise ValueError("it names no transaction")
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptCheckpointError(
                f"a handle was not made by a Kafka sink with direct delivery ({error}): {handle!a:.500}"
            ) from error
        return cls(
            committable.checkpoint_id, id, match["owner"], int(match["generation"]), *numbers
        )


@dataclass(slots=True)
class _Transaction:
    """A producer that has begun nothing yet, or the one transaction that it begins."""

    id: str
    sender: Sender | None
    producer: int
    epoch: int
    records: int = 0


class Transactions:
    """The transactions of one writer, in turn. Usable from several threads."""

    def __init__(
        self, prefix: str, client: TransactionClient, sender: Callable[[str], Sender]
    ) -> None:
        self._prefix = prefix
        self._client = client
        self._new_sender = sender
        self._lock = threading.Lock()
        self._spare: _Transaction | None = None
        self._free: list[str] = []
        self._waiting: list[_Transaction] = []
        """Handed over and not known to be committed, in the order of their checkpoints."""
        self._named = 0

    def begin(self) -> _Transaction:
        """Another transaction, of the producer that `finish` has made ahead, or of a new one."""
        with self._lock:
            begun, self._spare = self._spare or self._made(), None
        assert begun.sender is not None
        begun.sender.begin()
        return begun

    def hand_over(self, transaction: _Transaction) -> None:
        """It waits for its commit from here on."""
        with self._lock:
            if len(self._waiting) >= _WAITING_MAX:
                raise StorageError(
                    f"{_WAITING_MAX} transactions wait for their commit, {transaction.id} among them"
                )
            self._waiting.append(transaction)

    def finish(self, transaction: _Transaction) -> None:
        """Until the brokers have all of it. Then it needs its producer no more: nobody here ends it."""
        sender = transaction.sender
        assert sender is not None
        sender.flush()
        with self._lock:
            states = self._client.describe([one.id for one in self._waiting])
            found = states[transaction.id]
            if (found.state, found.epoch) != (ONGOING, transaction.epoch):
                raise StorageError(
                    f"Kafka has ended the transaction {transaction.id} before its checkpoint was complete; "
                    "transaction_timeout must be longer than checkpoints are apart"
                )
            transaction.sender = None
            sender.leave()
            committed = [
                place
                for place, one in enumerate(self._waiting)
                if (states[one.id].state, states[one.id].epoch) == (COMMITTED, one.epoch)
            ]
            if committed:
                self._free += [one.id for one in self._waiting[: committed[-1]]]
                del self._waiting[: committed[-1]]
            if self._spare is None:
                self._spare = self._made()

    def close(self, current: _Transaction | None) -> None:
        """What was never handed over is ended; the rest is that of the coordinator."""
        if current is not None and current.sender is not None:
            with suppress(Exception):
                current.sender.producer.abort_transaction(_ABORT_TIMEOUT_S)
        with self._lock:
            self._client.close()

    def _made(self) -> _Transaction:
        """A producer with an epoch of its own."""
        id = self._free.pop(0) if self._free else self._next_id()
        sender = self._new_sender(id)
        known = self._client.describe([id])[id]
        return _Transaction(id, sender, known.producer, known.epoch)

    def _next_id(self) -> str:
        self._named += 1
        return f"{self._prefix}.{self._named}"


class DirectWriter(SinkWriter):
    """Sends records as they come, in the transaction of the next checkpoint."""

    def __init__(
        self,
        shape: Shape,
        context: SinkContext,
        client: TransactionClient,
        sender: Callable[[str], Sender],
    ) -> None:
        name = f"minirt-{context.identity.name}.{context.generation:04d}.{context.subtask}"
        self._transactions = Transactions(f"{name}.{uuid.uuid4().hex[:8]}", client, sender)
        self._shape = shape
        self._operator = context.operator
        self._current: _Transaction | None = None

    def write(self, batch: Batch) -> None:
        if len(batch) == 0:
            return
        records = self._shape.outgoing(batch, self._operator)
        if self._current is None:
            self._current = self._transactions.begin()
        assert self._current.sender is not None
        self._current.sender.send(records)
        self._current.records += len(records)

    def prepare(self, checkpoint_id: int) -> Prepared:
        """Nothing is handed over where nothing was written: Kafka ends no empty transaction."""
        done, self._current = self._current, None
        if done is None:
            return Prepared()
        self._transactions.hand_over(done)
        handle = {
            "transaction": done.id,
            "producer": done.producer,
            "epoch": done.epoch,
            "records": done.records,
        }
        return Prepared([handle], lambda: self._transactions.finish(done))

    def close(self) -> None:
        current, self._current = self._current, None
        self._transactions.close(current)


class DirectCommitter(FencedCommitter[SentTransaction]):
    """Ends the transactions of complete checkpoints, one checkpoint after another."""

    def __init__(
        self,
        connect: Callable[[], LedgerConnection],
        context: CommitterContext,
        client: TransactionClient,
        on_lost: OnLost,
        accept: Collection[str] = (),
    ) -> None:
        self._client = client
        self._on_lost = on_lost
        super().__init__(connect, context, accept)

    def commit(self, committables: Sequence[Committable]) -> None:
        """Each checkpoint up to its entry: writers use ids of earlier ones again."""
        in_order = sorted(committables, key=lambda one: one.checkpoint_id)
        for _, own in groupby(in_order, key=lambda one: one.checkpoint_id):
            super().commit(list(own))

    def discard_uncommitted(self, committed: Sequence[Handle]) -> None:
        kept = [SentTransaction.parse(Committable(0, handle)) for handle in committed]
        keep = {(one.id, one.producer, one.epoch) for one in kept}
        left = [id for id in self._client.open_ones() if self._is_of_earlier(id)]
        for id, found in self._client.describe(left).items():
            if (id, found.producer, found.epoch) not in keep:  # The id may have been used again.
                self._client.fence(id)

    def close(self) -> None:
        super().close()
        self._client.close()

    def _parse(self, committable: Committable) -> SentTransaction:
        return SentTransaction.parse(committable)

    def _publish(
        self, transaction: LedgerTransaction, outputs: Sequence[SentTransaction], entry: LedgerEntry
    ) -> None:
        """The entry first: it shows at the end, but whoever was replaced meanwhile is refused here."""
        transaction.record(outputs[0].owner, entry)
        lost = [one for one in outputs if self._is_lost(one)]
        if lost:
            self._tell(transaction, lost, len(outputs))
        self._client.settle([one.id for one in outputs if one not in lost])

    def _is_of_earlier(self, id: str) -> bool:
        """Whether a writer of this job, of an earlier generation, has made the id."""
        match = _ID.fullmatch(id)
        if match is None or match["owner"] != self._owner:
            return False
        return int(match["generation"]) < self._generation

    def _is_lost(self, sent: SentTransaction) -> bool:
        return not self._client.commit(sent.id, sent.producer, sent.epoch)

    def _tell(
        self, transaction: LedgerTransaction, lost: Sequence[SentTransaction], of: int
    ) -> None:
        """A later generation ends what no manifest of its own names; all else is a loss."""
        known = transaction.entry(self._owner)
        if known is not None and known.generation > self._generation:
            raise SupersededError
        records = sum(one.records for one in lost)
        told = (
            f"{self._operator}: {records} records of checkpoint {lost[0].checkpoint_id} are lost: Kafka "
            f"has ended {len(lost)} of its {of} transactions without a commit, or has forgotten them "
            f"({', '.join(one.id for one in lost[:3])}). Brokers do so when a job is down for longer than "
            "transaction_timeout"
        )
        if self._on_lost == "fail":
            raise LostTransactionError(
                f'{told}. The other transactions are committed. KafkaSink(on_lost="skip") goes on without '
                "the lost records"
            )
        logger.error("%s. The job goes on without them", told)
