"""The ledger of Kafka sinks: a compacted topic of one partition, whose records are entries by their owner.

An entry and the records that it stands for are written in one transaction. Each owner has a transactional
id: who begins to use it ends the transactions of whoever used it before. So an entry that was read behind
that is the last one, or the commit that builds on it is refused.

Behind the transaction of another job that is not over yet, entries of our own might be hidden: the ledger
counts as read once all is read that is there, committed or not.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from minirt.errors import ConfigurationError, JobFailedError, StorageError
from minirt.io.ledger import LedgerEntry
from minirt_connectors.kafka.cluster import Cluster

READ_TIMEOUT_S = 30.0
logger = logging.getLogger("minirt.sinks")

_ASK_TIMEOUT_S = 10.0
_UNBLOCK_S = 1.0


class LedgerTopic:
    """The entries of a ledger, as far as they are committed. Used by one thread."""

    def __init__(self, cluster: Cluster, name: str, like: str | None = None) -> None:
        """Make sure that the topic is there; a new one is replicated like the topic `like`, if given."""
        import confluent_kafka as kafka

        self.name = name
        self._kafka = kafka
        self._cluster = cluster
        self._entries: dict[str, LedgerEntry] = {}
        self._position = 0
        with cluster.errors(f"cannot prepare the ledger {name!r}"):
            self._ends = cluster.consumer({"isolation.level": "read_uncommitted"})
            _make_sure(cluster, self._ends, name, like)
            self._reader = cluster.consumer(
                {"fetch.wait.max.ms": 100, "enable.partition.eof": True}
            )
            self._reader.assign([kafka.TopicPartition(name, 0, kafka.OFFSET_BEGINNING)])

    def entry(self, owner: str, unblock: Callable[[], object] | None = None) -> LedgerEntry | None:
        """The last one that is committed at this moment.

        `unblock` is called if a transaction hides the end for long: perhaps it was ours before a crash.
        """
        with self._cluster.errors(f"cannot read the ledger {self.name!r}"):
            place = self._kafka.TopicPartition(self.name, 0)
            _, end = self._ends.get_watermark_offsets(place, timeout=_ASK_TIMEOUT_S)
            self._read_to(end, unblock)
        return self._entries.get(owner)

    def close(self) -> None:
        for consumer in (self._reader, self._ends):
            with suppress(Exception):
                consumer.close()

    def _read_to(self, end: int, unblock: Callable[[], object] | None) -> None:
        began = time.monotonic()
        while self._position < end:
            waited = time.monotonic() - began
            if waited > _UNBLOCK_S and unblock is not None:
                unblock()
                unblock = None
            if waited > READ_TIMEOUT_S:
                raise StorageError(
                    f"Kafka at {self._cluster.name}: the ledger {self.name!r} cannot be read to its end "
                    f"within {READ_TIMEOUT_S:g} s; perhaps the commit of another job is not over"
                )
            message = self._reader.poll(0.2)
            if message is not None:
                self._take(message)

    def _take(self, message: Any) -> None:
        error = message.error()
        if error is None:
            owner = message.key().decode(errors="replace")
            self._entries[owner] = _entry(message.value(), self.name, owner)
            self._position = message.offset() + 1
        elif error.code() == self._kafka.KafkaError._PARTITION_EOF:
            self._position = message.offset()
        elif error.code() == self._kafka.KafkaError._AUTO_OFFSET_RESET:
            raise StorageError(f"the ledger {self.name!r} has lost what was read of it before")
        else:
            raise self._cluster.error(f"cannot read the ledger {self.name!r}", error)


def packed(entry: LedgerEntry) -> bytes:
    return json.dumps(asdict(entry)).encode()


def _entry(value: bytes | None, ledger: str, owner: str) -> LedgerEntry:
    try:
        plain = json.loads(value or b"")
        numbers = [plain[name] for name in ("checkpoint_id", "generation", "written_by")]
        if not all(type(number) is int for number in numbers):
            raise TypeError("an entry holds whole numbers")
    except (ValueError, KeyError, TypeError) as error:
        raise JobFailedError(
            f"the ledger {ledger!r} holds what no sink has written, of {owner}: {value!r:.200} ({error})"
        ) from None
    return LedgerEntry(*numbers)


def _make_sure(cluster: Cluster, consumer: Any, name: str, like: str | None) -> None:
    """The topic is there, and is one that forgets nothing and is as safe as that of the records."""
    from confluent_kafka.admin import NewTopic

    admin = cluster.admin()
    if _partitions(cluster, consumer, name) == 0:
        config = {"cleanup.policy": "compact"}
        in_sync = None if like is None else topic_config(admin, like).get("min.insync.replicas")
        if in_sync is not None:
            config["min.insync.replicas"] = in_sync
        new = NewTopic(name, 1, _replicas(consumer, like) or -1, config=config)
        try:
            admin.create_topics([new])[name].result(_ASK_TIMEOUT_S)
        except Exception as error:
            if not _says(error, "TOPIC_ALREADY_EXISTS"):
                raise
    until = time.monotonic() + _ASK_TIMEOUT_S
    while (count := _partitions(cluster, consumer, name)) == 0:
        if time.monotonic() > until:
            raise StorageError(f"Kafka at {cluster.name}: the ledger {name!r} was not made in time")
        time.sleep(0.05)
    if count != 1:
        raise ConfigurationError(f"the ledger {name!r} must have 1 partition, and has {count}")
    if "delete" in topic_config(admin, name).get("cleanup.policy", ""):
        raise ConfigurationError(
            f"the ledger {name!r} has a cleanup.policy that deletes: set it to compact, or what is "
            "committed already would be written again"
        )

    have, wanted = _replicas(consumer, name), _replicas(consumer, like)
    if have < wanted:
        logger.warning(
            "the ledger %r has %d replicas, and the topic %r of the records has %d: if all of the ledger "
            "are lost, nobody knows what is committed already. Give it as many",
            *(name, have, like, wanted),
        )


def _replicas(consumer: Any, name: str | None) -> int:
    """How many replicas each partition of a topic has at least; 0 where nobody can tell."""
    if name is None:
        return 0
    found = consumer.list_topics(name, timeout=_ASK_TIMEOUT_S).topics[name]
    return min((len(one.replicas) for one in found.partitions.values()), default=0)


def topic_config(admin: Any, name: str) -> dict[str, str]:
    """The settings of a topic; none where this user may not ask."""
    return settings_of(admin, "TOPIC", name)


def settings_of(admin: Any, kind: str, name: str) -> dict[str, str]:
    """The settings of a "TOPIC" or a "BROKER"; none where this user may not ask."""
    from confluent_kafka.admin import ConfigResource, ResourceType

    resource = ConfigResource(ResourceType[kind], name)
    try:
        found = admin.describe_configs([resource])[resource].result(_ASK_TIMEOUT_S)
    except Exception as error:
        if _says(error, "TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"):
            return {}
        raise
    return {option: entry.value for option, entry in found.items() if entry.value is not None}


def _partitions(cluster: Cluster, consumer: Any, name: str) -> int:
    """How many there are that can be used; 0 without the topic."""
    found = consumer.list_topics(name, timeout=_ASK_TIMEOUT_S).topics[name]
    if found.error is None:
        return len([one for one in found.partitions.values() if one.leader >= 0])
    if found.error.name() in ("UNKNOWN_TOPIC_OR_PART", "LEADER_NOT_AVAILABLE"):
        return 0
    raise cluster.error(f"cannot use the ledger {name!r}", found.error)


def _says(error: Exception, *names: str) -> bool:
    said: Any = error.args[0] if error.args else None
    return hasattr(said, "name") and said.name() in names
