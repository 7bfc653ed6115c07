"""Sections: the stored form of a table of keys, in chunks so that packing needs little memory.

A section is a head (what it holds, format version) and then, for every chunk, the length of each of
its two packed columns followed by the columns.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from minirt.data.codec import MalformedDataError, pack_values, unpack_values

CHUNK_ENTRIES = 16384

_HEAD = struct.Struct("<4sBxxx")
_LENGTHS = struct.Struct("<II")
_VERSION = 1


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
    holds: bytes, data: bytes | memoryview, *, allow_pickle: bool = False
) -> Iterator[tuple[list[Any], list[Any]]]:
    """The columns of a section, chunk by chunk. Raises MalformedDataError."""
    view = memoryview(data)
    if len(view) < _HEAD.size:
        raise MalformedDataError(f"{len(view)} bytes are too few for a section of state")
    found, version = _HEAD.unpack_from(view)
    if found != holds:
        raise MalformedDataError(f"a section of state holds {found!r}, not {holds!r}")
    if version != _VERSION:
        raise MalformedDataError(
            f"state of format version {version} cannot be read; this is version {_VERSION}"
        )
    position = _HEAD.size
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
