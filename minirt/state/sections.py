"""Sections: the stored form of a table of keys.

A section is a head (what it holds, format version) of 8 bytes, and then its content. That of a table of
rows comes in chunks, so that packing needs little memory: for each the lengths of its two packed columns,
then the columns. That of changes are sections in turn, behind their lengths. That of columns is a stream
of Arrow IPC.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from minirt.data.codec import MalformedDataError, pack_values, unpack_values

CHUNK_ENTRIES = 16384

_HEAD = struct.Struct("<4sBxxx")
_LENGTHS = struct.Struct("<II")
_VERSION = 1


def pack_section(
    kind: bytes, left: Iterable[Any], right: Iterable[Any], *, allow_pickle: bool = False
) -> bytes:
    """Two columns of equal length as a section. Raises UnsupportedRecordError."""
    parts = [_HEAD.pack(kind, _VERSION)]
    left, right = iter(left), iter(right)
    while chunk := list(islice(left, CHUNK_ENTRIES)):
        first = pack_values(chunk, allow_pickle=allow_pickle)
        second = pack_values(list(islice(right, CHUNK_ENTRIES)), allow_pickle=allow_pickle)
        parts += (_LENGTHS.pack(len(first), len(second)), first, second)
    return b"".join(parts)


def unpack_section(
    kind: bytes, data: bytes | memoryview, *, allow_pickle: bool = False
) -> Iterator[tuple[list[Any], list[Any]]]:
    """The columns of a section, chunk by chunk. Raises MalformedDataError."""
    view = memoryview(data)
    position = _check_head(kind, view)
    while position < len(view):
        if position + _LENGTHS.size > len(view):
            raise MalformedDataError("a section of state is cut off")
        first, second = _LENGTHS.unpack_from(view, position)
        middle = position + _LENGTHS.size + first
        position = middle + second
        if position > len(view):
            raise MalformedDataError("a section of state is cut off")
        left = unpack_values(view[middle - first : middle], allow_pickle=allow_pickle)
        right = unpack_values(view[middle:position], allow_pickle=allow_pickle)
        if len(left) != len(right):
            raise MalformedDataError("the columns of a section of state differ in length")
        yield left, right


def kind_of(data: bytes | memoryview) -> bytes:
    """What a section says that it holds."""
    return bytes(data[:4])


def join_sections(kind: bytes, parts: Sequence[bytes]) -> bytes:
    """Sections as one, behind a head of its own."""
    lengths = struct.pack(f"<{len(parts)}I", *map(len, parts))
    return b"".join((_HEAD.pack(kind, _VERSION), lengths, *parts))


def split_sections(kind: bytes, count: int, data: bytes | memoryview) -> list[memoryview]:
    """The `count` sections that were joined. Raises MalformedDataError."""
    view = memoryview(data)
    position = _check_head(kind, view) + 4 * count
    if position > len(view):
        raise MalformedDataError("a section of state is cut off")
    parts = []
    for length in struct.unpack_from(f"<{count}I", view, _HEAD.size):
        parts.append(view[position : position + length])
        position += length
    if position != len(view):
        raise MalformedDataError("a section of state is cut off")
    return parts


def pack_columns(kind: bytes, batch: pa.RecordBatch) -> bytes:
    """A record batch as a section."""
    sink = pa.BufferOutputStream()
    sink.write(_HEAD.pack(kind, _VERSION))
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def unpack_columns(kind: bytes, data: bytes | memoryview) -> pa.RecordBatch:
    """The record batch of a section. Raises MalformedDataError."""
    view = memoryview(data)
    position = _check_head(kind, view)
    try:
        with pa.ipc.open_stream(pa.py_buffer(view[position:])) as reader:
            return reader.read_next_batch()
    except (pa.ArrowException, StopIteration, OSError) as error:
        raise MalformedDataError(f"a section of state is damaged: {error}") from error


def _check_head(kind: bytes, view: memoryview) -> int:
    """Where the content begins. Raises MalformedDataError."""
    if len(view) < _HEAD.size:
        raise MalformedDataError(f"{len(view)} bytes are too few for a section of state")
    found, version = _HEAD.unpack_from(view)
    if found != kind:
        raise MalformedDataError(f"a section of state holds {found!r}, not {kind!r}")
    if version != _VERSION:
        raise MalformedDataError(
            f"state of format version {version} cannot be read; this is version {_VERSION}"
        )
    return _HEAD.size
