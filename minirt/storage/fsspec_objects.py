"""Objects on a filesystem of fsspec."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import fsspec

from minirt.errors import ConfigurationError

_CONDITIONAL_CREATE = frozenset({"memory", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"})
"""Protocols whose `pipe_file(mode="create")` is atomic."""

_memory_lock = threading.RLock()


def _renew_memory_lock() -> None:
    global _memory_lock
    _memory_lock = threading.RLock()


# A fork while another thread holds the lock would leave it locked in the child for ever.
os.register_at_fork(after_in_child=_renew_memory_lock)


class FsspecObjects:
    """Objects below the URL `root`; a bucket that is missing is made by the first write."""

    def __init__(self, root: str, protocol: str, options: Mapping[str, Any]) -> None:
        self.root = root
        self._protocol = protocol
        self._options = options
        self._opened: tuple[int, Any, str] | None = None

    def read(self, path: str) -> bytes:
        filesystem, base = self._open()
        with self._exclusive():
            return bytes(filesystem.cat_file(f"{base}/{path}"))

    def read_range(self, path: str, start: int, length: int) -> bytes:
        filesystem, base = self._open()
        with self._exclusive():
            # Object stores refuse ranges that begin behind the end.
            if start >= (size := int(filesystem.info(f"{base}/{path}")["size"])):
                return b""
            end = min(start + length, size)
            return bytes(filesystem.cat_file(f"{base}/{path}", start=start, end=end))

    def size(self, path: str) -> int:
        filesystem, base = self._open()
        with self._exclusive():
            info = filesystem.info(f"{base}/{path}")
        if info["type"] != "file":
            raise FileNotFoundError(path)
        return int(info["size"])

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        self._put(path, chunks, "overwrite")

    def create(self, path: str, chunks: Iterable[bytes]) -> bool:
        if self._protocol not in _CONDITIONAL_CREATE:
            raise ConfigurationError(
                f"checkpoints cannot be written to {self._protocol}:// ({self.root}): it has no atomic"
                " create; use local files, memory://, s3://, gs:// or abfs://"
            )
        try:
            self._put(path, chunks, "create")
        except Exception:
            # Stores differ in how they say that it exists, and may say so of our own earlier attempt.
            if self._exists(path):
                return False
            raise
        return True

    def delete(self, path: str) -> None:
        filesystem, base = self._open()
        with self._exclusive():
            try:
                filesystem.rm_file(f"{base}/{path}")
            except FileNotFoundError:
                pass

    def sizes(self, prefix: str) -> dict[str, int]:
        filesystem, base = self._open()
        with self._exclusive():
            try:
                found = filesystem.find(f"{base}/{prefix}".rstrip("/"), detail=True)
            except FileNotFoundError:
                return {}
        folder = f"{base}/{prefix}/" if prefix else f"{base}/"
        start = len(f"{base}/")
        return {
            name[start:]: int(info["size"])
            for name, info in found.items()
            if name.startswith(folder) and info["type"] == "file"
        }

    def sweep(self, older_than_s: float) -> None:
        """Nothing to do: an object store shows and keeps whole objects only."""

    def _put(self, path: str, chunks: Iterable[bytes], mode: str) -> None:
        filesystem, base = self._open()
        data = b"".join(chunks)
        with self._exclusive():
            try:
                filesystem.pipe_file(f"{base}/{path}", data, mode=mode)
            except FileNotFoundError:  # No bucket yet.
                filesystem.makedirs(base, exist_ok=True)
                filesystem.pipe_file(f"{base}/{path}", data, mode=mode)

    def _exists(self, path: str) -> bool:
        try:
            self.size(path)
        except FileNotFoundError:
            return False
        return True

    def _open(self) -> tuple[Any, str]:
        """The filesystem of this process: one with connections must not be shared over a fork."""
        if self._opened is None or self._opened[0] != os.getpid():
            filesystem, base = fsspec.core.url_to_fs(
                self.root,
                **{"use_listings_cache": False, "skip_instance_cache": True, **self._options},
            )
            self._opened = (os.getpid(), filesystem, base.rstrip("/"))
        return self._opened[1], self._opened[2]

    def _exclusive(self) -> AbstractContextManager[Any]:
        """fsspec's memory filesystem is a plain dict without any lock of its own."""
        return _memory_lock if self._protocol == "memory" else nullcontext()
