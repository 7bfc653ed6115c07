"""Records as they come from Kafka: their values decoded, and what else is asked of them beside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from minirt.errors import BadRecordError, ConfigurationError
from minirt.io.base import BadRecord, OnError
from minirt.io.lines import GOES_ON
from minirt_connectors.kafka.formats import Format, Undecodable

_PREFIX = "kafka_"
_SHOWN = 200


def _key(message: Any) -> Any:
    return message.key()


def _timestamp(message: Any) -> Any:
    return message.timestamp()[1]


def _partition(message: Any) -> Any:
    return message.partition()


def _offset(message: Any) -> Any:
    return message.offset()


def _headers(message: Any) -> Any:
    return [{"name": name, "value": value} for name, value in message.headers() or ()]


_KNOWN: dict[str, tuple[pa.DataType, Callable[[Any], Any]]] = {
    "key": (pa.binary(), _key),
    "timestamp": (pa.int64(), _timestamp),
    "partition": (pa.int32(), _partition),
    "offset": (pa.int64(), _offset),
    "headers": (pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())])), _headers),
}


def check_metadata(names: Sequence[str]) -> tuple[str, ...]:
    """Raises ConfigurationError for names that Kafka records have no field of."""
    given = (names,) if isinstance(names, str) else tuple(names)
    for name in given:
        if name not in _KNOWN:
            raise ConfigurationError(f"metadata is of {', '.join(_KNOWN)}, got {name!r}")
    return given


def with_metadata(schema: pa.Schema | None, names: Sequence[str]) -> pa.Schema | None:
    """The columns that a source gives, if its format gives columns."""
    if schema is None:
        return None
    for name in names:
        if _PREFIX + name in schema.names:
            raise ConfigurationError(f"the schema and the metadata both have {_PREFIX + name!r}")
        schema = schema.append(pa.field(_PREFIX + name, _KNOWN[name][0]))
    return schema


def _nothing(schema: pa.Schema | None) -> pa.RecordBatch | None:
    """Made of no Python objects, see `Source.in_arrays`."""
    if schema is None:
        return None
    columns = [pa.nulls(0, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class Decoder:
    """Turns the messages of one split into records, or says which do not parse."""

    def __init__(
        self, format: Format, metadata: Sequence[str], on_error: OnError, topic: str
    ) -> None:
        self._format = format
        self._fields = [(_PREFIX + name, *_KNOWN[name]) for name in metadata]
        self._names = frozenset(name for name, *_ in self._fields)
        self._on_error = on_error
        self._topic = topic
        self._nothing = _nothing(with_metadata(format.schema(), metadata))
        self._kept: list[BadRecord] = []
        self._last: list[Any] = []
        """The messages of the records that were decoded last."""
        self.skipped = 0

    def nothing(self) -> list[Any] | pa.RecordBatch:
        """No records, in the form that they come in."""
        return [] if self._nothing is None else self._nothing

    def decode(self, messages: list[Any]) -> list[Any] | pa.RecordBatch:
        """Raises BadRecordError for a value that does not parse, unless it may be left out."""
        try:
            records = self._format.decode([message.value() for message in messages])
        except Undecodable as error:
            for place, reason in error.bad:
                self._report(messages[place], reason)
            bad = {place for place, _ in error.bad}
            messages = [one for place, one in enumerate(messages) if place not in bad]
            records = error.good
        self._last = messages
        if not self._fields:
            return records
        if isinstance(records, pa.RecordBatch):
            return self._beside_columns(records, messages)
        return self._beside_rows(records, messages)

    def take_bad_records(self) -> list[BadRecord]:
        taken, self._kept = self._kept, []
        return taken

    def locate(self, places: Sequence[int]) -> list[tuple[str, bytes] | None]:
        """Where the records at these places of the last batch are, and their bytes."""
        return [
            (self._place(one), one.value() or b"") for one in map(self._last.__getitem__, places)
        ]

    def _beside_columns(self, records: pa.RecordBatch, messages: list[Any]) -> pa.RecordBatch:
        for name, kind, of in self._fields:
            column = pa.array([of(message) for message in messages], kind)
            records = records.append_column(pa.field(name, kind), column)
        return records

    def _beside_rows(self, records: list[Any], messages: list[Any]) -> list[Any]:
        good = []
        for record, message in zip(records, messages, strict=True):
            if not isinstance(record, dict):
                self._report(message, "metadata can be added to JSON objects only")
                continue
            if not self._names.isdisjoint(record):
                taken = min(self._names.intersection(record))
                self._report(message, f"the object has a field {taken!r} of its own, as metadata")
                continue
            for name, _, of in self._fields:
                record[name] = of(message)
            good.append(record)
        return good

    def _report(self, message: Any, reason: str) -> None:
        value = message.value() or b""
        if self._on_error == "fail":
            shown = repr(value[:_SHOWN].decode(errors="replace"))
            size = f"… ({len(value)} bytes)" if len(value) > _SHOWN else ""
            raise BadRecordError(f"{self._place(message)}: {reason}: {shown}{size}; {GOES_ON}")
        self.skipped += 1
        if self._on_error == "side_output":
            place, binary = self._place(message), self._format.binary
            self._kept.append(BadRecord.of(place, value, reason, binary=binary))

    def _place(self, message: Any) -> str:
        return f"{self._topic}, partition {message.partition()}, offset {message.offset()}"
