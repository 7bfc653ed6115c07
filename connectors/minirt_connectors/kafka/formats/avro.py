"""Avro with a schema registry: records as the dicts of fastavro."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

from minirt.data.batch import Batch
from minirt.errors import ConfigurationError, MinirtError, SinkDataError
from minirt_connectors.kafka.formats.base import Format, Undecodable
from minirt_connectors.kafka.formats.registry import (
    HEAD_BYTES,
    SchemaRegistry,
    head_of,
    registry_of,
    schema_id,
    starting,
)

AvroSchema = str | Mapping[str, Any] | Sequence[Any]


class AvroFormat(Format):
    """Values in Avro, behind the id of their schema in `registry`, a URL or a `SchemaRegistry`.

    A source reads each value by the schema that it was written with, and gives it the fields of `schema`
    if there is one, by the rules of Avro. A sink writes by `schema`, which it registers for `subject` (by
    default `TOPIC-value`) before the job starts, or with `register=False` looks up; without a schema, by
    the newest of the subject.

    Raises ConfigurationError for what is no Avro schema.
    """

    binary = True

    def __init__(
        self,
        registry: str | SchemaRegistry,
        schema: AvroSchema | None = None,
        *,
        subject: str | None = None,
        register: bool = True,
    ) -> None:
        self._registry = registry_of(registry)
        self._text = None if schema is None else _text(schema)
        self._schema = None if schema is None else _parsed(self._text, {})
        self._subject = subject
        self._register = register
        self._head = b""
        self._known: dict[int, Any] = {}
        """Schemas of values, by id; None for an id that the registry does not have."""

    def for_topic(self, topic: str, *, writing: bool) -> Format:
        self._registry.check()
        if not writing:
            if self._subject is not None or not self._register:
                raise ConfigurationError("subject and register have no effect on a source")
            return self
        ready = copy(self)
        subject = self._subject or f"{topic}-value"
        with starting():
            if self._text is None:
                id, found = self._registry.latest(subject)
                ready._schema = self._with_references(found)
            else:
                from confluent_kafka.schema_registry import Schema

                schema = Schema(self._text, "AVRO")
                id = self._registry.id_of(subject, schema, register=self._register)
        ready._head = head_of(id)
        return ready

    def decode(self, values: Sequence[bytes | None]) -> list[Any]:
        from fastavro import schemaless_reader

        good: list[Any] = []
        bad: list[tuple[int, str]] = []
        for place, value in enumerate(values):
            try:
                writer = self._writer(schema_id(value))
                stream = io.BytesIO(value)  # type: ignore[arg-type]
                stream.seek(HEAD_BYTES)
                record = schemaless_reader(stream, writer, self._schema)
                if stream.read(1):
                    raise ValueError("there are bytes behind the record")
                good.append(record)
            except MinirtError:
                raise
            except Exception as error:  # The reader raises whatever its parts do.
                bad.append((place, f"not valid Avro ({type(error).__name__}: {error})"))
        if bad:
            raise Undecodable(good, bad)
        return good

    def encode(self, batch: Batch, operator: str) -> list[bytes]:
        from fastavro import schemaless_writer

        values: list[bytes] = []
        for record in batch.rows().records:
            stream = io.BytesIO()
            stream.write(self._head)
            try:
                schemaless_writer(stream, self._schema, record)
            except Exception as error:  # The writer raises whatever its parts do.
                raise SinkDataError(
                    f"{operator}: a record does not fit the Avro schema "
                    f"({type(error).__name__}: {error}): {record!r:.500}"
                ) from error
            values.append(stream.getvalue())
        return values

    def _writer(self, id: int) -> Any:
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
