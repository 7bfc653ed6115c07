"""How far a job, or a consumer group, is behind the end of each partition that it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import minirt as rt
from minirt.errors import ConfigurationError
from minirt_connectors.kafka.cluster import Cluster

_ASK_TIMEOUT_S = 10.0

Place = tuple[str, int]
"""A topic and the number of a partition."""


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition, and who has come how far in it.

    `end` is the offset behind the last record that readers with read_committed see. `checkpoint` and
    `group` are the offsets to go on with: those of the newest checkpoint and of the group, None where
    these know none. A lag counts offsets; marks of transactions have some, too.
    """

    uid: str | None
    topic: str
    partition: int
    end: int
    checkpoint: int | None
    group: int | None

    @property
    def checkpoint_lag(self) -> int | None:
        return None if self.checkpoint is None else max(0, self.end - self.checkpoint)

    @property
    def group_lag(self) -> int | None:
        return None if self.group is None else max(0, self.end - self.group)


def kafka_lag(
    bootstrap: str,
    checkpoints: rt.Checkpoints | None = None,
    *,
    group: str | None = None,
    uid: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> list[PartitionLag]:
    """The lag of each partition that the newest checkpoint, or else the group, has an offset of.

    Of a topic that is read, partitions that nobody has an offset of are listed as well. `uid` chooses one
    source of the job.

    Raises ConfigurationError if no broker answers, a topic is missing, the checkpoint has no Kafka
    source, or the group has no offsets.
    """
    cluster = Cluster(bootstrap, options)
    by_source = {} if checkpoints is None else offsets_of_checkpoint(checkpoints, uid)
    topics = {topic for offsets in by_source.values() for topic, _ in offsets}
    counts = {topic: cluster.topic(topic) for topic in sorted(topics)}
    told = {} if group is None else _offsets_of_group(cluster, group)
    if checkpoints is None:
        if not told:
            raise ConfigurationError(
                f"Kafka at {cluster.name}: the group {group!r} has no offsets: it does not exist, or no "
                "checkpoint has completed since it was named"
            )
        counts = {topic: cluster.topic(topic) for topic in sorted({topic for topic, _ in told})}
    ends = _ends(cluster, counts)
    sources: Sequence[tuple[str | None, Mapping[Place, int]]] = (
        list(by_source.items()) if checkpoints is not None else [(None, {})]
    )
    return [
        PartitionLag(of, *place, ends[place], offsets.get(place), told.get(place))
        for of, offsets in sources
        for place in sorted(ends)
        if checkpoints is None or place[0] in {topic for topic, _ in offsets}
    ]


def offsets_of_checkpoint(
    checkpoints: rt.Checkpoints, uid: str | None = None
) -> dict[str, dict[Place, int]]:
    """By uid of each Kafka source in the newest checkpoint, the offsets to go on with.

    Raises ConfigurationError if there is no checkpoint, or no such source in it.
    """
    checkpoint = checkpoints.find("latest")
    operators = checkpoint.operators if uid is None else {uid: checkpoint.operator(uid)}
    found: dict[str, dict[Place, int]] = {}
    for name, operator in operators.items():
        splits = [pair for held in operator.entries if held.kind == "splits" for pair in held]
        places = dict(filter(None, (_place(id, progress) for id, progress in splits)))
        if places:
            found[name] = places
    if not found:
        whose = "has no Kafka source" if uid is None else f"has no Kafka source {uid!r}"
        raise ConfigurationError(f"checkpoint {checkpoint.id} {whose}")
    return found


def read_options(path: str | None) -> dict[str, str]:
    """The options of a file with a line `name=value` for each, as those of Kafka's own commands."""
    if path is None:
        return {}
    try:
        lines = Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read the client options: {error}") from error
    options: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ConfigurationError(f"line {number} of {path} is no name=value")
        options[name.strip()] = value.strip()
    return options


def _place(id: str, progress: Mapping[str, Any]) -> tuple[Place, int] | None:
    """Where a split has come to; None for one of another source.

    A checkpoint in the middle of a batch has the offset of the batch, and counts what was emitted of it.
    """
    info, offset = progress["info"], progress["offset"]
    if not isinstance(info, Mapping) or id != f"{info.get('topic')}-{info.get('partition')}":
        return None
    first = info["start"] if offset is None else offset[0]
    return (info["topic"], info["partition"]), first + progress["skip"]


def _offsets_of_group(cluster: Cluster, group: str) -> dict[Place, int]:
    import confluent_kafka as kafka

    asked = kafka.ConsumerGroupTopicPartitions(group)
    admin = cluster.admin()  # Without a name it would be gone before the answer comes.

    def ask() -> Any:
        answers = admin.list_consumer_group_offsets([asked], request_timeout=_ASK_TIMEOUT_S)
        return answers[group].result().topic_partitions

    action = f"cannot ask for the offsets of the group {group!r}"
    found = cluster.answer(action, ask, _ASK_TIMEOUT_S)
    return {(one.topic, one.partition): one.offset for one in found if one.offset >= 0}


def _ends(cluster: Cluster, counts: Mapping[str, int]) -> dict[Place, int]:
    places = [(topic, number) for topic, count in counts.items() for number in range(count)]
    consumer = cluster.consumer()
    try:
        bounds = cluster.bounds(consumer, places)
        return {place: end for place, (_, end) in zip(places, bounds, strict=True)}
    finally:
        consumer.close()
