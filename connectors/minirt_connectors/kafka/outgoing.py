"""Records on their way to Kafka: what each consists of, whether it is small enough, how it is staged."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, BinaryIO

import pyarrow as pa

from minirt.data.batch import Batch, Columns, Rows
from minirt.errors import SinkDataError
from minirt.io.encoder import Encoder
from minirt.io.json_text import OnNan
from minirt.units import event_time_ms
from minirt_connectors.kafka.formats import Format, json_lines

FieldSpec = str | Callable[[Any], Any] | None
"""Where a part of a record is: the name of a column, or a function of the record."""

_OVERHEAD = 128
"""More bytes than a broker counts for one record beside its key, value and headers."""

_HEADER_OVERHEAD = 10

BYTES_MAX = 1_000_000
"""What a topic takes if it does not say: a little less than brokers do by default."""

_NO_LIMIT = 2**63 - 1
"""How settings of topics say that there is none."""

_HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
_STAGED = pa.schema(
    [
        ("value", pa.binary()),
        ("key", pa.binary()),
        ("partition", pa.int32()),
        ("timestamp", pa.int64()),
        ("headers", _HEADERS),
    ]
)

Header = tuple[str, bytes | None]
Outgoing = tuple[bytes | None, bytes | None, int, int, list[Header] | None]
"""Value, key, partition (-1: by the key), milliseconds since 1970 (0: now) and headers."""


@dataclass(frozen=True)
class OutgoingBatch:
    """Records as the client takes them, part by part; None for a part that no record has."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None = None
    partitions: Sequence[int] | None = None
    timestamps: Sequence[int] | None = None
    headers: Sequence[list[Header]] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Outgoing]:
        return zip(
            self.values,
            repeat(None) if self.keys is None else self.keys,
            repeat(-1) if self.partitions is None else self.partitions,
            repeat(0) if self.timestamps is None else self.timestamps,
            repeat(None) if self.headers is None else self.headers,
            strict=False,
        )

    def staged(self) -> pa.RecordBatch:
        parts = (self.values, self.keys, self.partitions, self.timestamps, self._named())
        columns = [
            pa.nulls(len(self), field.type) if part is None else pa.array(part, field.type)
            for part, field in zip(parts, _STAGED, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=_STAGED)

    @classmethod
    def of(cls, staged: pa.RecordBatch) -> OutgoingBatch:
        """What `staged` has made."""
        values, *others = staged.columns
        keys, partitions, timestamps, headers = (
            None if part.null_count == len(part) else part.to_pylist() for part in others
        )
        pairs = None
        if headers is not None:
            pairs = [[(one["name"], one["value"]) for one in own] for own in headers]
        return cls(values.to_pylist(), keys, partitions, timestamps, pairs)

    def _named(self) -> list[list[dict[str, Any]]] | None:
        if self.headers is None:
            return None
        return [[{"name": name, "value": value} for name, value in own] for own in self.headers]


@dataclass(frozen=True)
class TopicRules:
    """What brokers ask of the records of a topic. They refuse others, and the commit that holds them."""

    partitions: int = 1
    bytes_max: int = BYTES_MAX
    needs_keys: bool = False
    """Whether the topic is compacted."""
    ahead_ms: int | None = None
    """How far a timestamp may be ahead of the clock of the brokers; None: as far as you like."""
    behind_ms: int | None = None
    """How far it may be behind."""
    own_times: bool = False
    """Whether brokers replace timestamps by the time at which they write a record."""

    @classmethod
    def of(cls, partitions: int, config: Mapping[str, str]) -> TopicRules:
        """Those of a topic with these settings; what its settings do not tell counts as allowed."""
        differ = _limit(config, "message.timestamp.difference.max.ms")
        own_times = config.get("message.timestamp.type") == "LogAppendTime"
        return cls(
            partitions,
            int(config.get("max.message.bytes", BYTES_MAX)),
            "compact" in config.get("cleanup.policy", ""),
            None if own_times else _limit(config, "message.timestamp.after.max.ms") or differ,
            None if own_times else _limit(config, "message.timestamp.before.max.ms") or differ,
            own_times,
        )


def _limit(config: Mapping[str, str], name: str) -> int | None:
    limit = int(config.get(name, _NO_LIMIT))
    return limit if limit < _NO_LIMIT else None


@dataclass(frozen=True)
class Shape:
    """How records become those of a topic, and what the topic asks of them."""

    format: Format
    key: FieldSpec = None
    headers: FieldSpec = None
    timestamp: FieldSpec = None
    partition: FieldSpec = None
    rules: TopicRules = TopicRules()
    nan: OnNan = "error"

    def outgoing(self, batch: Batch, operator: str) -> OutgoingBatch:
        """The records as they are sent. Raises SinkDataError for one that the topic does not take."""
        shaped = OutgoingBatch(
            self.format.encode(batch, operator),
            self._parts(batch, "key", operator, lambda given: _keys(given, operator, self.nan)),
            self._parts(batch, "partition", operator, self._numbers),
            self._parts(batch, "timestamp", operator, _times),
            self._parts(batch, "headers", operator, lambda all: [_headers(h) for h in all]),
        )
        self._check_sizes(batch, shaped, operator)
        self._check_keys(batch, shaped, operator)
        self._check_times(batch, shaped, operator)
        return shaped

    def _parts(
        self, batch: Batch, name: str, operator: str, settle: Callable[[list[Any]], Any]
    ) -> list[Any] | None:
        spec: FieldSpec = getattr(self, name)
        if spec is None:
            return None
        try:
            result: list[Any] = settle(_picked(batch, spec))
        except SinkDataError:
            raise
        except Exception as error:
            raise SinkDataError(
                f"{operator}: a record has no {name} that can be used "
                f"({type(error).__name__}: {error}); one of {batch.rows().records[0]!r:.500} and "
                f"{len(batch) - 1} more"
            ) from error
        return result

    def _numbers(self, given: list[Any]) -> list[int]:
        for number in given:
            if not isinstance(number, int) or not 0 <= number < self.rules.partitions:
                raise ValueError(
                    f"partition {number!r} is none of 0 to {self.rules.partitions - 1}"
                )
        return given

    def _check_sizes(self, batch: Batch, shaped: OutgoingBatch, operator: str) -> None:
        sizes = [len(value or b"") for value in shaped.values]
        if shaped.keys:
            sizes = [size + len(key or b"") for size, key in zip(sizes, shaped.keys, strict=True)]
        if shaped.headers:
            pairs = zip(sizes, shaped.headers, strict=True)
            sizes = [size + sum(map(_header_size, own)) for size, own in pairs]
        if max(sizes) + _OVERHEAD <= self.rules.bytes_max:
            return
        place = sizes.index(max(sizes))
        record = _record(batch, place)
        raise SinkDataError(
            f"{operator}: a record of {sizes[place]} bytes is larger than the topic takes, which is "
            f"{self.rules.bytes_max} with {_OVERHEAD} for the envelope (max.message.bytes): {record!r:.200}"
        )

    def _check_keys(self, batch: Batch, shaped: OutgoingBatch, operator: str) -> None:
        if not self.rules.needs_keys or (shaped.keys is not None and None not in shaped.keys):
            return
        place = 0 if shaped.keys is None else list(shaped.keys).index(None)
        raise SinkDataError(
            f"{operator}: a record has no key, and the topic is compacted (cleanup.policy), so it takes "
            f"none without: {_record(batch, place)!r:.500}"
        )

    def _check_times(self, batch: Batch, shaped: OutgoingBatch, operator: str) -> None:
        times = shaped.timestamps
        if not times:
            return
        earliest, latest, now_ms = min(times), max(times), _now_ms()
        rules = self.rules
        if earliest <= 0:
            why = (
                "the Kafka client cannot write the timestamp 0, 1970-01-01T00:00:00Z: to it that is the "
                "time of writing"
                if earliest == 0
                else "Kafka has no timestamps before 1970"
            )
            raise self._wrong_time(batch, times.index(earliest), earliest, why, operator)
        if rules.ahead_ms is not None and latest - now_ms > rules.ahead_ms:
            why = (
                f"the topic takes no timestamps that are more than {rules.ahead_ms / 1000:g} s ahead of "
                "the clock (message.timestamp.after.max.ms)"
            )
            raise self._wrong_time(batch, times.index(latest), latest, why, operator)
        if rules.behind_ms is not None and now_ms - earliest > rules.behind_ms:
            why = (
                f"the topic takes no timestamps that are more than {rules.behind_ms / 1000:g} s behind the "
                "clock (message.timestamp.before.max.ms)"
            )
            raise self._wrong_time(batch, times.index(earliest), earliest, why, operator)

    def _wrong_time(
        self, batch: Batch, place: int, time_ms: int, why: str, operator: str
    ) -> SinkDataError:
        return SinkDataError(
            f"{operator}: a record has the timestamp {time_ms} ms since 1970: {why}: "
            f"{_record(batch, place)!r:.500}"
        )


class OutgoingEncoder(Encoder):
    """Writes records as a stream of Arrow batches."""

    def __init__(self, stream: BinaryIO, shape: Shape, operator: str) -> None:
        self._shape = shape
        self._operator = operator
        self._writer = pa.ipc.new_stream(stream, _STAGED)

    def write(self, batch: Batch) -> None:
        self._writer.write_batch(self._shape.outgoing(batch, self._operator).staged())

    def finish(self) -> None:
        self._writer.close()

    def abandon(self) -> None:
        self._writer.close()


def staged_records(piece: bytes) -> Iterator[OutgoingBatch]:
    """What `OutgoingEncoder` has written, batch by batch."""
    with pa.ipc.open_stream(piece) as reader:
        yield from map(OutgoingBatch.of, reader)


def _picked(batch: Batch, spec: str | Callable[[Any], Any]) -> list[Any]:
    if callable(spec):
        return [spec(record) for record in batch.rows().records]
    if isinstance(batch, Columns):
        picked: list[Any] = batch.table.column(spec).to_pylist()
        return picked
    return [record[spec] for record in batch.records]


def _keys(given: list[Any], operator: str, nan: OnNan) -> list[bytes | None]:
    """Bytes and text as they are, all else as JSON."""
    others = [key for key in given if not (key is None or isinstance(key, bytes | str))]
    texts = iter(json_lines(Rows(others), operator, nan) if others else [])
    return [
        _raw(key) if key is None or isinstance(key, bytes | str) else next(texts) for key in given
    ]


def _raw(value: Any) -> bytes | None:
    if isinstance(value, str):
        return value.encode()
    if value is None or isinstance(value, bytes):
        return value
    raise TypeError(f"{value!r} is neither bytes nor text")


def _headers(given: Any) -> list[Header]:
    """A mapping, pairs, or what a source has under `kafka_headers`."""
    pairs = given.items() if isinstance(given, Mapping) else given or ()
    pairs = [(p["name"], p["value"]) if isinstance(p, Mapping) else p for p in pairs]
    return [(str(name), _raw(value)) for name, value in pairs]


def _header_size(header: Header) -> int:
    name, value = header
    return len(name.encode()) + len(value or b"") + _HEADER_OVERHEAD


def _times(given: list[Any]) -> list[int]:
    return [event_time_ms(time) for time in given]


def _record(batch: Batch, place: int) -> Any:
    return batch.slice(place, place + 1).rows().records[0]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
