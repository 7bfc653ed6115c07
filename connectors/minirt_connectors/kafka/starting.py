"""Where a source begins in each partition, and where it ends if it is bounded."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from minirt.errors import ConfigurationError
from minirt.units import event_time_ms
from minirt_connectors.kafka.cluster import Cluster

Start = str | dt.datetime | Mapping[int, int]

_ASK_TIMEOUT_S = 10.0


def checked(start: Start) -> Start:
    """Raises ConfigurationError for what is no start."""
    if start in ("earliest", "latest") or isinstance(start, dt.datetime):
        return start
    if isinstance(start, Mapping) and all(
        type(number) is int and number >= 0 for pair in start.items() for number in pair
    ):
        return dict(start)
    raise ConfigurationError(
        'start must be "earliest", "latest", a datetime or a dict from partition to offset, '
        f"got {start!r}"
    )


def ranges(cluster: Cluster, topic: str, partitions: int, start: Start) -> list[tuple[int, int]]:
    """The first offset to read of each partition, and the one behind its last record now."""
    import confluent_kafka as kafka

    consumer = cluster.consumer()
    try:
        known = cluster.bounds(consumer, [(topic, number) for number in range(partitions)])
        with cluster.errors(f"cannot ask for the offsets of {topic!r}"):
            if isinstance(start, dt.datetime):
                begins = _since(kafka, consumer, topic, start, [high for _, high in known])
            elif isinstance(start, Mapping):
                begins = _given(topic, start, known)
            else:
                begins = [low if start == "earliest" else high for low, high in known]
    finally:
        consumer.close()
    return [(begin, high) for begin, (_, high) in zip(begins, known, strict=True)]


def _since(
    kafka: Any, consumer: Any, topic: str, start: dt.datetime, highs: list[int]
) -> list[int]:
    at = event_time_ms(start)
    asked = [kafka.TopicPartition(topic, number, at) for number in range(len(highs))]
    found = {place.partition: place for place in consumer.offsets_for_times(asked, _ASK_TIMEOUT_S)}
    for place in found.values():
        if place.error is not None:
            raise kafka.KafkaException(place.error)
    # A partition without a record since then is read from its end.
    return [
        found[number].offset if found[number].offset >= 0 else high
        for number, high in enumerate(highs)
    ]


def _given(topic: str, start: Mapping[int, int], known: list[tuple[int, int]]) -> list[int]:
    if set(start) != set(range(len(known))):
        raise ConfigurationError(
            f"start=... gives offsets of the partitions {sorted(start)}, but {topic!r} has 0 to "
            f"{len(known) - 1}"
        )
    for number, (low, high) in enumerate(known):
        if not low <= start[number] <= high:
            raise ConfigurationError(
                f"partition {number} of {topic!r} has the offsets {low} to {high}, not {start[number]}"
            )
    return [start[number] for number in range(len(known))]
