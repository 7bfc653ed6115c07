"""The stored form of what has changed in a table of keys: which keys are gone, and which have which values.

Behind its head come the lengths of its parts: the number of keys that the whole table has, the keys that
are gone as a table of rows, and the others with their values as another.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from minirt.data.errors import MalformedDataError
from minirt.state.sections import (
    ByteStream,
    join_sections,
    pack_section,
    read_lengths,
    split_sections,
    unpack_section,
)

KEYED_CHANGES = b"KEYC"

_GONE = b"GONE"
_TOTAL = struct.Struct("<Q")
_PARTS = 3


def pack_changes(total: int, gone: Sequence[Any], present: bytes) -> bytes:
    """Changes as a section; `present` is one already."""
    packed = pack_section(_GONE, gone, [None] * len(gone))
    return join_sections(KEYED_CHANGES, [_TOTAL.pack(total), packed, present])


def unpack_changes(section: bytes) -> tuple[list[Any], bytes]:
    """The keys that are gone, and the section of the others. Raises MalformedDataError."""
    _, gone, present = split_sections(KEYED_CHANGES, _PARTS, section)
    return _keys(gone), present


def total_of(section: bytes) -> int:
    """How many keys the whole table had when this was stored. Raises MalformedDataError."""
    packed, _, _ = split_sections(KEYED_CHANGES, _PARTS, section)
    return _number(packed)


def read_gone(stream: ByteStream, version: int) -> list[Any]:
    """The keys that are gone, read from behind the head; what follows is the section of the others."""
    total, gone, _ = read_lengths(_PARTS, stream, version)
    _number(stream.read(total))
    return _keys(stream.read(gone))


def _number(packed: bytes) -> int:
    if len(packed) != _TOTAL.size:
        raise MalformedDataError("a section of state is cut off")
    (total,) = _TOTAL.unpack(packed)
    return int(total)


def _keys(gone: bytes) -> list[Any]:
    return [key for keys, _ in unpack_section(_GONE, gone) for key in keys]
