"""Reads stored parts in ranges: only the bytes that somebody looks at, whatever the part's size."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cached_property, partial

from minirt.errors import CorruptCheckpointError
from minirt.protocol.checkpoint_paths import CheckpointPaths
from minirt.protocol.manifest import ManifestKey, SnapshotRef
from minirt.protocol.part_paths import file_of
from minirt.storage.part_files import read_range_of_part, size_left
from minirt.storage.parts import (
    PartIndex,
    ReadRange,
    Section,
    check_end,
    check_section,
    read_index,
)
from minirt.storage.store import ObjectStore

RANGE_BYTES = 4 * 1024 * 1024
"""How much is read at a time, so that remote storage is not asked for every few bytes."""

_FIRST_BYTES = 64 * 1024


class PartReader:
    """One stored part.

    Its methods raise CorruptCheckpointError, with the path, for what is missing or damaged; StorageError
    where storage fails.
    """

    def __init__(
        self, read: ReadRange, size: Callable[[], int], path: str, ref: SnapshotRef | None = None
    ) -> None:
        self._read = read
        self._size = size
        self.path = path
        """The path as messages show it."""
        self._ref = ref
        """The manifest's entry for it, if there is one: another part in its place counts as damage."""

    @cached_property
    def index(self) -> PartIndex:
        """The sections of the part, by its own index."""
        first = self._read(0, _FIRST_BYTES)

        def read(start: int, length: int) -> bytes:
            end = start + length
            return first[start:end] if end <= len(first) else self._read(start, length)

        index = read_index(read, self.path)
        ref = self._ref
        if ref is not None and (ref.bytes, ref.crc) != (index.bytes, index.checksum):
            raise CorruptCheckpointError("not the part that the manifest refers to", self.path)
        return index

    def section(self, section: Section) -> SectionStream:
        """The content of a section of the index, from its beginning."""
        return SectionStream(self._read, section, self.path)

    def verify(self, on_bytes: Callable[[int], None]) -> None:
        """Read everything and compare all checksums; `on_bytes` hears how much was read."""
        check_end(self.index, self._size(), self.path)
        for section in self.index.sections:
            stream = self.section(section)
            while data := stream.read(RANGE_BYTES):
                on_bytes(len(data))


def stored_file(store: ObjectStore, path: str, ref: SnapshotRef | None = None) -> PartReader:
    """The part at `path` of the store, and what a manifest says of it."""
    return PartReader(
        partial(read_range_of_part, store, path),
        lambda: size_left(path, store.size(file_of(path))),
        store.full_path(path),
        ref,
    )


def referred_part(store: ObjectStore, ref: SnapshotRef, checkpoint: ManifestKey) -> PartReader:
    """The part that the manifest of `checkpoint` refers to, in a file of its own or inlined there."""
    if ref.path is not None:
        return stored_file(store, ref.path, ref)
    data = ref.inline or b""
    manifest = store.full_path(CheckpointPaths.manifest(checkpoint))
    path = f"{manifest} (inlined: vertex {ref.vertex}, subtask {ref.subtask})"

    def read(start: int, length: int) -> bytes:
        return data[start : start + length]

    return PartReader(read, lambda: len(data), path, ref)


class SectionStream:
    """A section from front to end. The read that reaches its end verifies the checksum of all of it."""

    def __init__(self, read: Callable[[int, int], bytes], section: Section, path: str) -> None:
        self._read_range = read
        self._section = section
        self._path = path
        self._position = section.start
        self._checksum = 0
        self._ahead = b""
        self._used = 0
        """How many bytes of `_ahead` have been given out."""

    def read(self, size: int) -> bytes:
        """The next `size` bytes; fewer only at the end. Raises CorruptCheckpointError."""
        pieces = []
        while size > 0:
            if self._used == len(self._ahead) and not self._fetch():
                break
            piece = self._ahead[self._used : self._used + size]
            self._used += len(piece)
            size -= len(piece)
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _fetch(self) -> bool:
        """Read the next range; False at the end."""
        section = self._section
        wanted = min(RANGE_BYTES, section.end - self._position)
        if wanted == 0:
            return False
        self._ahead, self._used = self._read_range(self._position, wanted), 0
        self._position += len(self._ahead)
        self._checksum = zlib.crc32(self._ahead, self._checksum)
        if len(self._ahead) < wanted or self._position == section.end:
            length = self._position - section.start
            check_section(section, length, self._checksum, self._path)
        return True
