"""Sections: the stored form of a table of keys.

A section is a head (what it holds, format version) of 8 bytes, and then its content. That of a table of
rows comes in chunks, so that packing needs little memory: for each the lengths of its two packed columns,
then the columns. That of changes are sections in turn, behind their lengths. That of columns is a stream
of Arrow IPC.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Protocol

import pyarrow as pa

from minirt.data.codec import MalformedDataError, count_values, pack_values, unpack_values

CHUNK_ENTRIES = 16384

_HEAD = struct.Struct("<4sBxxx")
HEAD_BYTES = _HEAD.size
_LENGTHS = struct.Struct("<II")
_VERSION = 1


Section = bytes | Callable[[], bytes]
"""What is to be stored, or what makes it: that is called once, by the thread that stores it."""


def section_bytes(section: Section) -> bytes:
    """What is to be stored. Raises what making it raises."""
    return section() if callable(section) else section


class ByteStream(Protocol):
    """Where a section is read from, front to end."""

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
    return b"".join((_LENGTHS.pack(len(first), len(second)), first, second))


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
    check_head(kind, stream.read(HEAD_BYTES))
    return read_chunks(stream, allow_pickle=allow_pickle, opaque_pickles=opaque_pickles)


def read_chunks(
    stream: ByteStream, *, allow_pickle: bool = False, opaque_pickles: bool = False
) -> Iterator[tuple[list[Any], list[Any]]]:
    """What follows the head of a table of rows."""
    for first, second in _chunks(stream):
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
    check_head(kind, stream.read(HEAD_BYTES))
    return sum(count_values(first) for first, _ in _chunks(stream))


def _chunks(stream: ByteStream) -> Iterator[tuple[bytes, bytes]]:
    """The two packed columns of each chunk."""
    while lengths := stream.read(_LENGTHS.size):
        if len(lengths) < _LENGTHS.size:
            raise MalformedDataError("a section of state is cut off")
        first, second = _LENGTHS.unpack(lengths)
        columns = stream.read(first), stream.read(second)
        if (len(columns[0]), len(columns[1])) != (first, second):
            raise MalformedDataError("a section of state is cut off")
        if count_values(columns[0]) > CHUNK_ENTRIES:
            raise MalformedDataError(f"a chunk of state has more than {CHUNK_ENTRIES} entries")
        yield columns


def kind_of(data: bytes | memoryview) -> bytes:
    """What a section says that it holds."""
    return bytes(data[:4])


def check_head(kind: bytes, head: bytes) -> None:
    """Raise MalformedDataError unless a section of this kind begins like that."""
    if len(head) < HEAD_BYTES:
        raise MalformedDataError(f"{len(head)} bytes are too few for a section of state")
    found, version = _HEAD.unpack(head)
    if found != kind:
        raise MalformedDataError(f"a section of state holds {found!r}, not {kind!r}")
    if version != _VERSION:
        raise MalformedDataError(
            f"state of format version {version} cannot be read; this is version {_VERSION}"
        )


def join_sections(kind: bytes, parts: Sequence[bytes]) -> bytes:
    """Sections as one, behind a head of its own."""
    lengths = struct.pack(f"<{len(parts)}I", *map(len, parts))
    return b"".join((_HEAD.pack(kind, _VERSION), lengths, *parts))


def split_sections(kind: bytes, count: int, data: bytes | memoryview) -> list[bytes]:
    """The `count` sections that were joined. Raises MalformedDataError."""
    stream = io.BytesIO(data)
    check_head(kind, stream.read(HEAD_BYTES))
    wanted = read_lengths(count, stream)
    parts = [stream.read(length) for length in wanted]
    if sum(map(len, parts)) != sum(wanted) or stream.read(1):
        raise MalformedDataError("a section of state is cut off")
    return parts


def read_lengths(count: int, stream: ByteStream) -> tuple[int, ...]:
    """The lengths of sections that were joined, read from behind the head. Raises MalformedDataError."""
    lengths = stream.read(4 * count)
    if len(lengths) < 4 * count:
        raise MalformedDataError("a section of state is cut off")
    return struct.unpack(f"<{count}I", lengths)


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


def unpack_columns(kind: bytes, data: bytes | memoryview) -> pa.RecordBatch:
    """The records of a section as one batch. Raises MalformedDataError."""
    view = memoryview(data)
    check_head(kind, bytes(view[:HEAD_BYTES]))
    try:
        with pa.ipc.open_stream(pa.py_buffer(view[HEAD_BYTES:])) as reader:
            batches = list(reader)
        batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        batch.validate(full=True)
    except (pa.ArrowException, ValueError, OSError) as error:
        raise MalformedDataError(f"a section of state is damaged: {error}") from error
    return batch


def metadata_of_columns(kind: bytes, data: bytes | memoryview) -> dict[bytes, bytes]:
    """What is stored beside the columns of a section. Raises MalformedDataError."""
    view = memoryview(data)
    check_head(kind, bytes(view[:HEAD_BYTES]))
    try:
        with pa.ipc.open_stream(pa.py_buffer(view[HEAD_BYTES:])) as reader:
            return dict(reader.schema.metadata or {})
    except (pa.ArrowException, OSError) as error:
        raise MalformedDataError(f"a section of state is damaged: {error}") from error
