"""Objects as local files: durable once a call returns, never visible half written."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import BinaryIO

from minirt.storage.side_by_side import side_by_side

_TEMPORARY = ".tmp-"
_ATTEMPTS = 8


class LocalFiles:
    """Files under the folder `root`, which is made by the first write.

    A file is written under a temporary name in its own folder, flushed to disk, and then renamed
    (`write`) or hard-linked (`create`), so a crash leaves either nothing visible or all of it. Folders
    that become empty are removed.
    """

    def __init__(self, root: str) -> None:
        self.root = root

    def read(self, path: str) -> bytes:
        with open(self._full(path), "rb") as file:
            return file.read()

    def read_range(self, path: str, start: int, length: int) -> bytes:
        with open(self._full(path), "rb") as file:
            file.seek(start)
            return file.read(length)

    def size(self, path: str) -> int:
        found = os.stat(self._full(path))
        if not stat.S_ISREG(found.st_mode):
            raise FileNotFoundError("a folder, not an object")
        return found.st_size

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        target = self._full(path)
        temporary = self._write_temporary(target, chunks)
        try:
            os.replace(temporary, target)
        except BaseException:
            _remove(temporary)
            raise
        _sync_folder(os.path.dirname(target))

    def create(self, path: str, chunks: Iterable[bytes]) -> bool:
        target = self._full(path)
        if os.path.lexists(target):
            return False
        temporary = self._write_temporary(target, chunks)
        try:
            os.link(temporary, target)
        except FileExistsError:
            return False
        finally:
            _remove(temporary)
        _sync_folder(os.path.dirname(target))
        return True

    def delete(self, path: str) -> None:
        target = self._full(path)
        _remove(target)
        folder = os.path.dirname(target)
        while folder != self.root:
            try:
                os.rmdir(folder)
            except OSError:  # Not empty, or somebody else removed it.
                return
            folder = os.path.dirname(folder)

    def delete_all(self, paths: Sequence[str]) -> None:
        side_by_side(self.delete, paths)

    def sizes(self, prefix: str) -> dict[str, int]:
        found: dict[str, int] = {}
        folders = [prefix]
        while folders:
            folder = folders.pop()
            for entry in self._scan(folder):
                path = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir():
                    folders.append(path)
                elif not entry.name.startswith(_TEMPORARY):
                    try:
                        found[path] = entry.stat().st_size
                    except FileNotFoundError:  # Deleted since the folder was read.
                        continue
        return found

    def sweep(
        self,
        older_than_s: float,
        is_own: Callable[[str], bool],
        is_abandoned: Callable[[str], bool],
    ) -> None:
        oldest = time.time() - older_than_s
        for folder, inner, names in os.walk(self.root):
            if folder == self.root:
                inner[:] = [name for name in inner if is_own(name)]
                continue
            for name in names:
                if not name.startswith(_TEMPORARY):
                    continue
                path = os.path.relpath(os.path.join(folder, name), self.root)
                try:
                    if is_abandoned(path) or os.stat(self._full(path)).st_mtime <= oldest:
                        self.delete(path)
                except FileNotFoundError:  # Its writer has finished.
                    continue

    def _full(self, path: str) -> str:
        return os.path.join(self.root, path)

    def _scan(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self._full(folder)) as entries:
                return list(entries)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _write_temporary(self, target: str, chunks: Iterable[bytes]) -> str:
        folder, name = os.path.split(target)
        unique = f"{os.getpid()}-{threading.get_ident()}-{time.monotonic_ns()}"
        temporary = os.path.join(folder, f"{_TEMPORARY}{name}-{unique}")
        file = _open_in_folder(folder, temporary)
        try:
            with file:
                file.writelines(chunks)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            _remove(temporary)
            raise
        return temporary


def _open_in_folder(folder: str, path: str) -> BinaryIO:
    """Open a new file; its folder is made if it is missing, as often as others remove it meanwhile."""
    for _ in range(_ATTEMPTS):
        try:
            return open(path, "xb")
        except FileNotFoundError:
            _make_folder(folder)
    return open(path, "xb")


def _make_folder(folder: str) -> None:
    """Make the folder and its parents, each durable in its own parent."""
    parent = os.path.dirname(folder)
    if not os.path.isdir(parent):
        _make_folder(parent)
    try:
        os.mkdir(folder)
    except FileExistsError:
        if not os.path.isdir(folder):
            raise
    except FileNotFoundError:  # Somebody removed the empty parent; the caller tries again.
        return
    _sync_folder(parent)


def _sync_folder(folder: str) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:  # All that was in it has been deleted by others.
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
