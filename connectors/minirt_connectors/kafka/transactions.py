"""One Kafka transaction for each commit: the records and the entry of the ledger, both or none."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any

from minirt.errors import SinkDataError, StorageError
from minirt.io.ledger import LedgerConnection, LedgerEntry, LedgerTransaction
from minirt_connectors.kafka.cluster import Cluster, Heard
from minirt_connectors.kafka.ledger import LedgerTopic, packed
from minirt_connectors.kafka.outgoing import OutgoingBatch, staged_records

TRANSACTION_TIMEOUT_MS = 300_000
"""How long the transaction of a commit may take, unless users say otherwise or brokers allow less.

The broker ends one that is open for longer: that of a commit whose process is gone. Until then, readers
with read_committed wait behind it, unless the job is started again, which ends it too.
"""

MESSAGE_TIMEOUT_S = 60
_INIT_TIMEOUT_S = 30.0
_END_TIMEOUT_S = 90.0
_QUEUED_MAX = 500_000
_QUEUED_KB_MAX = 131_072
_POLL_EVERY = 10_000
_ASK_TIMEOUT_S = 5.0


class Sender:
    """Hands records to a producer, and keeps the first error that it reports."""

    def __init__(self, cluster: Cluster, topic: str, bytes_max: int, **options: Any) -> None:
        self._cluster = cluster
        self._topic = topic
        self._failed: Any = None
        self.producer = cluster.producer(
            {
                "queue.buffering.max.messages": _QUEUED_MAX,
                "queue.buffering.max.kbytes": _QUEUED_KB_MAX,
                "message.max.bytes": max(1000, bytes_max),
                "linger.ms": 5,
                "message.timeout.ms": MESSAGE_TIMEOUT_S * 1000,
                "on_delivery": self._delivered,
                **options,
            },
            Heard(),  # Without it, errors would come out of any call.
        )

    def take_over(self) -> None:
        """From here on, the transactions of all others with this transactional id are over, and refused."""
        with self._cluster.errors("cannot begin to commit"):
            self.producer.init_transactions(_INIT_TIMEOUT_S)

    def begin(self) -> None:
        with self._cluster.errors("cannot begin a transaction"):
            self.producer.begin_transaction()

    def leave(self) -> None:
        """Let go of the producer; a transaction that it has open stays open."""
        self.producer = None

    def send(self, records: OutgoingBatch) -> None:
        """Queue the records; waits while the queue is full. Raises what became of earlier ones."""
        topic, produce, left = self._topic, self.producer.produce, iter(records)
        with self._cluster.errors(f"cannot write to {topic!r}", SinkDataError):
            for _ in range(0, len(records), _POLL_EVERY):
                for value, key, partition, timestamp, headers in islice(left, _POLL_EVERY):
                    try:
                        produce(topic, value, key, partition, None, None, timestamp, headers)
                    except BufferError:
                        self.put(topic, value, key, partition, None, None, timestamp, headers)
                self._serve(0)

    def put(self, topic: str, *record: Any) -> None:
        """Queue one record, as the client takes it, once there is room in the queue."""
        until = time.monotonic() + MESSAGE_TIMEOUT_S
        while True:
            try:
                self.producer.produce(topic, *record)
                return
            except BufferError:
                self._serve(0.1)
                if time.monotonic() > until:
                    raise StorageError(
                        f"Kafka at {self._cluster.name}: {topic!r} takes no records"
                    ) from None

    def flush(self) -> None:
        """Until the brokers have all, or have refused one."""
        until = time.monotonic() + _END_TIMEOUT_S
        while len(self.producer):
            self._serve(0.1)  # `flush` of the client breaks if somebody else has taken over.
            if time.monotonic() > until:
                raise StorageError(
                    f"Kafka at {self._cluster.name}: {self._topic!r} does not take records"
                )
        self.check()

    def _serve(self, wait_s: float) -> None:
        with self._cluster.errors(f"cannot write to {self._topic!r}", SinkDataError):
            self.producer.poll(wait_s)
        self.check()

    def check(self) -> None:
        if self._failed is not None:
            action = f"cannot write to {self._topic!r}"
            if self._failed.name() == "_MSG_TIMED_OUT" and self._is_gone():
                raise SinkDataError(self._cluster.told(action, "the topic was deleted"))
            raise self._cluster.error(action, self._failed, SinkDataError)

    def _is_gone(self) -> bool:
        """Whether brokers know no such topic: of its records the client only says that they got too old."""
        import confluent_kafka as kafka

        with suppress(kafka.KafkaException):
            found = self.producer.list_topics(self._topic, timeout=_ASK_TIMEOUT_S)
            error = found.topics[self._topic].error
            return error is not None and error.name() == "UNKNOWN_TOPIC_OR_PART"
        return False

    def forget_errors(self) -> None:
        self._failed = None

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None and self._failed is None:
            self._failed = error


class KafkaConnection(LedgerConnection):
    """A producer for each owner whose output it commits, and a reader of the ledger."""

    def __init__(
        self,
        cluster: Cluster,
        ledger: str,
        sender: Callable[[dict[str, Any]], Sender],
        timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        like: str | None = None,
    ) -> None:
        """A new ledger is replicated like the topic `like`."""
        self._cluster = cluster
        self._new_sender = sender
        self._timeout_ms = timeout_ms
        self._ledger = LedgerTopic(cluster, ledger, like)
        self._senders: dict[str, Sender] = {}

    @contextmanager
    def transaction(self) -> Iterator[LedgerTransaction]:
        transaction = _Transaction(self._cluster, self._ledger, self._sender, self._senders)
        try:
            yield transaction
            transaction.commit()
        except BaseException:
            transaction.abort()
            raise

    def close(self) -> None:
        self._senders.clear()
        self._ledger.close()

    def _sender(self, owner: str) -> Sender:
        if owner not in self._senders:
            sender = self._new_sender(
                {
                    "transactional.id": f"minirt-{owner}",
                    "transaction.timeout.ms": self._timeout_ms,
                    "message.timeout.ms": min(self._timeout_ms, MESSAGE_TIMEOUT_S * 1000),
                }
            )
            sender.take_over()
            self._senders[owner] = sender
        return self._senders[owner]


class _Transaction(LedgerTransaction):
    """Records that are written belong to the owner whose entry is recorded next."""

    def __init__(
        self,
        cluster: Cluster,
        ledger: LedgerTopic,
        sender: Callable[[str], Sender],
        known: Mapping[str, Sender],
    ) -> None:
        self._cluster = cluster
        self._ledger = ledger
        self._sender = sender
        self._known = known
        self._owner = ""
        self._read: dict[str, LedgerEntry | None] = {}
        self._begun: dict[str, Sender] = {}
        self._entries: dict[str, LedgerEntry] = {}

    def entry(self, owner: str) -> LedgerEntry | None:
        """Whoever only asks ends nobody's transaction: perhaps it hears that it was replaced."""
        self._owner = owner
        self._read[owner] = self._ledger.entry(owner, lambda: self._sender(owner))
        return self._read[owner]

    def write(self, piece: bytes) -> None:
        sender = self._begin(self._owner)
        for records in staged_records(piece):
            sender.send(records)

    def record(self, owner: str, entry: LedgerEntry) -> None:
        """It is sent at the end: while it is open, other jobs cannot read the ledger."""
        self._begin(owner)
        self._entries[owner] = entry

    def commit(self) -> None:
        for owner, sender in list(self._begun.items()):
            with self._cluster.errors("cannot commit", SinkDataError):
                sender.flush()
                sender.put(self._ledger.name, packed(self._entries[owner]), owner.encode())
                self._end(sender)
            del self._begun[owner]

    def abort(self) -> None:
        """Raises nothing: the next who begins for the owner ends what could not be ended here."""
        for sender in self._begun.values():
            with suppress(Exception):
                sender.producer.abort_transaction(10)
            sender.forget_errors()

    def _begin(self, owner: str) -> Sender:
        fresh = owner not in self._known
        sender = self._sender(owner)
        if fresh and self._ledger.entry(owner) != self._read.get(owner):
            raise StorageError(
                f"Kafka at {self._cluster.name}: another coordinator has committed for {owner} meanwhile"
            )
        if owner not in self._begun:
            sender.begin()
            self._begun[owner] = sender
        return sender

    def _end(self, sender: Sender) -> None:
        """Ask until there is an answer. Without one, whoever begins next finds what has become of it."""
        import confluent_kafka as kafka

        until = time.monotonic() + _END_TIMEOUT_S
        while True:
            try:
                sender.producer.commit_transaction(10)
                return
            except kafka.KafkaException as error:
                sender.check()
                if not error.args[0].retriable() or time.monotonic() > until:
                    raise
