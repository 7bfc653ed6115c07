"""Looks at a topic: how many partitions it has, and whether it is still the same one.

A consumer does not hear that its topic was deleted. If somebody makes a topic of the same name, it reads on
at its offset, which is the place of another record there, and nobody hears of those before. So a reader
looks now and then, and before a checkpoint holds what has come since the last look.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from minirt.errors import SourceChangedError
from minirt.io.remembered import Identity, same
from minirt_connectors.kafka.cluster import Cluster

_ASK_TIMEOUT_S = 1.0
_AGAIN_S = 1.0
_SILENT_S = 5.0
"""For how long brokers that did not answer are not asked again before a checkpoint."""
_MISSED_MAX = 2
"""A broker that has just started may not know all topics yet."""


class TopicWatch:
    """Used by one thread."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._admin: Any = None
        self._count = 0
        self._look_at = 0.0
        self._missed = 0
        self._answered = self._unanswered = float("-inf")
        """When the last question was asked that brokers have answered, and that they have not."""

    def identity(self) -> Identity:
        """What tells the topic from others; without ids where brokers do not tell them now."""
        import confluent_kafka as kafka

        ids = {}
        if (id := self.id()) is not None:
            ids["topic id"] = id
        with suppress(kafka.KafkaException):
            asked = self._connected().describe_cluster(request_timeout=_ASK_TIMEOUT_S)
            if cluster := asked.result().cluster_id:
                ids["cluster id"] = str(cluster)
        return topic_identity(self._topic, ids)

    def verify(self, id: str | None, came_at: float) -> None:
        """Look whether it is the same topic, if nobody has since records came.

        Brokers that do not answer are asked again before a later checkpoint. Raises SourceChangedError.
        """
        now = time.monotonic()
        if id is None or self._answered > came_at or now - self._unanswered < _SILENT_S:
            return
        self._look(id)

    def id(self) -> str | None:
        """What tells it from others of its name; None of brokers that do not know."""
        import confluent_kafka as kafka

        with suppress(kafka.KafkaException):
            return _id(self._asked())
        return None

    def partition_count(self, every_s: float, id: str | None) -> int:
        """How many partitions the topic has, asked that often; 0 while it is not known.

        Raises SourceDataError if the topic is gone, or another one with the same name is there.
        """
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + every_s
            self._look(id)
        return self._count

    def _look(self, id: str | None) -> None:
        import confluent_kafka as kafka

        asked_at = time.monotonic()
        try:
            found = self._asked()
        except kafka.KafkaException as error:
            unknown = error.args[0].code() == kafka.KafkaError.UNKNOWN_TOPIC_OR_PART
            self._missed += unknown
            self._unanswered = asked_at
            if unknown or not self._count:  # Nobody has told yet whether it is the same topic.
                self._look_at = min(self._look_at, time.monotonic() + _AGAIN_S)
            if self._missed >= _MISSED_MAX:
                raise SourceChangedError(
                    self._cluster.told(f"cannot read {self._topic!r}", "the topic was deleted")
                ) from None
            return
        self._missed = 0
        self._answered, self._unanswered = asked_at, float("-inf")
        self._count = len(found.partitions)
        now = _id(found)
        if None not in (id, now) and id != now:
            same(
                self._cluster.told(f"cannot read {self._topic!r}", "the topic was made anew"),
                topic_identity(self._topic, {"topic id": str(id)}),
                topic_identity(self._topic, {"topic id": str(now)}),
                (),
            )

    def _asked(self) -> Any:
        from confluent_kafka import TopicCollection

        asked = TopicCollection([self._topic])
        answers = self._connected().describe_topics(asked, request_timeout=_ASK_TIMEOUT_S)
        return answers[self._topic].result()

    def _connected(self) -> Any:
        if self._admin is None:
            self._admin = self._cluster.admin()
        return self._admin


def topic_identity(topic: str, ids: Mapping[str, str]) -> Identity:
    """What tells a topic from others of a cluster, and of other clusters."""
    return Identity("topic", repr(topic), ids)


def _id(described: Any) -> str | None:
    known = described.topic_id
    if not known.get_most_significant_bits() and not known.get_least_significant_bits():
        return None
    return str(known)
