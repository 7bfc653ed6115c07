"""Writes the snapshots of subtasks, each into a file of its own or several into one file.

One file for several subtasks costs one request to an object store, or one sync of a disk, instead of many.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from minirt.protocol.checkpoint_paths import CheckpointPaths
from minirt.protocol.manifest import (
    ChannelData,
    InFlightRef,
    ManifestKey,
    Reference,
    SnapshotRef,
)
from minirt.protocol.part_paths import shared_path
from minirt.state.stored import entries_in
from minirt.storage.parts import part_checksum, part_head
from minirt.storage.store import ObjectStore

_SHARED_BYTES_MAX = 64 * 1024 * 1024
"""From this size on, a file that is to be shared is written: all of it is in memory until then."""


class PartWriter(ABC):
    """Stores parts; those of at most `inline_bytes_max` bytes within the reference to them."""

    def __init__(self, inline_bytes_max: int) -> None:
        self._inline_bytes_max = inline_bytes_max

    @abstractmethod
    def put(self, path: str, size: int, chunks: Iterable[bytes]) -> str:
        """Store a part of so many bytes, whose own file would be at `path`; returns the path where it is.

        Raises StorageError.
        """

    def write_snapshot(
        self,
        checkpoint_id: int,
        generation: int,
        vertex: int,
        subtask: int,
        sections: Mapping[str, bytes],
        references: Sequence[Reference] = (),
    ) -> SnapshotRef:
        """Store one subtask's snapshot, or put it into the reference if it is small.

        It builds on the sections of older files that it refers to.
        """
        path = CheckpointPaths.snapshot(ManifestKey(checkpoint_id, generation), vertex, subtask)
        chunks = {name: (section,) for name, section in sections.items()}
        entries = {name: entries_in(name, section) for name, section in sections.items()}
        written = self._write(path, vertex, subtask, chunks, entries)
        return replace(written, references=tuple(references))

    def write_in_flight(
        self,
        checkpoint_id: int,
        generation: int,
        vertex: int,
        subtask: int,
        channels: Sequence[tuple[ChannelData, Iterable[bytes]]],
    ) -> InFlightRef:
        """Store the in-flight data that one subtask captured.

        The data comes in chunks and need not be in memory: this goes through it twice, first for the
        checksums.
        """
        path = CheckpointPaths.in_flight(ManifestKey(checkpoint_id, generation), vertex, subtask)
        sections = {str(place): data for place, (_, data) in enumerate(channels)}
        entries = {str(place): channel.records for place, (channel, _) in enumerate(channels)}
        stored = self._write(path, vertex, subtask, sections, entries)
        return InFlightRef(stored, tuple(channel for channel, _ in channels))

    def _write(
        self,
        path: str,
        vertex: int,
        subtask: int,
        sections: Mapping[str, Iterable[bytes]],
        entries: Mapping[str, int | None],
    ) -> SnapshotRef:
        head, size = part_head(sections, entries)
        checksum, chunks = part_checksum(head), chain([head], *sections.values())
        if size <= self._inline_bytes_max:
            return SnapshotRef(vertex, subtask, None, b"".join(chunks), size, checksum)
        return SnapshotRef(vertex, subtask, self.put(path, size, chunks), None, size, checksum)


class SharedFiles(PartWriter):
    """Collects parts for files that they share: one of state and one of in-flight data, as the latter is of
    no use once another checkpoint is complete. A file has the path that its first part alone would have.

    Nothing is durable before `flush`. If that or `put` raises, none of the parts counts.
    """

    def __init__(
        self, store: ObjectStore, inline_bytes_max: int, bytes_max: int = _SHARED_BYTES_MAX
    ) -> None:
        super().__init__(inline_bytes_max)
        self._store = store
        self._bytes_max = bytes_max
        self._files: dict[bool, _SharedFile] = {}
        """What is not written yet, by whether it is in-flight data."""

    def put(self, path: str, size: int, chunks: Iterable[bytes]) -> str:
        in_flight = CheckpointPaths.is_in_flight(path)
        file = self._files.setdefault(in_flight, _SharedFile(path))
        shared = file.add(size, chunks)
        if file.bytes >= self._bytes_max:
            self._write_file(in_flight)
        return shared

    def flush(self) -> None:
        """Make all parts durable. Raises StorageError."""
        for in_flight in list(self._files):
            self._write_file(in_flight)

    def _write_file(self, in_flight: bool) -> None:
        file = self._files.pop(in_flight)
        self._store.write(file.path, chain.from_iterable(file.parts))


class _SharedFile:
    def __init__(self, path: str) -> None:
        self.path = path
        self.parts: list[Iterable[bytes]] = []
        self.bytes = 0

    def add(self, size: int, chunks: Iterable[bytes]) -> str:
        path = shared_path(self.path, self.bytes, size)
        self.parts.append(chunks)
        self.bytes += size
        return path
