"""Reads a Kafka topic: a split for each partition, with offsets that live in the checkpoints of the job."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from minirt.errors import ConfigurationError, SourceDataError
from minirt.io.base import BadRecord, Offset, OnError, Source, Split, SplitReader
from minirt.io.lines import check_on_error
from minirt.io.remembered import Accept, Identity, checked_accept
from minirt.units import Duration, seconds
from minirt_connectors.kafka.cluster import Cluster
from minirt_connectors.kafka.fetching import Fetcher
from minirt_connectors.kafka.formats import Format, format_of
from minirt_connectors.kafka.incoming import Decoder, check_metadata, with_metadata
from minirt_connectors.kafka.progress import LastRecord, PartitionProgress
from minirt_connectors.kafka.starting import Start, checked, ranges
from minirt_connectors.kafka.topics import TopicWatch, topic_identity

_BOUNDED_WAIT_S = 0.02
"""How long a reader waits for records that are known to be there; without an end, others come first."""

_TELL_S = 5.0
"""For how long to try to write offsets: the job waits meanwhile, and there is no later time at its end."""


class KafkaSource(Source):
    """Reads the records of `topic` of the brokers `bootstrap`, a text `host:port,host:port`.

    A job that starts without a checkpoint begins at `start`: "earliest", "latest", a datetime, or a dict
    from partition to offset. Behind that, offsets are those of its checkpoints. With `bounded=True` the
    source ends with the records that are there when the job starts. Otherwise it reads on, looks for added
    partitions every `discovery`, and reads these from their beginning.

    `format` tells what a value holds: "json" gives what `json.loads` does, or columns with a `schema`;
    "raw" gives columns with the one column `value`, bytes; or it is a `Format`. `metadata` adds the fields
    `kafka_key`, `kafka_timestamp` (milliseconds), `kafka_partition`, `kafka_offset` and `kafka_headers`, as
    far as it names them without their prefix. A value that does not parse fails the job
    (`on_error="fail"`), is left out and counted ("skip") or goes to the side output `errors`
    ("side_output").

    With `group`, the offsets of completed checkpoints are written for that consumer group, for monitors of
    its lag; nobody reads them back. `options` go to librdkafka, such as those for TLS and SASL.

    A checkpoint remembers the topic, and the last record that was read of each partition. A job is refused
    with a SourceChangedError if it is restored with another topic (`accept="other"` goes on there at the
    same offsets), or if a partition went back and may have grown again (`accept="behind"` goes on at the
    offset, or at the end where that is less).

    Raises ConfigurationError for options that cannot work and, when validated, if there is no such
    topic, no broker answers, or it lets nobody in. Readers raise SourceDataError for an offset that is
    gone.
    """

    interleave = True

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        start: Start = "earliest",
        bounded: bool = False,
        format: str | Format = "json",
        schema: pa.Schema | None = None,
        metadata: Sequence[str] = (),
        on_error: OnError = "fail",
        group: str | None = None,
        discovery: Duration = "30s",
        options: Mapping[str, Any] | None = None,
        accept: Accept | Sequence[Accept] = (),
    ) -> None:
        self.accept = checked_accept(accept)
        self._cluster = Cluster(bootstrap, options)
        self._topic = topic
        self._start = checked(start)
        self.bounded = bool(bounded)
        self._format = format_of(format, schema)
        self._metadata = check_metadata(metadata)
        beside_columns = bool(metadata) and self._format.schema() is not None
        self.in_arrays = self._format.in_arrays or beside_columns
        self.on_error: OnError = check_on_error(on_error)
        self.side_errors = on_error == "side_output"
        if group is not None and not group:
            raise ConfigurationError("group is the name of a consumer group, or None")
        self._group = group
        self._discovery_s = max(0.05, seconds(discovery, "discovery"))
        self._open = _Open()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_open"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._open = _Open()

    def __repr__(self) -> str:
        return f"KafkaSource({self._cluster.name!r}, {self._topic!r})"

    def validate(self) -> None:
        self._cluster.topic(self._topic)
        self._format = self._format.for_topic(self._topic, writing=False)

    def schema(self) -> pa.Schema | None:
        return with_metadata(self._format.schema(), self._metadata)

    def identity(self) -> Identity:
        return TopicWatch(self._cluster, self._topic).identity()

    def remembered(self, split: Split) -> Identity | None:
        """Splits of versions up to 0.1.0 have the topic in other places."""
        info = split.info
        id = info.get("topic_id")
        known = topic_identity(info["topic"], {} if id is None else {"topic id": id})
        return super().remembered(split) or known

    def moved(self, split: Split, offset: Offset, kept: Identity) -> tuple[Split, Offset]:
        """The last record that was read is one of the other topic."""
        info = {**split.info, "topic": self._topic, "topic_id": None}
        return Split(split.id, info), None if offset is None else offset[:2]

    def plan_splits(self, parallelism: int) -> Sequence[Split]:
        partitions = self._cluster.topic(self._topic)
        found = ranges(self._cluster, self._topic, partitions, self._start)
        topic_id = TopicWatch(self._cluster, self._topic).id()
        return [
            self._split(number, begin, partitions, end if self.bounded else None, topic_id)
            for number, (begin, end) in enumerate(found)
        ]

    def open_split(self, split: Split, offset: Offset) -> SplitReader:
        info = split.info
        decoder = Decoder(self._format, self._metadata, self.on_error, info["topic"])
        first, seen, *last = (info["start"], info["of"]) if offset is None else offset
        known = LastRecord(*last[0]) if last and last[0] is not None else None
        place = f"partition {info['partition']} of {self._topic!r}"
        progress = PartitionProgress(repr(self), place, first, known, self.accept)
        return _Reader(self, split, progress, seen, decoder)

    def fetcher(self, partition: int) -> Fetcher:
        """That of this thread; another one if it reads this partition for somebody already."""
        for fetcher in self._open.fetchers:
            if partition not in fetcher:
                return fetcher
        fetcher = Fetcher(self._cluster, self._topic)
        self._open.fetchers.append(fetcher)
        return fetcher

    def done_with(self, fetcher: Fetcher, partition: int) -> None:
        if fetcher.close(partition) and fetcher in self._open.fetchers:
            self._open.fetchers.remove(fetcher)

    def new_splits(
        self, partition: int, of: int, seen: int, count: int, topic_id: str | None
    ) -> list[Split]:
        """The partitions that came up behind `seen` others, and that fall to the split of `partition`."""
        return [
            self._split(number, 0, of, None, topic_id)
            for number in range(seen, count)
            if number % of == partition
        ]

    @property
    def discovery_s(self) -> float:
        return self._discovery_s

    @property
    def wants_committed(self) -> bool:
        return self._group is not None

    def committed(self, offsets: Mapping[str, Offset]) -> None:
        import confluent_kafka as kafka

        places = [
            kafka.TopicPartition(self._topic, int(id.rpartition("-")[2]), offset[0])
            for id, offset in offsets.items()
            if offset is not None
        ]
        if not places:
            return
        if self._open.telling is None:
            self._open.telling = self._cluster.consumer({"group.id": self._group})
        telling = self._open.telling
        self._cluster.answer(
            f"cannot write the offsets of the group {self._group!r}",
            lambda: telling.commit(offsets=places, asynchronous=False),
            _TELL_S,
        )

    def _split(
        self, partition: int, start: int, of: int, end: int | None, topic_id: str | None
    ) -> Split:
        info = {"topic": self._topic, "partition": partition, "start": start, "of": of, "end": end}
        return Split(f"{self._topic}-{partition}", {**info, "topic_id": topic_id})


class _Open(threading.local):
    """What a source has open in this thread."""

    def __init__(self) -> None:
        self.fetchers: list[Fetcher] = []
        self.telling: Any = None


class _Reader(SplitReader):
    """The offset is that of the next record, how many partitions were known by then, and the last record.

    Offsets of versions up to 0.1.0 lack the latter. Of partitions that are added, each falls to one that
    was there at the beginning.
    """

    def __init__(
        self,
        source: KafkaSource,
        split: Split,
        progress: PartitionProgress,
        seen: int,
        decoder: Decoder,
    ) -> None:
        info = split.info
        self._source = source
        self._partition = info["partition"]
        self._of = info["of"]
        self._end = info["end"]
        kept = source.remembered(split)
        self._topic_id = None if kept is None else kept.ids.get("topic id")
        self._progress = progress
        self._next, self._seen = progress.next, seen
        self._decoder = decoder
        self._wait_s = 0.0 if self._end is None else _BOUNDED_WAIT_S
        self._found: list[Split] = []
        self._fetcher: Fetcher | None = None
        self._opened = False
        self._came_at = float("-inf")
        """When records came last that nobody has looked at the topic for."""
        self._set_offset()

    def read(self) -> list[Any] | pa.RecordBatch | None:
        if self._end is not None and self._next >= self._end:
            return None
        if self._fetcher is None:
            self._fetcher = self._source.fetcher(self._partition)
        count = self._fetcher.watch.partition_count(self._source.discovery_s, self._topic_id)
        if not self._opened and not self._open(self._fetcher):
            return self._decoder.nothing()
        messages, position = self._take(self._fetcher)
        if self._end is not None:
            if messages and messages[-1].offset() >= self._end:
                messages = [one for one in messages if one.offset() < self._end]
        elif self._partition < self._of and count > self._seen:
            self._take_partitions(count)
        messages = self._progress.new(messages)
        # Behind the last record there may be marks of transactions, which nobody gets to see.
        self._next = max(self._next, position)
        self._progress.next = self._next
        self._set_offset()
        if not messages:
            return self._decoder.nothing()
        self._came_at = time.monotonic()
        decoded = self._decoder.decode(messages)
        self.skipped = self._decoder.skipped
        return decoded

    def _take(self, fetcher: Fetcher) -> tuple[list[Any], int]:
        """Return the messages that came and the offset behind them.

        Raises SourceChangedError if records are missing since the topic was made anew, and
        SourceDataError if they are missing for another reason.
        """
        try:
            return fetcher.take(self._partition, self._wait_s)
        except SourceDataError:
            # Both reasons look alike to the consumer; only the id of the topic tells them apart.
            fetcher.watch.verify(self._topic_id, time.monotonic())
            raise

    def verify(self) -> None:
        if self._fetcher is not None:
            self._fetcher.watch.verify(self._topic_id, self._came_at)

    def _open(self, fetcher: Fetcher) -> bool:
        """Begin to fetch, if brokers tell how far the partition is."""
        bounds = fetcher.bounds(self._partition)
        begin = None if bounds is None else self._progress.begin(*bounds)
        if begin is not None:
            self._next = self._progress.next
            fetcher.open(self._partition, begin)
            self._opened = True
        return self._opened

    def _set_offset(self) -> None:
        last = self._progress.last
        self.offset = [self._next, self._seen, None if last is None else last.to_plain()]

    def take_bad_records(self) -> list[BadRecord]:
        return self._decoder.take_bad_records()

    def locate(self, places: Sequence[int]) -> Sequence[tuple[str, bytes] | None]:
        return self._decoder.locate(places)

    def take_new_splits(self) -> Sequence[Split]:
        found, self._found = self._found, []
        return found

    def close(self) -> None:
        fetcher, self._fetcher = self._fetcher, None
        if fetcher is not None:
            self._source.done_with(fetcher, self._partition)

    def _take_partitions(self, count: int) -> None:
        known = (self._partition, self._of, self._seen)
        self._found += self._source.new_splits(*known, count, self._topic_id)
        self._seen = count
