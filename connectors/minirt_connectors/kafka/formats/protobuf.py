"""Protobuf with a schema registry: messages as plain dicts."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any

from minirt.errors import ConfigurationError
from minirt_connectors.kafka.formats.registered import RegisteredFormat
from minirt_connectors.kafka.formats.registry import (
    HEAD_BYTES,
    SchemaRegistry,
    head_of,
    schema_id,
)

_WELL_KNOWN = ("google/protobuf/", "google/type/", "confluent/")
"""Files that every registry has."""


class ProtobufFormat(RegisteredFormat):
    """Values that are messages of the class `message`, behind the id of their schema in `registry`.

    `message` is a class that protoc has made, `registry` a URL or a `SchemaRegistry`. A record is a dict
    of all fields of the message: messages are dicts as well, or None where there is none, maps dicts,
    repeated fields lists, enums the names of their values. A sink takes dicts that leave fields out. It
    registers the schema of `message` for `subject` (by default `TOPIC-value`) before the job starts, or
    with `register=False` looks it up. A source takes values of this message in whatever version.

    Raises ConfigurationError for what is no class of messages.
    """

    words = "Protobuf"

    def __init__(
        self,
        registry: str | SchemaRegistry,
        message: Any,
        *,
        subject: str | None = None,
        register: bool = True,
    ) -> None:
        super().__init__(registry, subject=subject, register=register)
        self._message = _checked(message)

    def __getstate__(self) -> dict[str, Any]:
        """Classes of messages are pickled as what they were made from."""
        plain = {**vars(self), "_known": {}}
        descriptor = plain.pop("_message").DESCRIPTOR
        return {**plain, "_files": _files(descriptor.file), "_name": descriptor.full_name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        plain = dict(state)
        self._message = _made(plain.pop("_files"), plain.pop("_name"))
        vars(self).update(plain)

    def _begin_writing(self, subject: str) -> bytes:
        schema = self._schema_of(self._message.DESCRIPTOR.file)
        id = self._registry.id_of(subject, schema, register=self._register)
        return head_of(id) + _packed_path(_path(self._message.DESCRIPTOR))

    def _reader(self) -> Callable[[bytes | None], Any]:
        def read(value: bytes | None) -> Any:
            path, begin = _read_path(value or b"", HEAD_BYTES)
            self._check_name(schema_id(value), path)
            return _plain(self._message.FromString((value or b"")[begin:]))

        return read

    def _writer(self) -> Callable[[Any], bytes]:
        return lambda record: self._head + self._message(**record).SerializeToString()

    @property
    def _schema_in_words(self) -> str:
        return f"the message {self._message.DESCRIPTOR.full_name}"

    def _check_name(self, id: int, path: tuple[int, ...]) -> None:
        """A file may have several messages, and values say which one they are by its place."""
        if id not in self._known:
            self._known[id] = self._file(id)
        file = self._known[id]
        if file is None:
            raise ValueError(f"{self._registry.name} has no schema {id}")
        messages, names = file.message_type, [file.package] if file.package else []
        for index in path:
            if index >= len(messages):
                raise ValueError(f"schema {id} has no message {list(path)}")
            names.append(messages[index].name)
            messages = messages[index].nested_type
        wanted = self._message.DESCRIPTOR.full_name
        if (name := ".".join(names)) != wanted:
            raise ValueError(f"it is a {name}, not a {wanted}")

    def _file(self, id: int) -> Any:
        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        found = self._registry.schema(id, "serialized")
        if found is None:
            return None
        if found.schema_type != "PROTOBUF":
            raise ValueError(f"schema {id} is of {found.schema_type or 'AVRO'}")
        return FileDescriptorProto.FromString(base64.b64decode(found.schema_str))

    def _schema_of(self, file: Any) -> Any:
        """The schema of a file, behind those of the files that it imports, which are registered by name."""
        from confluent_kafka.schema_registry import Schema, SchemaReference

        references = []
        for imported in file.dependencies:
            if not imported.name.startswith(_WELL_KNOWN):
                schema = self._schema_of(imported)
                self._registry.id_of(imported.name, schema, register=self._register)
                version = self._registry.version_of(imported.name, schema)
                references.append(SchemaReference(imported.name, imported.name, version))
        return Schema(base64.b64encode(file.serialized_pb).decode(), "PROTOBUF", references)


def _checked(message: Any) -> Any:
    try:
        from google.protobuf.message import Message
    except ImportError as error:
        raise ConfigurationError(
            'Protobuf needs the extra "registry": pip install "minirt[registry]"'
        ) from error
    if not isinstance(message, type) or not issubclass(message, Message):
        raise ConfigurationError(f"message must be a class that protoc has made, got {message!r}")
    return message


def _plain(message: Any) -> dict[str, Any]:
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


def _field(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.is_repeated:
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            of = entry.fields_by_name["value"]
            return {key: _value(one, of) for key, one in value.items()}
        return [_value(one, field) for one in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _value(value, field)


def _value(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        return _plain(value)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return value if named is None else named.name
    return value


def _path(descriptor: Any) -> tuple[int, ...]:
    """The place of a message in its file: of the outermost one first."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto.FromString(descriptor.file.serialized_pb)
    messages, path = file.message_type, []
    for name in descriptor.full_name.removeprefix(f"{file.package}.").split("."):
        index = [message.name for message in messages].index(name)
        path.append(index)
        messages = messages[index].nested_type
    return tuple(path)


def _packed_path(path: tuple[int, ...]) -> bytes:
    """Zigzag varints behind their count; the first message of a file is a single zero."""
    if path == (0,):
        return b"\0"
    return b"".join(_varint(2 * number) for number in (len(path), *path))


def _read_path(value: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """The place of a message, and where the message begins."""
    count, at = _read_varint(value, at)
    path = []
    for _ in range(count):
        number, at = _read_varint(value, at)
        path.append(number)
    return tuple(path) or (0,), at


def _varint(number: int) -> bytes:
    packed = bytearray()
    while number > 0x7F:
        packed.append(number & 0x7F | 0x80)
        number >>= 7
    packed.append(number)
    return bytes(packed)


def _read_varint(value: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(value) and shift < 35:
        byte = value[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            if number & 1:
                raise ValueError("a place of a message is below zero")
            return number >> 1, at
    raise ValueError("it ends within the place of its message")


def _files(file: Any) -> list[bytes]:
    """A file behind all that it imports."""
    found: dict[str, bytes] = {}

    def add(one: Any) -> None:
        for imported in one.dependencies:
            add(imported)
        found.setdefault(one.name, one.serialized_pb)

    add(file)
    return list(found.values())


def _made(files: Sequence[bytes], name: str) -> Any:
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    pool = DescriptorPool()
    for file in files:
        pool.AddSerializedFile(file)
    return GetMessageClass(pool.FindMessageTypeByName(name))
