"""Avro with a schema registry: records as the dicts of fastavro."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from minirt.errors import ConfigurationError
from minirt_connectors.kafka.formats.registered import RegisteredFormat
from minirt_connectors.kafka.formats.registry import (
    HEAD_BYTES,
    SchemaRegistry,
    head_of,
    schema_id,
)

AvroSchema = str | Mapping[str, Any] | Sequence[Any]


class AvroFormat(RegisteredFormat):
    """Values in Avro, behind the id of their schema in `registry`, a URL or a `SchemaRegistry`.

    A source reads each value by the schema that it was written with, and gives it the fields of `schema`
    if there is one, by the rules of Avro. A sink writes by `schema`, which it registers for `subject` (by
    default `TOPIC-value`) before the job starts, or with `register=False` looks up; without a schema, by
    the newest of the subject.

    Raises ConfigurationError for what is no Avro schema.
    """

    words = "Avro"

    def __init__(
        self,
        registry: str | SchemaRegistry,
        schema: AvroSchema | None = None,
        *,
        subject: str | None = None,
        register: bool = True,
    ) -> None:
        super().__init__(registry, subject=subject, register=register)
        self._text = None if schema is None else _text(schema)
        self._schema = None if schema is None else _parsed(self._text, {})

    def _begin_writing(self, subject: str) -> bytes:
        if self._text is None:
            id, found = self._registry.latest(subject)
            self._schema = self._with_references(found)
        else:
            from confluent_kafka.schema_registry import Schema

            schema = Schema(self._text, "AVRO")
            id = self._registry.id_of(subject, schema, register=self._register)
        return head_of(id)

    def _reader(self) -> Callable[[bytes | None], Any]:
        from fastavro import schemaless_reader

        def read(value: bytes | None) -> Any:
            written_by = self._written_by(schema_id(value))
            stream = io.BytesIO(value)  # type: ignore[arg-type]
            stream.seek(HEAD_BYTES)
            record = schemaless_reader(stream, written_by, self._schema)
            if stream.read(1):
                raise ValueError("there are bytes behind the record")
            return record

        return read

    def _writer(self) -> Callable[[Any], bytes]:
        from fastavro import schemaless_writer

        def write(record: Any) -> bytes:
            stream = io.BytesIO()
            stream.write(self._head)
            schemaless_writer(stream, self._schema, record)
            return stream.getvalue()

        return write

    @property
    def _schema_in_words(self) -> str:
        return "the Avro schema"

    def _written_by(self, id: int) -> Any:
        if id not in self._known:
            found = self._registry.schema(id)
            if found is not None and (found.schema_type or "AVRO") != "AVRO":
                raise ValueError(f"schema {id} is of {found.schema_type}")
            self._known[id] = None if found is None else self._with_references(found)
        if self._known[id] is None:
            raise ValueError(f"{self._registry.name} has no schema {id}")
        return self._known[id]

    def _with_references(self, schema: Any) -> Any:
        named: dict[str, Any] = {}
        self._read_references(schema, named)
        return _parsed(schema.schema_str, named)

    def _read_references(self, schema: Any, named: dict[str, Any]) -> None:
        for reference in schema.references or ():
            if reference.name not in named:
                found = self._registry.referred(reference)
                if found is None:
                    raise ValueError(f"the registry lacks {reference.name!r}, which is referred to")
                self._read_references(found, named)
                _parsed(found.schema_str, named)


def _text(schema: AvroSchema) -> str:
    return schema if isinstance(schema, str) else json.dumps(schema)


def _parsed(text: str | None, named: dict[str, Any]) -> Any:
    try:
        from fastavro import parse_schema
    except ImportError as error:
        raise ConfigurationError(
            'Avro needs the extra "registry": pip install "minirt[registry]"'
        ) from error
    try:
        return parse_schema(json.loads(text or ""), named_schemas=named)
    except Exception as error:  # The parser raises whatever its parts do.
        raise ConfigurationError(f"this is no Avro schema ({error}): {text!r:.500}") from error
