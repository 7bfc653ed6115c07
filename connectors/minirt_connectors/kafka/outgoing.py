"""Records on their way to Kafka: what each consists of, whether it is small enough, how it is staged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
Outgoing = tuple[bytes | None, bytes | None, int, int, list[Header]]
"""Value, key, partition (-1: by the key), milliseconds since 1970 (0: now) and headers."""


@dataclass(frozen=True)
class Shape:
    """How records become those of a topic; `partitions` and `bytes_max` are those of the topic."""

    format: Format
    key: FieldSpec = None
    headers: FieldSpec = None
    timestamp: FieldSpec = None
    partition: FieldSpec = None
    partitions: int = 1
    bytes_max: int = 1_000_000
    nan: OnNan = "error"

    def columns(self, batch: Batch, operator: str) -> pa.RecordBatch:
        """The records as they are staged. Raises SinkDataError for one that the topic does not take."""
        count = len(batch)
        values = self.format.encode(batch, operator)
        keys = self._parts(batch, "key", operator, lambda given: _keys(given, operator, self.nan))
        headers = self._parts(batch, "headers", operator, lambda all: [_headers(h) for h in all])
        columns = [
            pa.array(values, pa.binary()),
            pa.array(keys, pa.binary()) if keys else pa.nulls(count, pa.binary()),
            _whole(self._parts(batch, "partition", operator, self._numbers), count, pa.int32()),
            _whole(self._parts(batch, "timestamp", operator, _times), count, pa.int64()),
            pa.array(headers, _HEADERS) if headers else pa.nulls(count, _HEADERS),
        ]
        staged = pa.RecordBatch.from_arrays(columns, schema=_STAGED)
        self._check_sizes(batch, values, keys, headers, operator)
        return staged

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
            if not isinstance(number, int) or not 0 <= number < self.partitions:
                raise ValueError(f"partition {number!r} is none of 0 to {self.partitions - 1}")
        return given

    def _check_sizes(
        self,
        batch: Batch,
        values: Sequence[bytes | None],
        keys: list[Any] | None,
        headers: list[Any] | None,
        operator: str,
    ) -> None:
        sizes = [len(value or b"") for value in values]
        if keys:
            sizes = [size + len(key or b"") for size, key in zip(sizes, keys, strict=True)]
        if headers:
            pairs = zip(sizes, headers, strict=True)
            sizes = [size + sum(map(_header_size, own)) for size, own in pairs]
        if max(sizes) + _OVERHEAD <= self.bytes_max:
            return
        place = sizes.index(max(sizes))
        record = batch.slice(place, place + 1).rows().records[0]
        raise SinkDataError(
            f"{operator}: a record of {sizes[place]} bytes is larger than the topic takes, which is "
            f"{self.bytes_max} with {_OVERHEAD} for the envelope (max.message.bytes): {record!r:.200}"
        )


class OutgoingEncoder(Encoder):
    """Writes records as a stream of Arrow batches."""

    def __init__(self, stream: BinaryIO, shape: Shape, operator: str) -> None:
        self._shape = shape
        self._operator = operator
        self._writer = pa.ipc.new_stream(stream, _STAGED)

    def write(self, batch: Batch) -> None:
        self._writer.write_batch(self._shape.columns(batch, self._operator))

    def finish(self) -> None:
        self._writer.close()

    def abandon(self) -> None:
        self._writer.close()


def staged_records(piece: bytes) -> Iterator[list[Outgoing]]:
    """What `OutgoingEncoder` has written, batch by batch."""
    with pa.ipc.open_stream(piece) as reader:
        for batch in reader:
            yield outgoing(batch)


def outgoing(batch: pa.RecordBatch) -> list[Outgoing]:
    values, keys, partitions, times, headers = batch.columns
    count = batch.num_rows
    if headers.null_count == count:
        named: list[list[Header]] = [[]] * count
    else:
        named = [[(h["name"], h["value"]) for h in own or ()] for own in headers.to_pylist()]
    return list(
        zip(
            values.to_pylist(),
            keys.to_pylist(),
            partitions.fill_null(-1).to_pylist(),
            times.fill_null(0).to_pylist(),
            named,
            strict=True,
        )
    )


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


def _headers(given: Any) -> list[dict[str, Any]]:
    """A mapping, pairs, or what a source has under `kafka_headers`."""
    pairs = given.items() if isinstance(given, Mapping) else given or ()
    pairs = [(p["name"], p["value"]) if isinstance(p, Mapping) else p for p in pairs]
    return [{"name": str(name), "value": _raw(value)} for name, value in pairs]


def _header_size(header: Mapping[str, Any]) -> int:
    return len(header["name"].encode()) + len(header["value"] or b"") + _HEADER_OVERHEAD


def _times(given: list[Any]) -> list[int]:
    times = [event_time_ms(time) for time in given]
    if min(times) <= 0:
        raise ValueError(f"Kafka has no timestamps before 1970: {min(times)}")
    return times


def _whole(given: list[int] | None, count: int, kind: pa.DataType) -> pa.Array:
    return pa.nulls(count, kind) if given is None else pa.array(given, kind)
