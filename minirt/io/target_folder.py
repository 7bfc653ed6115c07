"""How pending files are written, made durable, published and removed: locally and elsewhere."""

from __future__ import annotations

import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, cast

from minirt.errors import ConfigurationError, StorageError
from minirt.filesystems import abort_uploads, explain, failures, has_folders

_BUFFER_BYTES = 1 << 20


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
        """Give each (pending, final) pair its final name, durably; what has it already is left alone.

        Raises StorageError if both are gone, or if the final name belongs to another file.
        """

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
        make_folder(os.path.dirname(pending))
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
                    self._fs.rm_file(pending)

    def remove_pending(self, folder: str, unwanted: Callable[[str], bool]) -> None:
        with self._errors("cannot remove pending files", folder):
            files = self._fs.find(folder) if self._fs.exists(folder) else []
            for file in files:
                if unwanted(file):
                    self._fs.rm_file(file)
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
