"""The frame around everything that minirt stores: named sections, each with length and checksum.

    magic (8 bytes)  version (1)  index length (4)  index checksum (4)  index  section  section ...

Numbers are little-endian, checksums CRC-32, the index is msgpack: a list of [name, length, checksum], one
a section, in their order in the file. Reading runs no code, whoever wrote the file.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgpack

from minirt.errors import CorruptCheckpointError

PART_VERSION = 1

_MAGIC = b"\x93minirt\n"
_HEADER = struct.Struct("<8sBII")


def encode_part(sections: Mapping[str, bytes]) -> list[bytes]:
    """The sections as chunks to be written one after the other; the sections are not copied."""
    head, _ = part_head({name: (section,) for name, section in sections.items()})
    return [head, *sections.values()]


def part_head(sections: Mapping[str, Iterable[bytes]]) -> tuple[bytes, int]:
    """What comes before the sections, each given in chunks; and the size of the whole part."""
    entries = []
    for name, chunks in sections.items():
        size = checksum = 0
        for chunk in chunks:
            size += len(chunk)
            checksum = zlib.crc32(chunk, checksum)
        entries.append((name, size, checksum))
    index = msgpack.packb(entries)
    head = _HEADER.pack(_MAGIC, PART_VERSION, len(index), _checksum(PART_VERSION, index)) + index
    return head, len(head) + sum(size for _, size, _ in entries)


def decode_part(data: bytes, path: str) -> dict[str, bytes]:
    """The sections of a stored part. Raises CorruptCheckpointError that says what is wrong with `path`."""
    index, start = _read_index(data, path)
    sections: dict[str, bytes] = {}
    for name, length, checksum in index:
        section = data[start : start + length]
        if len(section) < length:
            raise CorruptCheckpointError(
                f"section {name!r} is cut short, {len(section)} of {length} bytes are left", path
            )
        if zlib.crc32(section) != checksum:
            raise CorruptCheckpointError(f"section {name!r} fails its checksum", path)
        sections[name] = section
        start += length
    if start != len(data):
        raise CorruptCheckpointError(f"{len(data) - start} bytes follow the last section", path)
    return sections


def part_checksum(data: bytes) -> int:
    """The checksum of the index: it differs where any section differs. `data` starts a valid part."""
    _, _, _, checksum = _HEADER.unpack_from(data)
    return int(checksum)


def _read_index(data: bytes, path: str) -> tuple[list[tuple[str, int, int]], int]:
    """The index, and where the first section starts."""
    if len(data) < _HEADER.size:
        raise CorruptCheckpointError(f"the header is cut short, {len(data)} bytes are left", path)
    magic, version, length, checksum = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise CorruptCheckpointError("not a file of minirt, it starts with other bytes", path)
    packed = data[_HEADER.size : _HEADER.size + length]
    if len(packed) < length:
        raise CorruptCheckpointError("the index of its sections is cut short", path)
    # The checksum covers the version too: a damaged version is not taken for a future one.
    if _checksum(version, packed) != checksum:
        raise CorruptCheckpointError("the index of its sections fails its checksum", path)
    if version != PART_VERSION:
        raise CorruptCheckpointError(
            f"format version {version}, this minirt reads version {PART_VERSION};"
            " use the version of minirt that wrote it, or a later one",
            path,
        )
    return _checked_index(packed, path), _HEADER.size + length


def _checked_index(packed: bytes, path: str) -> list[tuple[str, int, int]]:
    try:
        index: Any = msgpack.unpackb(packed)
        entries = [(name, length, checksum) for name, length, checksum in index]
    except (ValueError, TypeError) as error:
        raise CorruptCheckpointError(
            f"the index of its sections is malformed ({error})", path
        ) from error
    names = {name for name, _, _ in entries if isinstance(name, str)}
    numbers = [number for _, length, checksum in entries for number in (length, checksum)]
    if len(names) < len(entries) or not all(type(n) is int and n >= 0 for n in numbers):
        raise CorruptCheckpointError("the index of its sections is malformed", path)
    return entries


def _checksum(version: int, index: bytes) -> int:
    return zlib.crc32(index, zlib.crc32(bytes([version])))
