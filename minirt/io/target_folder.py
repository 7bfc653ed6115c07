"""How pending files are written, made durable, published and removed: locally and elsewhere."""

from __future__ import annotations

import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, cast

from minirt.errors import ConfigurationError, StorageError
from minirt.filesystems import abort_uploads, explain, failures, has_folders

_BUFFER_BYTES = 1 << 20
_CREATE_ATTEMPTS = 10


class TargetFolder(ABC):
    """The steps of a two-phase commit on one kind of file system; all raise StorageError or OSError."""

    @abstractmethod
    def check_writable(self, folder: str) -> None:
        """Raise ConfigurationError or StorageError unless something can be written into the folder."""

    @abstractmethod
    def create(self, pending: str) -> BinaryIO:
        """A stream for the content of a new pending file."""

    @abstractmethod
    def make_durable(self, stream: BinaryIO, pending: str) -> None:
        """Close the stream; afterwards the pending file survives the loss of the machine's power."""

    @abstractmethod
    def drop(self, stream: BinaryIO, pending: str) -> None:
        """Close the stream and remove what there is of the pending file."""

    @abstractmethod
    def publish(self, moves: Sequence[tuple[str, str]]) -> None:
        """Give each (pending, final) pair its final name, durably; leave files alone that have it already.

        Raises StorageError if both are gone, or if the final name belongs to another file.
        """

    @abstractmethod
    def open(self, path: str) -> BinaryIO:
        """A stream of what a durable file holds."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether there is such a file."""

    @abstractmethod
    def remove(self, paths: Sequence[str]) -> None:
        """Remove files; those that are gone are fine."""

    @abstractmethod
    def remove_pending(self, folder: str, unwanted: Callable[[str], bool]) -> None:
        """Remove the pending files in a folder that are unwanted, and the folder if it is empty then."""


class LocalFolder(TargetFolder):
    """Publishes by atomic rename."""

    def check_writable(self, folder: str) -> None:
        existing = folder
        while not os.path.lexists(existing):
            existing = os.path.dirname(existing)
        try:
            tempfile.TemporaryFile(dir=existing).close()
        except OSError as error:
            raise ConfigurationError(
                f"cannot write into {folder}: {error.strerror}: {existing}"
            ) from error

    def create(self, pending: str) -> BinaryIO:
        for _ in range(_CREATE_ATTEMPTS):
            # Other jobs that work in this folder remove empty folders.
            with suppress(FileNotFoundError):
                make_folder(os.path.dirname(pending))
                return open(pending, "xb", buffering=_BUFFER_BYTES)
        return open(pending, "xb", buffering=_BUFFER_BYTES)

    def make_durable(self, stream: BinaryIO, pending: str) -> None:
        with stream:
            stream.flush()
            os.fsync(stream.fileno())
        # A job that took over may have discarded the file and, with the last one, its folder.
        with suppress(FileNotFoundError):
            sync_folder(os.path.dirname(pending))

    def drop(self, stream: BinaryIO, pending: str) -> None:
        with suppress(OSError):
            stream.close()
        with suppress(FileNotFoundError):
            os.unlink(pending)

    def publish(self, moves: Sequence[tuple[str, str]]) -> None:
        for pending, final in moves:
            with storage_errors("cannot publish", final):
                make_folder(os.path.dirname(final))
                _rename(pending, final)
        for folder in sorted({os.path.dirname(name) for move in moves for name in move}):
            with storage_errors("cannot publish files", folder), suppress(FileNotFoundError):
                sync_folder(folder)
        self._remove_empty({os.path.dirname(pending) for pending, _ in moves})

    def open(self, path: str) -> BinaryIO:
        return open(path, "rb")

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def remove(self, paths: Sequence[str]) -> None:
        for path in paths:
            with storage_errors("cannot remove", path), suppress(FileNotFoundError):
                os.unlink(path)
        self._remove_empty({os.path.dirname(path) for path in paths})

    def remove_pending(self, folder: str, unwanted: Callable[[str], bool]) -> None:
        with storage_errors("cannot remove pending files", folder):
            names = os.listdir(folder) if os.path.isdir(folder) else []
        paths = [f"{folder}/{name}" for name in names]
        self.remove([path for path in paths if unwanted(path)])
        self._remove_empty({folder})

    def _remove_empty(self, folders: Iterable[str]) -> None:
        for folder in folders:
            with suppress(OSError):
                os.rmdir(folder)
                os.rmdir(os.path.dirname(folder))


