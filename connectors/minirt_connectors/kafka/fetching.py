"""Partitions that one thread reads with one consumer, since each consumer has threads and buffers."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from minirt.errors import SourceDataError, StorageError
from minirt_connectors.kafka.cluster import Cluster
from minirt_connectors.kafka.topics import TopicWatch

_TAKEN_AT_ONCE = 2000
_ASK_TIMEOUT_S = 1.0
_OF_NO_TOPIC = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")
_BUFFERED_BYTES = 4 << 20
"""A partition of which more than that waits to be read is paused; librdkafka holds more, too."""

_OPTIONS = {
    "enable.partition.eof": True,
    "queued.max.messages.kbytes": 16384,
    "fetch.wait.max.ms": 100,
    "fetch.queue.backoff.ms": 10,
}


@dataclass(slots=True)
class _Waiting:
    """What has come of a partition and was not taken yet."""

    position: int
    messages: list[Any] = field(default_factory=list)
    bytes: int = 0
    paused: bool = False
    error: Any = None


class Fetcher:
    """Used by one thread. Partitions are assigned, and each read from the offset that was asked for."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        import confluent_kafka as kafka

        self._kafka = kafka
        self._cluster = cluster
        self._topic = topic
        self._consumer = cluster.consumer(_OPTIONS)
        self._partitions: dict[int, _Waiting] = {}
        self.watch = TopicWatch(cluster, topic)

    def __contains__(self, partition: int) -> bool:
        return partition in self._partitions

    def bounds(self, partition: int) -> tuple[int, int] | None:
        """The first offset of a partition, and the one behind its last record; None if no broker tells now.

        Raises ConfigurationError if asking again would not help.
        """
        try:
            found = self._consumer.get_watermark_offsets(self._place(partition), _ASK_TIMEOUT_S)
        except self._kafka.KafkaException as raised:
            error = raised.args[0]
            if error.name() in _OF_NO_TOPIC:
                # The client may not know a new partition yet. Of topics that are gone the watch tells.
                with suppress(self._kafka.KafkaException):
                    self._consumer.list_topics(self._topic, timeout=_ASK_TIMEOUT_S)
                return None
            known = self._cluster.error(f"cannot read {self._topic!r}", error)
            if not isinstance(known, StorageError):
                raise known from None
            return None
        return found if found is None else (found[0], found[1])

    def open(self, partition: int, offset: int) -> None:
        self._partitions[partition] = _Waiting(offset)
        with self._cluster.errors(f"cannot read {self._topic!r}", SourceDataError):
            self._consumer.incremental_assign([self._place(partition, offset)])

    def close(self, partition: int) -> bool:
        """Whether the consumer is closed, since nobody reads with it any more."""
        self._partitions.pop(partition, None)
        with suppress(Exception):
            if not self._partitions:
                self._consumer.close()
            else:
                self._consumer.incremental_unassign([self._place(partition)])
        return not self._partitions

    def take(self, partition: int, wait_s: float) -> tuple[list[Any], int]:
        """What has come of a partition, in order, and the offset behind it; waits if that is nothing."""
        waiting = self._partitions[partition]
        if not waiting.messages:
            self._fetch(wait_s)
        if waiting.error is not None and not waiting.messages:
            raise self._explained(waiting.error, partition, waiting.position)
        messages, waiting.messages = (
            waiting.messages[:_TAKEN_AT_ONCE],
            waiting.messages[_TAKEN_AT_ONCE:],
        )
        if waiting.messages:
            return messages, messages[-1].offset() + 1
        waiting.bytes = 0
        if waiting.paused:
            waiting.paused = False
            self._consumer.resume([self._place(partition)])
        return messages, waiting.position

    def _fetch(self, wait_s: float) -> None:
        """Sort what has come by its partition."""
        came = self._consumer.consume(_TAKEN_AT_ONCE, wait_s)
        for partition, run in groupby(came, self._kafka.Message.partition):
            waiting = self._partitions.get(partition)
            if waiting is None:
                continue
            messages = list(run)
            told = [one for one in messages if one.error() is not None]
            if told:
                messages = [one for one in messages if one.error() is None]
            if messages:
                waiting.messages += messages
                waiting.bytes += sum(map(len, messages))
                waiting.position = messages[-1].offset() + 1
            for one in told:
                self._take_event(waiting, one)
        for partition, waiting in self._partitions.items():
            if waiting.bytes > _BUFFERED_BYTES and not waiting.paused:
                waiting.paused = True
                self._consumer.pause([self._place(partition)])

    def _take_event(self, waiting: _Waiting, event: Any) -> None:
        """What has come among records, and is none."""
        error = event.error()
        if error.code() == self._kafka.KafkaError._PARTITION_EOF:
            waiting.position = max(waiting.position, event.offset())
        elif not error.retriable():
            waiting.error = error

    def _explained(self, error: Any, partition: int, offset: int) -> Exception:
        place = f"partition {partition} of {self._topic!r}"
        if error.code() == self._kafka.KafkaError._AUTO_OFFSET_RESET:
            return SourceDataError(
                f"Kafka at {self._cluster.name}: {place} has no record at offset {offset} any more: "
                "retention has deleted it, or the topic was made anew. Records are lost to this job; to "
                f"go on without them, start it with another storage and start=... ({error.str()})"
            )
        return self._cluster.error(f"cannot read {place}", error, SourceDataError)

    def _place(self, partition: int, offset: int | None = None) -> Any:
        if offset is None:
            return self._kafka.TopicPartition(self._topic, partition)
        return self._kafka.TopicPartition(self._topic, partition, offset)
