"""Writes to a Kafka topic: exactly once by a ledger or in transactions of writers, or at least once.

By the ledger, output is staged beside the checkpoints of the job. The coordinator writes it in one
transaction with an entry of the ledger, a topic. No transaction is open between two commits. How writers
send it themselves is in `direct`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO, Literal, get_args

from minirt.data.batch import Batch
from minirt.errors import ConfigurationError
from minirt.io.base import (
    CommitterContext,
    Prepared,
    Sink,
    SinkCommitter,
    SinkContext,
    SinkWriter,
)
from minirt.io.encoder import Encoder
from minirt.io.json_text import OnNan
from minirt.io.ledger import LedgerConnection, LedgerSink
from minirt.io.remembered import Accept, Identity, checked_accept
from minirt.units import Duration, milliseconds
from minirt_connectors.kafka.cluster import START_TIMEOUT_S, Cluster
from minirt_connectors.kafka.direct import DirectCommitter, DirectWriter, OnLost
from minirt_connectors.kafka.ending import TransactionClient
from minirt_connectors.kafka.formats import Format, format_of
from minirt_connectors.kafka.ledger import settings_of, topic_config
from minirt_connectors.kafka.login import login_of
from minirt_connectors.kafka.outgoing import FieldSpec, OutgoingEncoder, Shape, TopicRules
from minirt_connectors.kafka.transactions import (
    MESSAGE_TIMEOUT_S,
    TRANSACTION_TIMEOUT_MS,
    KafkaConnection,
    Sender,
)

Delivery = Literal["exactly_once", "direct", "at_least_once"]
Partitioner = Literal[
    "random",
    "consistent",
    "consistent_random",
    "murmur2",
    "murmur2_random",
    "fnv1a",
    "fnv1a_random",
]

_TIMEOUT = "15min"
"""What brokers allow at most if nobody has set them up otherwise."""

logger = logging.getLogger("minirt.sinks")


class KafkaSink(LedgerSink):
    """Writes records to `topic` of the brokers `bootstrap`, a text `host:port,host:port`.

    `delivery="exactly_once"` shows records when their checkpoint completes, each once, to readers with
    `isolation.level=read_committed`; the job needs checkpointing. `ledger` is the compacted topic that
    says what was committed; it is created if it is missing. `delivery="at_least_once"` writes at once.

    `delivery="direct"` is exactly once, too, and writes nothing twice: writers send records in transactions
    that stay open until their checkpoint completes. A broker ends one that is open for longer than
    `transaction_timeout`. If its checkpoint was complete by then, and the job not there to commit it, the
    records are lost: the job ends with a `LostTransactionError`, or goes on without them where `on_lost`
    is "skip". Readers wait behind open transactions.

    `format` tells how a record becomes a value: "json", "raw" (the field `value`, bytes) or a `Format`.
    JSON has no NaN and no infinity: a record with one fails the job, or with `nan="null"` holds null.
    `key`, `headers`, `timestamp` and `partition` are each the name of a column or a function of the record:
    bytes, text or a value that is written as JSON; a mapping or pairs from text to bytes or text; a time as
    those of watermarks; a number. Without `timestamp` it is the time of writing, without `partition` the
    `partitioner` decides by the key. `options` go to librdkafka, such as those for TLS and SASL. A ledger
    that knows less than the job has committed, or another topic, is refused with a SinkDataError, unless
    `accept` names that: "behind" or "other".

    Raises ConfigurationError for options that cannot work and, when validated, if there is no such
    topic, no broker answers, or it lets nobody in with these credentials.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        delivery: Delivery = "exactly_once",
        format: str | Format = "json",
        nan: OnNan = "error",
        key: FieldSpec = None,
        headers: FieldSpec = None,
        timestamp: FieldSpec = None,
        partition: FieldSpec = None,
        partitioner: Partitioner = "murmur2_random",
        ledger: str = "minirt_commits",
        transaction_timeout: Duration | None = None,
        on_lost: OnLost | None = None,
        options: Mapping[str, Any] | None = None,
        accept: Accept | Sequence[Accept] = (),
    ) -> None:
        self.accept = checked_accept(accept)
        self._cluster = Cluster(bootstrap, options)
        self._topic = topic
        _one_of("delivery", delivery, get_args(Delivery))
        _one_of("partitioner", partitioner, get_args(Partitioner))
        if partition is not None and partitioner != "murmur2_random":
            raise ConfigurationError("partition=... says where records go; leave out partitioner")
        if ledger == topic:
            raise ConfigurationError("the ledger must be another topic than that of the records")
        timeout = _TIMEOUT if transaction_timeout is None else transaction_timeout
        self._timeout_ms = milliseconds(timeout, "transaction_timeout")
        if self._timeout_ms < 1000:
            raise ConfigurationError(f"transaction_timeout must be at least 1 s, got {timeout!r}")
        self._commit_timeout_ms = TRANSACTION_TIMEOUT_MS
        _check_commit_timeout(self._cluster.options.get("transaction.timeout.ms"))
        self._on_lost = on_lost or "fail"
        if delivery == "direct":
            _one_of("on_lost", self._on_lost, get_args(OnLost))
            login_of(self._cluster.options)
            if "transaction.timeout.ms" in self._cluster.options:
                raise ConfigurationError(
                    'with delivery="direct", transaction_timeout=... says what the option '
                    "transaction.timeout.ms would say: leave the option out"
                )
        elif transaction_timeout is not None or on_lost is not None:
            raise ConfigurationError('transaction_timeout and on_lost need delivery="direct"')
        self._delivery = delivery
        self.in_arrays = delivery == "exactly_once"
        self._partitioner = partitioner
        self._ledger = ledger
        self._format = format_of(format, nan=nan)
        self._nan = nan
        self._fields = {
            "key": key,
            "headers": headers,
            "timestamp": timestamp,
            "partition": partition,
        }
        self._shape: Shape | None = None

    def __repr__(self) -> str:
        return f"KafkaSink({self._cluster.name!r}, {self._topic!r}, delivery={self._delivery!r})"

    def validate(self) -> None:
        """Look at the topic, so that what cannot work is refused before anything starts."""
        partitions = self._cluster.topic(self._topic)
        with self._cluster.errors(f"cannot ask about the topic {self._topic!r}"):
            config = topic_config(self._cluster.admin(), self._topic)
        if self._delivery == "direct":
            self._check_direct()
        rules = TopicRules.of(partitions, config)
        self._check_rules(rules)
        self._commit_timeout_ms = self._commits_within()
        format = self._format.for_topic(self._topic, writing=True)
        self._shape = Shape(format, rules=rules, nan=self._nan, **self._fields)

    def encoding(self, operator: str) -> Callable[[BinaryIO], Encoder]:
        shape = self._planned
        return lambda stream: OutgoingEncoder(stream, shape, operator)

    def holding(self) -> str | None:
        holds = self._cluster.holds_records(self._topic)
        return f"the topic {self._topic!r}" if holds else None

    def target(self) -> Identity:
        return Identity("topic", repr(self._topic))

    def connect(self) -> LedgerConnection:
        assert self._planned
        return KafkaConnection(
            self._cluster, self._ledger, self._sender, self._commit_timeout_ms, self._topic
        )

    def open_writer(self, context: SinkContext) -> SinkWriter:
        if self._delivery == "exactly_once":
            return super().open_writer(context)
        if self._delivery == "direct":
            if context.staging is None:
                raise ConfigurationError(
                    f"{context.operator} commits with checkpoints, and this job takes none: give `execute` "
                    "checkpointing=Checkpointing(...)"
                )
            return DirectWriter(self._planned, context, self._transactions(), self._begun)
        return _AtOnceWriter(self._sender({}), self._planned, context.operator)

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        if self._delivery == "exactly_once":
            return super().open_committer(context)
        if self._delivery == "direct":
            return DirectCommitter(
                self.connect, context, self._transactions(), self._on_lost, self.accept
            )
        return Sink.open_committer(self, context)

    def _sender(self, options: dict[str, Any]) -> Sender:
        given = {"partitioner": self._partitioner, **options}
        return Sender(self._cluster, self._topic, self._planned.rules.bytes_max, **given)

    def _begun(self, id: str) -> Sender:
        """A sender that is alone with a transactional id."""
        sender = self._sender(
            {
                "transactional.id": id,
                "transaction.timeout.ms": self._timeout_ms,
                "message.timeout.ms": min(self._timeout_ms, MESSAGE_TIMEOUT_S * 1000),
            }
        )
        sender.take_over()
        return sender

    def _transactions(self) -> TransactionClient:
        return TransactionClient(self._cluster, self._timeout_ms)

    def _check_direct(self) -> None:
        """Brokers let this user ask about transactions, and keep them open for as long as they should."""
        client = self._transactions()
        try:
            client.open_ones()
        finally:
            client.close()
        longest = self._longest_transaction_ms()
        if longest is not None and self._timeout_ms > longest:
            raise ConfigurationError(
                f"transaction_timeout is {self._timeout_ms / 1000:g} s, but brokers allow at most "
                f"{longest / 1000:g} s (transaction.max.timeout.ms)"
            )

    def _check_rules(self, rules: TopicRules) -> None:
        if rules.needs_keys and self._fields["key"] is None:
            raise ConfigurationError(
                f"the topic {self._topic!r} is compacted (cleanup.policy), so it takes no records without "
                "a key: give key=..."
            )
        if rules.own_times and self._fields["timestamp"] is not None:
            logger.warning(
                "the topic %r replaces the timestamps of records by the time at which brokers write them "
                "(message.timestamp.type=LogAppendTime): timestamp=... has no effect",
                self._topic,
            )

    def _commits_within(self) -> int:
        """The timeout of the transaction of a commit, in milliseconds: no longer than brokers allow."""
        if self._delivery == "at_least_once":
            return TRANSACTION_TIMEOUT_MS
        wanted = self._cluster.options.get("transaction.timeout.ms")
        longest = self._longest_transaction_ms()
        if wanted is None:
            return min(TRANSACTION_TIMEOUT_MS, longest or TRANSACTION_TIMEOUT_MS)
        if longest is not None and int(wanted) > longest:
            raise ConfigurationError(
                f"the option transaction.timeout.ms is {int(wanted) / 1000:g} s, but brokers allow at most "
                f"{longest / 1000:g} s (transaction.max.timeout.ms)"
            )
        return int(wanted)

    def _longest_transaction_ms(self) -> int | None:
        """How long brokers leave a transaction open at most; None where they do not say."""
        with self._cluster.errors("cannot ask a broker for its settings"):
            admin = self._cluster.admin()
            broker = next(iter(admin.list_topics(timeout=START_TIMEOUT_S).brokers))
            found = settings_of(admin, "BROKER", str(broker)).get("transaction.max.timeout.ms")
        return None if found is None else int(found)

    @property
    def _planned(self) -> Shape:
        if self._shape is None:
            self.validate()
        assert self._shape is not None
        return self._shape


class _AtOnceWriter(SinkWriter):
    """Sends records as they come; a checkpoint completes once the brokers have all that came before it."""

    def __init__(self, sender: Sender, shape: Shape, operator: str) -> None:
        self._sender = sender
        self._shape = shape
        self._operator = operator

    def write(self, batch: Batch) -> None:
        if len(batch):
            self._sender.send(self._shape.outgoing(batch, self._operator))

    def prepare(self, checkpoint_id: int) -> Prepared:
        return Prepared([], self._sender.flush)

    def close(self) -> None:
        """What is queued still goes out in the background, or is written again after a restore."""


def _check_commit_timeout(wanted: object) -> None:
    text = str(wanted)
    if wanted is not None and not (text.isascii() and text.isdecimal() and int(text) >= 1000):
        raise ConfigurationError(
            "the option transaction.timeout.ms is a whole number of milliseconds, at least 1000, not "
            f"{wanted!r}"
        )


def _one_of(option: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigurationError(f"{option} must be one of {', '.join(allowed)}, got {value!r}")
