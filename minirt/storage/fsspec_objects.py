"""Objects on a filesystem of fsspec."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from minirt.errors import ConfigurationError
from minirt.filesystems import (
    BUCKET_STORES,
    abort_uploads,
    delete_together,
    has_folders,
    load_protocol,
    open_filesystem,
)
from minirt.storage.side_by_side import side_by_side

_CONDITIONAL_CREATE = BUCKET_STORES | {"memory"}
"""Protocols whose `pipe_file(mode="create")` is atomic."""

_memory_lock = threading.RLock()


def _renew_memory_lock() -> None:
    global _memory_lock
    _memory_lock = threading.RLock()


# A fork while another thread holds the lock would leave it locked in the child for ever.
os.register_at_fork(after_in_child=_renew_memory_lock)


class FsspecObjects:
    """Objects below the URL `root`. Each operation ends within `timeout_s`, all attempts included.

    Raises ConfigurationError if the protocol cannot be used.
    """

    def __init__(
        self, root: str, protocol: str, options: Mapping[str, Any], timeout_s: float
    ) -> None:
        load_protocol(protocol)
        self.root = root
        self._protocol = protocol
        self._options = options
        self._timeout_s = timeout_s
        self._opened: tuple[int, Any, str] | None = None

    def read(self, path: str) -> bytes:
        return bytes(self._call("cat_file", path))

    def read_range(self, path: str, start: int, length: int) -> bytes:
        end = min(start + length, int(self._call("info", path)["size"]))
        # Object stores refuse ranges that hold nothing, or take them for the whole object.
        return bytes(self._call("cat_file", path, start=start, end=end)) if start < end else b""

    def size(self, path: str) -> int:
        info = self._call("info", path)
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
            # Stores differ in how they say that it exists, and may mean our own earlier attempt.
            if self._exists(path):
                return False
            raise
        return True

    def delete(self, path: str) -> None:
        try:
            self._call("rm_file", path)
        except FileNotFoundError:
            pass

    def delete_all(self, paths: Sequence[str]) -> None:
        filesystem, base = self._open()
        whole = [f"{base}/{path}" for path in paths]
        left = delete_together(filesystem, whole, self._timeout_s)
        side_by_side(self.delete, [path[len(base) + 1 :] for path in left])

    def sizes(self, prefix: str) -> dict[str, int]:
        try:
            found = self._call("find", prefix, detail=True)
        except FileNotFoundError:
            return {}
        _, base = self._open()
        folder = f"{base}/{prefix}/" if prefix else f"{base}/"
        start = len(f"{base}/")
        return {
            name[start:]: int(info["size"])
            for name, info in found.items()
            if name.startswith(folder) and info["type"] == "file"
        }

    def sweep(
        self,
        older_than_s: float,
        is_own: Callable[[str], bool],
        is_abandoned: Callable[[str], bool],
    ) -> None:
        """Only uploads in parts leave something behind: these stores show and keep whole objects only."""
        filesystem, base = self._open()
        start = len(f"{base}/")
        abort_uploads(filesystem, base, lambda path: is_abandoned(path[start:]))

    def _put(self, path: str, chunks: Iterable[bytes], mode: str) -> None:
        data = b"".join(chunks)
        try:
            self._call("pipe_file", path, data, mode=mode)
        except FileNotFoundError:
            if not has_folders(self._open()[0]):  # The bucket is missing.
                raise
            self._call("makedirs", os.path.dirname(path), exist_ok=True)
            self._call("pipe_file", path, data, mode=mode)

    def _exists(self, path: str) -> bool:
        try:
            self.size(path)
        except FileNotFoundError:
            return False
        return True

    def _call(self, method: str, path: str, *arguments: Any, **options: Any) -> Any:
        filesystem, base = self._open()
        if filesystem.async_impl:
            options["timeout"] = self._timeout_s
        with self._exclusive():
            return getattr(filesystem, method)(f"{base}/{path}".rstrip("/"), *arguments, **options)

    def _open(self) -> tuple[Any, str]:
        """The filesystem of this process: one with connections must not be shared over a fork."""
        if self._opened is None or self._opened[0] != os.getpid():
            filesystem, base = open_filesystem(self.root, self._options)
            self._opened = (os.getpid(), filesystem, base.rstrip("/"))
        return self._opened[1], self._opened[2]

    def _exclusive(self) -> AbstractContextManager[Any]:
        """fsspec's memory filesystem is a plain dict without any lock of its own."""
        return _memory_lock if self._protocol == "memory" else nullcontext()
