"""How pending files are written, made durable, published and removed: locally and elsewhere."""

from __future__ import annotations

import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, cast

from minirt.errors import StorageError

_BUFFER_BYTES = 1 << 20
_COPY_BYTES = 8 << 20


class TargetFolder(ABC):
    """The steps of a two-phase commit on one kind of file system; all raise StorageError or OSError."""

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
        """Give each (pending, final) pair its final name, durably; what has it already is left alone.

        Raises StorageError if both are gone, or if the final name belongs to another file.
        """

    @abstractmethod
    def remove_pending(self, folder: str, unwanted: Callable[[str], bool]) -> None:
        """Remove the pending files in a folder that are unwanted, and the folder if it is empty then."""


class LocalFolder(TargetFolder):
    """Publishes by atomic rename."""

    def create(self, pending: str) -> BinaryIO:
        make_folder(os.path.dirname(pending))
        return open(pending, "xb", buffering=_BUFFER_BYTES)

    def make_durable(self, stream: BinaryIO, pending: str) -> None:
        with stream:
            stream.flush()
            os.fsync(stream.fileno())
        sync_folder(os.path.dirname(pending))

    def drop(self, stream: BinaryIO, pending: str) -> None:
        with suppress(OSError):
            stream.close()
        with suppress(FileNotFoundError):
            os.unlink(pending)

    def publish(self, moves: Sequence[tuple[str, str]]) -> None:
        for pending, final in moves:
            with storage_errors("cannot publish", final):
                _rename(pending, final)
        for folder in sorted({os.path.dirname(name) for move in moves for name in move}):
            with storage_errors("cannot publish files", folder), suppress(FileNotFoundError):
                sync_folder(folder)

    def remove_pending(self, folder: str, unwanted: Callable[[str], bool]) -> None:
        with storage_errors("cannot remove pending files", folder):
            names = os.listdir(folder) if os.path.isdir(folder) else []
            for name in names:
                if unwanted(f"{folder}/{name}"):
                    os.unlink(f"{folder}/{name}")
        for empty in (folder, os.path.dirname(folder)):
            with suppress(OSError):
                os.rmdir(empty)


class RemoteFolder(TargetFolder):
    """Publishes by copying and deleting; pending files are local, unnamed ones until uploaded."""

    def __init__(self, fs: Any) -> None:
        self._fs = fs

    def create(self, pending: str) -> BinaryIO:
        return cast(BinaryIO, tempfile.TemporaryFile(buffering=_BUFFER_BYTES))

    def make_durable(self, stream: BinaryIO, pending: str) -> None:
        with stream:
            stream.seek(0)
            self._fs.makedirs(os.path.dirname(pending), exist_ok=True)
            with self._fs.open(pending, "wb") as upload:
                shutil.copyfileobj(stream, upload, _COPY_BYTES)

    def drop(self, stream: BinaryIO, pending: str) -> None:
        with suppress(OSError):
            stream.close()

    def publish(self, moves: Sequence[tuple[str, str]]) -> None:
        self._fs.invalidate_cache()
        for pending, final in moves:
            with storage_errors("cannot publish", final):
                if self._fs.exists(pending):
                    self._move(pending, final)
                elif not self._fs.exists(final):
                    raise _both_gone(pending, final)

    def remove_pending(self, folder: str, unwanted: Callable[[str], bool]) -> None:
        self._fs.invalidate_cache()
        with storage_errors("cannot remove pending files", folder):
            files = self._fs.find(folder) if self._fs.exists(folder) else []
            for file in files:
                if unwanted(file):
                    self._fs.rm_file(file)

    def _move(self, pending: str, final: str) -> None:
        """Copying again after a crash between the two steps writes the same bytes once more."""
        self._fs.cp_file(pending, final)
        self._fs.rm_file(pending)


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
    """Turn an OSError into a StorageError that says what could not be done, why, and with which path."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{what} ({error.strerror or error})", path) from error


def _rename(pending: str, final: str) -> None:
    if not os.path.exists(pending):
        if not os.path.exists(final):
            raise _both_gone(pending, final)
    elif not os.path.exists(final):
        os.rename(pending, final)
    elif os.path.samefile(pending, final):
        os.unlink(pending)
    else:
        raise StorageError(
            f"{pending} cannot be published, its name is taken by another file", final
        )


def _both_gone(pending: str, final: str) -> StorageError:
    return StorageError(
        f"output of a completed checkpoint is lost: neither the pending file {pending} exists nor "
        "the file it was to become",
        final,
    )
