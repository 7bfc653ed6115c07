"""Sections: the stored form of a table of keys.

A section is a head (what it holds, format version) of 8 bytes, and then its content. That of a table of
rows comes in chunks, so that packing needs little memory: for each the lengths of its two packed columns,
then the columns. That of changes are sections in turn, behind their lengths. That of columns is a stream
of Arrow IPC. Lengths have 64 bits; in version 1, which is still read, they have 32.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Protocol

import pyarrow as pa

from minirt.data.codec import count_values, pack_values, unpack_values
from minirt.data.errors import MalformedDataError

CHUNK_ENTRIES = 16384

_HEAD = struct.Struct("<4sBxxx")
HEAD_BYTES = _HEAD.size
_VERSION = 3
"""From 3 on, stretches of state in dicts are sections of their own."""
_LENGTHS = {1: "I", 2: "Q", 3: "Q"}
"""The form of a length, by version."""


Section = bytes | Callable[[], bytes]
"""Bytes to be stored, or a function that makes them; the thread that stores them calls it once."""


def section_bytes(section: Section) -> bytes:
    """The bytes to be stored. Raises what the function raises that makes them."""
    return section() if callable(section) else section


class ByteStream(Protocol):
    """A stream from which a section is read, front to end."""

    def read(self, size: int, /) -> bytes:
        """The next `size` bytes; fewer only at the end."""


def pack_section(
    kind: bytes, left: Iterable[Any], right: Iterable[Any], *, allow_pickle: bool = False
) -> bytes:
    """Two columns of equal length as a section. Raises UnsupportedRecordError."""
    left, right = iter(left), iter(right)
    chunks = []
    while chunk := list(islice(left, CHUNK_ENTRIES)):
        others = list(islice(right, CHUNK_ENTRIES))
        chunks.append(pack_chunk(chunk, others, allow_pickle=allow_pickle))
    return join_chunks(kind, chunks)


def pack_chunk(left: Sequence[Any], right: Sequence[Any], *, allow_pickle: bool = False) -> bytes:
    """A chunk of a table of rows, of at most CHUNK_ENTRIES. Raises UnsupportedRecordError."""
    first = pack_values(list(left), allow_pickle=allow_pickle)
    second = pack_values(list(right), allow_pickle=allow_pickle)
    return b"".join((_pack_lengths([first, second]), first, second))


def join_chunks(kind: bytes, chunks: Iterable[bytes]) -> bytes:
    """Chunks as the section of a table of rows."""
    return b"".join((_HEAD.pack(kind, _VERSION), *chunks))


def unpack_section(
    kind: bytes, data: bytes | memoryview, *, allow_pickle: bool = False
) -> Iterator[tuple[list[Any], list[Any]]]:
    """The columns of a section, chunk by chunk. Raises MalformedDataError."""
    return read_section(kind, io.BytesIO(data), allow_pickle=allow_pickle)


def read_section(
    kind: bytes, stream: ByteStream, *, allow_pickle: bool = False, opaque_pickles: bool = False
) -> Iterator[tuple[list[Any], list[Any]]]:
    """As `unpack_section`, holding no more than one chunk in memory."""
    version = check_head(kind, stream.read(HEAD_BYTES))
    return read_chunks(stream, version, allow_pickle=allow_pickle, opaque_pickles=opaque_pickles)


def read_chunks(
    stream: ByteStream, version: int, *, allow_pickle: bool = False, opaque_pickles: bool = False
) -> Iterator[tuple[list[Any], list[Any]]]:
    """The bytes that follow the head of a table of rows, in this version."""
    for first, second in _chunks(stream, version):
        left, right = (
            unpack_values(column, allow_pickle=allow_pickle, opaque_pickles=opaque_pickles)
            for column in (first, second)
        )
        if len(left) != len(right):
            raise MalformedDataError("the columns of a section of state differ in length")
        yield left, right


def count_entries(kind: bytes, data: bytes | memoryview) -> int:
    """How many entries a section has, without unpacking it. Raises MalformedDataError."""
    stream = io.BytesIO(data)
    version = check_head(kind, stream.read(HEAD_BYTES))
    return sum(count_values(first) for first, _ in _chunks(stream, version))


def _chunks(stream: ByteStream, version: int) -> Iterator[tuple[bytes, bytes]]:
    """The two packed columns of each chunk."""
    form = struct.Struct(f"<2{_LENGTHS[version]}")
    while lengths := stream.read(form.size):
        if len(lengths) < form.size:
            raise MalformedDataError("a section of state is cut off")
        first, second = form.unpack(lengths)
        columns = stream.read(first), stream.read(second)
        if (len(columns[0]), len(columns[1])) != (first, second):
            raise MalformedDataError("a section of state is cut off")
        if count_values(columns[0]) > CHUNK_ENTRIES:
            raise MalformedDataError(f"a chunk of state has more than {CHUNK_ENTRIES} entries")
        yield columns


def kind_of(data: bytes | memoryview) -> bytes:
    """The kind of content that the head of a section names."""
    return bytes(data[:4])


def check_head(kind: bytes, head: bytes) -> int:
    """Its version. Raises MalformedDataError unless a section of this kind begins like that."""
    if len(head) < HEAD_BYTES:
        raise MalformedDataError(f"{len(head)} bytes are too few for a section of state")
    found, version = _HEAD.unpack(head)
    if found != kind:
        raise MalformedDataError(f"a section of state holds {found!r}, not {kind!r}")
    if version not in _LENGTHS:
        raise MalformedDataError(
            f"state of format version {version} cannot be read; this is version {_VERSION}"
        )
    return int(version)


def join_sections(kind: bytes, parts: Sequence[bytes]) -> bytes:
    """Sections as one, behind a head of its own."""
    return b"".join((_HEAD.pack(kind, _VERSION), _pack_lengths(parts), *parts))


def _pack_lengths(parts: Sequence[bytes]) -> bytes:
    return struct.pack(f"<{len(parts)}{_LENGTHS[_VERSION]}", *map(len, parts))


def split_sections(kind: bytes, count: int, data: bytes | memoryview) -> list[bytes]:
    """The `count` sections that were joined. Raises MalformedDataError."""
    stream = io.BytesIO(data)
    wanted = read_lengths(count, stream, check_head(kind, stream.read(HEAD_BYTES)))
    parts = [stream.read(length) for length in wanted]
    if sum(map(len, parts)) != sum(wanted) or stream.read(1):
        raise MalformedDataError("a section of state is cut off")
    return parts


def read_lengths(count: int, stream: ByteStream, version: int) -> tuple[int, ...]:
    """The lengths of sections that were joined, read from behind a head of this version.

    Raises MalformedDataError.
    """
    form = struct.Struct(f"<{count}{_LENGTHS[version]}")
    lengths = stream.read(form.size)
    if len(lengths) < form.size:
        raise MalformedDataError("a section of state is cut off")
    return form.unpack(lengths)


def pack_columns(
    kind: bytes, batches: Iterable[pa.RecordBatch], metadata: Mapping[bytes, str]
) -> bytes:
    """Record batches of one schema, at least one, as a section with something stored beside them."""
    batches = iter(batches)
    first = next(batches)
    # A BytesIO grows and gives up its content without a copy, which would hold up all other threads.
    sink = io.BytesIO()
    sink.write(_HEAD.pack(kind, _VERSION))
    with pa.ipc.new_stream(sink, first.schema.with_metadata(metadata)) as writer:
        for batch in chain((first,), batches):
            writer.write_batch(batch)
    return sink.getvalue()


def unpack_columns(kind: bytes, data: bytes | memoryview) -> list[pa.RecordBatch]:
    """The records of a section, in batches: as one, their texts might be more than Arrow takes.

    There is at least one batch. Raises MalformedDataError.
    """
    view = memoryview(data)
    check_head(kind, bytes(view[:HEAD_BYTES]))
    try:
        with pa.ipc.open_stream(pa.py_buffer(view[HEAD_BYTES:])) as reader:
            batches = list(reader)
        for batch in batches:
            batch.validate(full=True)
    except (pa.ArrowException, ValueError, OSError) as error:
        raise MalformedDataError(f"a section of state is damaged: {error}") from error
    if not batches:
        raise MalformedDataError("a section of state holds no records")
    return batches


def metadata_of_columns(kind: bytes, data: bytes | memoryview) -> dict[bytes, bytes]:
    """What is stored beside the columns of a section. Raises MalformedDataError."""
    view = memoryview(data)
    check_head(kind, bytes(view[:HEAD_BYTES]))
    try:
        with pa.ipc.open_stream(pa.py_buffer(view[HEAD_BYTES:])) as reader:
            return dict(reader.schema.metadata or {})
    except (pa.ArrowException, OSError) as error:
        raise MalformedDataError(f"a section of state is damaged: {error}") from error
