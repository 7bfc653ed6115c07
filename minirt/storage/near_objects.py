"""Local copies of what a host has stored of its last checkpoints, for restarts on the same host.

A copy ends with its checksum and its length. One that is not whole is removed, and the object itself is
read: so nothing depends on a copy, and none is synced to disk.
"""

from __future__ import annotations

import contextlib
import logging
import os
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO

from minirt.protocol.checkpoint_paths import CheckpointPaths
from minirt.storage.objects import Objects

logger = logging.getLogger("minirt.storage")

_END = struct.Struct("<IQ")
"""Checksum and length of what is ahead of it."""
_READ_BYTES = 1 << 20
_TEMPORARY = ".new-"


class NearObjects:
    """Other objects, and copies in `folder` of the files of checkpoints that were written through this.

    All processes of a host share the folder. It holds about `bytes_max`; what was written first goes first.
    """

    def __init__(self, objects: Objects, folder: str, bytes_max: int) -> None:
        self.root = objects.root
        self._objects = objects
        self._folder = folder
        self._bytes_max = bytes_max
        self._whole: dict[str, int] = {}
        """The lengths of copies whose checksums this process has verified."""

    def read(self, path: str) -> bytes:
        copied = self._read_copy(path, 0, None)
        return self._objects.read(path) if copied is None else copied

    def read_range(self, path: str, start: int, length: int) -> bytes:
        copied = self._read_copy(path, start, length)
        return self._objects.read_range(path, start, length) if copied is None else copied

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        if CheckpointPaths.parse_file(path) is None:
            self._objects.write(path, chunks)
            return
        self._remove(path)
        copy = _Copy(self._folder)
        try:
            self._objects.write(path, copy.through(chunks))
            if copy.keep_as(self._copy_of(path)):
                self._make_room()
        finally:
            copy.close()

    def create(self, path: str, chunks: Iterable[bytes]) -> bool:
        return self._objects.create(path, chunks)

    def delete(self, path: str) -> None:
        self._remove(path)
        self._objects.delete(path)

    def delete_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._remove(path)
        self._objects.delete_all(paths)

    def sizes(self, prefix: str) -> dict[str, int]:
        return self._objects.sizes(prefix)

    def size(self, path: str) -> int:
        return self._objects.size(path)

    def sweep(
        self,
        older_than_s: float,
        is_own: Callable[[str], bool],
        is_abandoned: Callable[[str], bool],
    ) -> None:
        self._objects.sweep(older_than_s, is_own, is_abandoned)

    def _copy_of(self, path: str) -> str:
        return os.path.join(self._folder, path.replace("/", "+"))

    def _read_copy(self, path: str, start: int, length: int | None) -> bytes | None:
        """None without a copy that is whole."""
        try:
            with open(self._copy_of(path), "rb") as file:
                if path not in self._whole:
                    self._whole[path] = _verified(file)
                left = max(0, self._whole[path] - start)
                file.seek(start)
                return file.read(left if length is None else min(length, left))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            logger.warning("the local copy of %s is of no use: %s", path, error)
            self._remove(path)
            return None

    def _remove(self, path: str) -> None:
        self._whole.pop(path, None)
        with contextlib.suppress(OSError):
            os.remove(self._copy_of(path))

    def _make_room(self) -> None:
        with contextlib.suppress(OSError), os.scandir(self._folder) as entries:
            known = [(entry.stat(), entry.path) for entry in entries]
            bytes_over = sum(stat.st_size for stat, _ in known) - self._bytes_max
            for stat, copy in sorted(known, key=lambda one: one[0].st_mtime_ns):
                if bytes_over <= 0:
                    return
                os.remove(copy)
                bytes_over -= stat.st_size


class _Copy:
    """A copy in the making. A disk that takes no more costs the copy, not the checkpoint."""

    def __init__(self, folder: str) -> None:
        self._checksum = self._length = 0
        self._file: BinaryIO | None = None
        self._path = ""
        with self._or_none():
            os.makedirs(folder, mode=0o700, exist_ok=True)
            descriptor, self._path = tempfile.mkstemp(prefix=_TEMPORARY, dir=folder)
            self._file = os.fdopen(descriptor, "wb")

    def through(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            if self._file is not None:
                self._checksum = zlib.crc32(chunk, self._checksum)
                self._length += len(chunk)
                with self._or_none():
                    self._file.write(chunk)
            yield chunk

    def keep_as(self, path: str) -> bool:
        """Whether it could be kept."""
        if self._file is None:
            return False
        with self._or_none():
            self._file.write(_END.pack(self._checksum, self._length))
            self._file.close()
            os.replace(self._path, path)
            self._path = ""
            return True
        return False

    def close(self) -> None:
        """Remove what was not kept."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
        if self._path:
            with contextlib.suppress(OSError):
                os.remove(self._path)

    @contextlib.contextmanager
    def _or_none(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            logger.warning("no local copy is kept: %s", error)
            file, self._file = self._file, None
            if file is not None:
                with contextlib.suppress(OSError):
                    file.close()


def _verified(file: BinaryIO) -> int:
    """The length of the object. Raises ValueError if the copy is not whole."""
    size = max(0, os.fstat(file.fileno()).st_size - _END.size)
    checksum, left = 0, size
    while left > 0 and (piece := file.read(min(_READ_BYTES, left))):
        checksum = zlib.crc32(piece, checksum)
        left -= len(piece)
    if file.read() != _END.pack(checksum, size):
        raise ValueError("it is damaged")
    return size
