"""Sections: the stored form of a table of keys, in chunks so that packing needs little memory.

A section is a head (what it holds, format version) and then, for every chunk, the length of each of
its two packed columns followed by the columns.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Protocol

from minirt.data.codec import MalformedDataError, count_values, pack_values, unpack_values

CHUNK_ENTRIES = 16384

_HEAD = struct.Struct("<4sBxxx")
_LENGTHS = struct.Struct("<II")
_VERSION = 1


class ByteStream(Protocol):
    """Where a section is read from, front to end."""

    def read(self, size: int, /) -> bytes:
        """The next `size` bytes; fewer only at the end."""


def pack_section(
    holds: bytes, left: Iterable[Any], right: Iterable[Any], *, allow_pickle: bool = False
) -> bytes:
    """Two columns of equal length as a section. Raises UnsupportedRecordError."""
    parts = [_HEAD.pack(holds, _VERSION)]
    left, right = iter(left), iter(right)
    while chunk := list(islice(left, CHUNK_ENTRIES)):
        first = pack_values(chunk, allow_pickle=allow_pickle)
        second = pack_values(list(islice(right, CHUNK_ENTRIES)), allow_pickle=allow_pickle)
        parts += (_LENGTHS.pack(len(first), len(second)), first, second)
    return b"".join(parts)


def unpack_section(
    holds: bytes, data: bytes, *, allow_pickle: bool = False
) -> Iterator[tuple[list[Any], list[Any]]]:
    """The columns of a section, chunk by chunk. Raises MalformedDataError."""
    return read_section(holds, io.BytesIO(data), allow_pickle=allow_pickle)


def read_section(
    holds: bytes, stream: ByteStream, *, allow_pickle: bool = False, opaque_pickles: bool = False
) -> Iterator[tuple[list[Any], list[Any]]]:
    """As `unpack_section`, holding no more than one chunk in memory."""
    for first, second in _chunks(holds, stream):
        left, right = (
            unpack_values(column, allow_pickle=allow_pickle, opaque_pickles=opaque_pickles)
            for column in (first, second)
        )
        if len(left) != len(right):
            raise MalformedDataError("the columns of a section of state differ in length")
        yield left, right


def count_entries(holds: bytes, data: bytes) -> int:
    """How many entries a section has, without unpacking it. Raises MalformedDataError."""
    return sum(count_values(first) for first, _ in _chunks(holds, io.BytesIO(data)))


def _chunks(holds: bytes, stream: ByteStream) -> Iterator[tuple[bytes, bytes]]:
    """The two packed columns of each chunk."""
    head = stream.read(_HEAD.size)
    if len(head) < _HEAD.size:
        raise MalformedDataError(f"{len(head)} bytes are too few for a section of state")
    found, version = _HEAD.unpack(head)
    if found != holds:
        raise MalformedDataError(f"a section of state holds {found!r}, not {holds!r}")
    if version != _VERSION:
        raise MalformedDataError(
            f"state of format version {version} cannot be read; this is version {_VERSION}"
        )
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
