"""The frame around everything that minirt stores: named sections, each with length and checksum.

    magic (8 bytes)  version (1)  index length (4)  index checksum (4)  index  section  section ...

Numbers are little-endian, checksums CRC-32, the index is msgpack: a list of [name, length, checksum,
entries], one a section, in their order in the file. `entries` is how many keys, timers or splits the
section holds, so that a part can be described without reading it; nil where nobody counted. Version 1
has no entries. Reading runs no code, whoever wrote the file.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from minirt.data.errors import MalformedDataError
from minirt.data.plain import pack_plain, unpack_plain
from minirt.errors import CorruptCheckpointError

PART_VERSION = 2

_FIELDS = {1: 3, 2: 4}
"""How many values the index has for each section, by version."""

_MAGIC = b"\x93minirt\n"
_HEADER = struct.Struct("<8sBII")
_INDEX_BYTES_MAX = 1 << 26

ReadRange = Callable[[int, int], bytes]
"""Gives the bytes from a position on, as many as wanted or as there are."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section as the index describes it: `start` is its position in the part, `length` in bytes."""

    name: str
    start: int
    length: int
    checksum: int
    entries: int | None

    @property
    def end(self) -> int:
        return self.start + self.length


@dataclass(frozen=True, slots=True)
class PartIndex:
    """The index at the start of a part. `checksum` differs where any section differs."""

    checksum: int
    sections: tuple[Section, ...]
    bytes: int
    """The size of the whole part."""


def encode_part(
    sections: Mapping[str, bytes], entries: Mapping[str, int | None] | None = None
) -> list[bytes]:
    """The sections as chunks to be written one after the other; the sections are not copied."""
    head, _ = part_head({name: (section,) for name, section in sections.items()}, entries)
    return [head, *sections.values()]


def part_head(
    sections: Mapping[str, Iterable[bytes]], entries: Mapping[str, int | None] | None = None
) -> tuple[bytes, int]:
    """The bytes before the sections, which are given in chunks, and the size of the whole part."""
    rows, total = [], 0
    for name, chunks in sections.items():
        size = checksum = 0
        for chunk in chunks:
            size += len(chunk)
            checksum = zlib.crc32(chunk, checksum)
        rows.append([name, size, checksum, (entries or {}).get(name)])
        total += size
    index = pack_plain(rows)
    head = _HEADER.pack(_MAGIC, PART_VERSION, len(index), _checksum(PART_VERSION, index)) + index
    return head, len(head) + total


def decode_part(data: bytes, path: str) -> dict[str, bytes]:
    """The sections of a stored part. Raises CorruptCheckpointError that says what is wrong with `path`."""
    index, sections = _part_at(data, 0, path)
    check_end(index, len(data), path)
    return sections


def check_parts(data: bytes, path: str) -> None:
    """Raise CorruptCheckpointError unless the file holds one part, or several one after the other."""
    start = 0
    while start < len(data) or start == 0:
        index, _ = _part_at(data, start, path)
        start += index.bytes


def _part_at(data: bytes, start: int, path: str) -> tuple[PartIndex, dict[str, bytes]]:
    """The part that begins there, with its sections, whose checksums are verified."""

    def cut(first: int, end: int) -> bytes:
        return data[start + first : start + end]

    index = read_index(lambda first, length: cut(first, first + length), path)
    sections: dict[str, bytes] = {}
    for entry in index.sections:
        section = sections[entry.name] = cut(entry.start, entry.end)
        check_section(entry, len(section), zlib.crc32(section), path)
    return index, sections


def check_section(section: Section, length: int, checksum: int, path: str) -> None:
    """Raise CorruptCheckpointError unless what was read of the section is what was written."""
    if length < section.length:
        raise CorruptCheckpointError(
            f"section {section.name!r} is cut short, {length} of {section.length} bytes are left",
            path,
        )
    if checksum != section.checksum:
        raise CorruptCheckpointError(f"section {section.name!r} fails its checksum", path)


def check_end(index: PartIndex, size: int, path: str) -> None:
    """Raise CorruptCheckpointError if the part, of `size` bytes, goes on behind its last section."""
    if size > index.bytes:
        raise CorruptCheckpointError(f"{size - index.bytes} bytes follow the last section", path)


def part_checksum(data: bytes) -> int:
    """The checksum of the index: it differs where any section differs. `data` starts a valid part."""
    _, _, _, checksum = _HEADER.unpack_from(data)
    return int(checksum)


def read_index(read: ReadRange, path: str) -> PartIndex:
    """The index of a part, of which nothing else is read. Raises CorruptCheckpointError."""
    header = read(0, _HEADER.size)
    if len(header) < _HEADER.size:
        raise CorruptCheckpointError(f"the header is cut short, {len(header)} bytes are left", path)
    magic, version, length, checksum = _HEADER.unpack(header)
    if magic != _MAGIC:
        raise CorruptCheckpointError("not a file of minirt, it starts with other bytes", path)
    packed = read(_HEADER.size, min(length, _INDEX_BYTES_MAX))
    if len(packed) < length:
        raise CorruptCheckpointError("the index of its sections is cut short", path)
    # The checksum covers the version too: a damaged version is not taken for a future one.
    if _checksum(version, packed) != checksum:
        raise CorruptCheckpointError("the index of its sections fails its checksum", path)
    if version not in _FIELDS:
        raise CorruptCheckpointError(
            f"format version {version}, this minirt reads up to version {PART_VERSION};"
            " use the version of minirt that wrote it, or a later one",
            path,
        )
    sections = _sections(packed, _FIELDS[version], _HEADER.size + length, path)
    return PartIndex(checksum, sections, sections[-1].end if sections else _HEADER.size + length)


def _sections(packed: bytes, fields: int, start: int, path: str) -> tuple[Section, ...]:
    try:
        index: Any = unpack_plain(packed)
        rows = [(*row, None)[:4] for row in index if len(row) == fields]
    except (MalformedDataError, TypeError) as error:
        raise CorruptCheckpointError(
            f"the index of its sections is malformed ({error})", path
        ) from error
    names = {name for name, *_ in rows if isinstance(name, str)}
    complete = isinstance(index, list) and len(names) == len(rows) == len(index)
    if not complete or not all(map(_is_valid, rows)):
        raise CorruptCheckpointError("the index of its sections is malformed", path)
    sections = []
    for name, length, checksum, entries in rows:
        sections.append(Section(name, start, length, checksum, entries))
        start += length
    return tuple(sections)


def _is_valid(row: tuple[Any, ...]) -> bool:
    _, length, checksum, entries = row
    numbers = [length, checksum] if entries is None else [length, checksum, entries]
    return all(type(number) is int and number >= 0 for number in numbers)


def _checksum(version: int, index: bytes) -> int:
    return zlib.crc32(index, zlib.crc32(bytes([version])))