class RemoteFolder(TargetFolder):
    """Publishes by copying on the server, then deleting; pending files are local until uploaded.

    An object appears as a whole, under a name that nothing else ever gets. To copy it again after a
    crash between the two steps writes the same bytes once more.
    """

    def __init__(self, fs: Any) -> None:
        self._fs = fs

    def check_writable(self, folder: str) -> None:
        probe = f"{folder}/probe"
        with self._errors("cannot write", folder):
            if has_folders(self._fs):
                self._fs.makedirs(folder, exist_ok=True)
            self._fs.pipe_file(probe, b"")
            self._fs.rm_file(probe)

    def create(self, pending: str) -> BinaryIO:
        return cast(BinaryIO, tempfile.TemporaryFile(buffering=_BUFFER_BYTES))

    def make_durable(self, stream: BinaryIO, pending: str) -> None:
        with stream, self._errors("cannot upload", pending):
            stream.flush()
            # The file has no name any more, but put_file takes nothing else.
            self._fs.put_file(f"/proc/self/fd/{stream.fileno()}", pending)

    def drop(self, stream: BinaryIO, pending: str) -> None:
        with suppress(OSError):
            stream.close()

    def publish(self, moves: Sequence[tuple[str, str]]) -> None:
        for pending, final in moves:
            with self._errors("cannot publish", final):
                try:
                    self._fs.cp_file(pending, final)
                except FileNotFoundError:
                    if not self._fs.exists(final):
                        raise _both_gone(pending, final) from None
                else:
                    with suppress(FileNotFoundError):  # A successor may have been faster.
                        self._fs.rm_file(pending)

    def open(self, path: str) -> BinaryIO:
        with self._errors("cannot read", path):
            return cast(BinaryIO, self._fs.open(path, "rb"))

    def exists(self, path: str) -> bool:
        with self._errors("cannot look at", path):
            return bool(self._fs.exists(path))

    def remove(self, paths: Sequence[str]) -> None:
        for path in paths:
            with self._errors("cannot remove", path), suppress(FileNotFoundError):
                self._fs.rm_file(path)

    def remove_pending(self, folder: str, unwanted: Callable[[str], bool]) -> None:
        with self._errors("cannot remove pending files", folder):
            files = self._fs.find(folder, maxdepth=1) if self._fs.exists(folder) else []
        self.remove([file for file in files if unwanted(file)])
        abort_uploads(self._fs, folder, unwanted)

    @contextmanager
    def _errors(self, what: str, path: str) -> Iterator[None]:
        """Turn failures into a StorageError; options that do not suit show as the types they are."""
        try:
            yield
        except failures(TypeError, ValueError) as error:
            url = self._fs.unstrip_protocol(path)
            raise StorageError(f"{what} ({explain(error)})", url) from error


def make_folder(folder: str) -> None:
    """Create a folder and what is missing above it, durably."""
    if os.path.isdir(folder):
        return
    parent = os.path.dirname(folder)
    make_folder(parent)
    with suppress(FileExistsError):
        os.mkdir(folder)
    sync_folder(parent)


def sync_folder(folder: str) -> None:
    """Make the names in a folder survive the loss of the machine's power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def storage_errors(what: str, path: str) -> Iterator[None]:
    """Turn failures into a StorageError that says what could not be done, why, and with which path."""
    try:
        yield
    except failures() as error:
        raise StorageError(f"{what} ({explain(error)})", path) from error


def _rename(pending: str, final: str) -> None:
    """Whoever has replaced this coordinator may do the same at any moment."""
    with suppress(FileNotFoundError):
        if not os.path.exists(final):
            os.rename(pending, final)
        elif os.path.samefile(pending, final):
            os.unlink(pending)
        else:
            raise StorageError(
                f"{pending} cannot be published, its name is taken by another file", final
            )
    if not os.path.exists(final):
        raise _both_gone(pending, final)


def _both_gone(pending: str, final: str) -> StorageError:
    return StorageError(
        f"output of a completed checkpoint is lost: neither the pending file {pending} exists nor "
        "the file it was to become",
        final,
    )
