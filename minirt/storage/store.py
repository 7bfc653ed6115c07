"""Objects under one root, on local files or on anything that fsspec reaches."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from minirt.config import Limits
from minirt.errors import MinirtError, StorageError
from minirt.filesystems import check_url, explain, is_of_one_process
from minirt.storage.fsspec_objects import FsspecObjects
from minirt.storage.local_files import LocalFiles
from minirt.storage.near_objects import NearObjects
from minirt.storage.objects import Objects
from minirt.storage.retries import PAUSES_S, attempted

T = TypeVar("T")

_PROTOCOL = re.compile(r"[a-zA-Z0-9+.\-]+(?=://|::)")


class ObjectMissingError(StorageError):
    """The object that was to be read does not exist."""


class ObjectStore:
    """Durable, atomic objects under the root `url`: a path, `file://`, `memory://`, `s3://` and so on.

    `options` go to fsspec; an access that takes longer than `timeout_s` fails, unless it is to local
    files. Usable from several threads, after a fork and after pickling; nothing is opened or created
    before the first use. Every failure is a StorageError with the full path and the cause. `create` is
    atomic on local files, in memory, and on object stores with conditional writes (S3, Google Cloud
    Storage, Azure); elsewhere it refuses. The store tries accesses that only read again, after the pauses
    `pauses_s`. `objects` replaces the storage that the URL stands for, so that tests can do without one.
    """

    def __init__(
        self,
        url: str,
        options: Mapping[str, Any] | None = None,
        objects: Objects | None = None,
        *,
        timeout_s: float = Limits().storage_timeout_s,
        pauses_s: Sequence[float] = PAUSES_S,
    ) -> None:
        self._url = url
        self._options = dict(options or {})
        self._given = objects
        self._timeout_s = timeout_s
        self._pauses_s = tuple(pauses_s)
        self._objects = _open(url, self._options, timeout_s) if objects is None else objects

    def __reduce__(self) -> tuple[Callable[..., ObjectStore], tuple[Any, ...]]:
        # The absolute root, since the process that unpickles may run in another folder.
        again = partial(type(self), timeout_s=self._timeout_s, pauses_s=self._pauses_s)
        return (again, (self._objects.root, self._options, self._given))

    def __repr__(self) -> str:
        return f"ObjectStore({self._url!r})"

    @property
    def root(self) -> str:
        """The absolute form of the URL."""
        return self._objects.root

    @property
    def is_of_one_process(self) -> bool:
        """Whether each process finds something else here."""
        return is_of_one_process(self.root)

    def at(self, url: str) -> ObjectStore:
        """Another store, with the same options."""
        return ObjectStore(url, self._options, timeout_s=self._timeout_s, pauses_s=self._pauses_s)

    def near(self, folder: str, bytes_max: int) -> ObjectStore:
        """The same store, with copies in a local folder of what this host stores of checkpoints."""
        if isinstance(self._objects, NearObjects):
            return self
        near = NearObjects(self._objects, folder, bytes_max)
        return ObjectStore(
            self._url, self._options, near, timeout_s=self._timeout_s, pauses_s=self._pauses_s
        )

    def full_path(self, path: str) -> str:
        """The path as messages show it."""
        return f"{self.root.rstrip('/')}/{path}"

    def read(self, path: str) -> bytes:
        """The whole object. Raises ObjectMissingError if there is none."""
        return self._looked("cannot read", path, self._objects.read, _checked(path))

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """`length` bytes from `start` on, or as many as there are. Raises ObjectMissingError."""
        return self._looked(
            *("cannot read", path),
            lambda checked: self._objects.read_range(checked, start, length),
            _checked(path),
        )

    def write(self, path: str, data: bytes | Iterable[bytes]) -> None:
        """Store the object, over an older one if there is; durable on return, never half visible."""
        with self._translated("cannot write", path):
            self._objects.write(_checked(path), _chunks(data))

    def create(self, path: str, data: bytes | Iterable[bytes]) -> bool:
        """Store the object unless it exists: of any number of callers, exactly one gets True."""
        with self._translated("cannot create", path):
            return self._objects.create(_checked(path), _chunks(data))

    def create_surely(self, path: str, data: bytes) -> bool:
        """As `create`, but tries again if it fails: False may then mean that an earlier attempt of this
        call succeeded."""
        return attempted(lambda: self.create(path, data), self._pauses_s, ObjectMissingError)

    def delete(self, path: str) -> None:
        """Remove the object; one that is absent is fine."""
        with self._translated("cannot delete", path):
            self._objects.delete(_checked(path))

    def delete_all(self, paths: Sequence[str]) -> None:
        """Remove the objects, several at once. If that fails for one, the others are removed still."""
        with self._translated("cannot delete", f"{paths[0]} and others" if paths else ""):
            self._objects.delete_all([_checked(path) for path in paths])

    def exists(self, path: str) -> bool:
        """Whether there is such an object."""
        try:
            self.size(path)
        except ObjectMissingError:
            return False
        return True

    def size(self, path: str) -> int:
        """Size in bytes. Raises ObjectMissingError if there is no such object."""
        return self._looked("cannot look at", path, self._objects.size, _checked(path))

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """Size in bytes of every object in the folder `prefix` and below, by relative path."""
        folder = _checked(prefix.rstrip("/")) if prefix.rstrip("/") else ""
        return self._looked("cannot list", prefix, self._objects.sizes, folder)

    def list(self, prefix: str = "") -> list[str]:
        """Sorted relative paths of every object in the folder `prefix` and below; [] if it is missing."""
        return sorted(self.sizes(prefix))

    def sweep(
        self,
        older_than_s: float,
        is_own: Callable[[str], bool],
        is_abandoned: Callable[[str], bool],
    ) -> None:
        """Remove what crashed writers left half written.

        Others may use the same folder: only folders of the root whose names `is_own` accepts are looked at.
        There, temporary files and uploads to an object store go if `is_abandoned` says that no current
        coordinator writes their path. Other temporary files go once they are this many seconds old.
        """
        with self._translated("cannot remove temporary files", ""):
            self._objects.sweep(older_than_s, is_own, is_abandoned)

    def _looked(self, action: str, path: str, look: Callable[[str], T], checked: str) -> T:
        """An access that changes nothing, tried again if it fails."""
        with self._translated(action, path):
            return attempted(lambda: look(checked), self._pauses_s, MinirtError)

    @contextmanager
    def _translated(self, action: str, path: str) -> Iterator[None]:
        try:
            yield
        except MinirtError:
            raise
        except FileNotFoundError as error:
            raise ObjectMissingError(
                f"{action}, not found ({explain(error)})", self.full_path(path)
            ) from error
        except Exception as error:  # Remote filesystems raise errors of their client libraries.
            raise StorageError(f"{action} ({explain(error)})", self.full_path(path)) from error


def _open(url: str, options: Mapping[str, Any], timeout_s: float) -> Objects:
    match = _PROTOCOL.match(check_url(url))
    if match is None or match[0] in ("file", "local"):
        path = re.sub(r"^(file|local)://", "", url)
        return LocalFiles(os.path.abspath(os.path.expanduser(path)))
    root = url if url.endswith("://") else url.rstrip("/")
    return FsspecObjects(root, match[0], options, timeout_s)


def _chunks(data: bytes | Iterable[bytes]) -> Iterable[bytes]:
    return (data,) if isinstance(data, bytes) else data


def _checked(path: str) -> str:
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\\" in path or "\0" in path:
        raise StorageError("not a relative path without '..'", path)
    return path
