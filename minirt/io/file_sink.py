"""Files that become visible exactly once: what all sinks that write files share.

A writer puts its output into *pending* files below `<path>/_minirt`, which Spark and Hive pass over.
The snapshot holds their names; once its checkpoint is complete, `commit` moves each to its final
name. Both names are unique to a writer and a file, so nothing is ever written twice or overwritten,
and who finds the final name taken knows that the move has happened.
"""

from __future__ import annotations

import os
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, BinaryIO

from minirt.data.batch import Batch
from minirt.errors import ConfigurationError
from minirt.io.base import Handle, Prepared, Sink, SinkContext, SinkWriter
from minirt.io.files import FilePath, is_hidden, is_local, resolve
from minirt.io.target_folder import (
    LocalFolder,
    RemoteFolder,
    TargetFolder,
    storage_errors,
)
from minirt.units import Size, size_bytes

PENDING_FOLDER = "_minirt"


class Encoder(ABC):
    """Turns batches into the bytes of one file; holds at most a few MiB back."""

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Take the records. Raises SinkDataError for one that the format cannot hold."""

    @abstractmethod
    def finish(self) -> None:
        """Write what is still held back, and the end of the file."""

    @abstractmethod
    def abandon(self) -> None:
        """Release what is held: the file is given up. Raises nothing."""


class FileSink(Sink, ABC):
    """Two-phase commit of files below the folder `path`, local or anywhere fsspec reaches.

    Several sinks and jobs may write into one folder. Files committed earlier are never touched;
    whether a job that starts afresh may add to them is its caller's decision (see `has_output`).
    """

    suffix: str
    """How the names of its files end."""

    def __init__(
        self,
        path: FilePath,
        *,
        roll_bytes: Size,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._options = dict(storage_options or {})
        fs, folder = resolve(path, self._options)
        self._folder = folder.rstrip("/") or "/"
        self._url = self._folder if is_local(fs) else os.fspath(path)
        self._roll_bytes = size_bytes(roll_bytes, "roll_bytes")
        if self._roll_bytes == 0:
            raise ConfigurationError("roll_bytes must be above 0")

    @abstractmethod
    def encoding(self, operator: str) -> Callable[[BinaryIO], Encoder]:
        """How one writer turns records into files: a function that gives the encoder of a stream."""

    def open_writer(self, context: SinkContext) -> SinkWriter:
        names = _FileNames(
            self._pending_folder(context.operator), self._folder, self.suffix, context
        )
        return _FileWriter(self._target(), names, self.encoding(context.operator), self._roll_bytes)

    def has_output(self) -> bool:
        """Whether the folder already holds committed files, of whichever job."""
        fs, _ = resolve(self._url, self._options)
        with storage_errors("cannot list the files", self._folder):
            files = fs.find(self._folder) if fs.exists(self._folder) else []
        return any(not is_hidden(file[len(self._folder) :]) for file in files)

    def commit(self, handles: Sequence[Handle]) -> None:
        if handles:
            self._target().publish([(handle["pending"], handle["final"]) for handle in handles])

    def discard_uncommitted(
        self,
        committed: Sequence[Handle],
        operator: str = "",
        before_generation: int | None = None,
    ) -> None:
        keep = {handle["pending"] for handle in committed}
        own = {pending.rpartition("/")[0] for pending in keep}
        if operator:
            own.add(self._pending_folder(operator))
        target = self._target()
        for folder in sorted(own):
            target.remove_pending(
                folder,
                lambda path: path not in keep and _is_before(path, before_generation),
            )

    def validate(self) -> None:
        self._target().check_writable(f"{self._folder}/{PENDING_FOLDER}")

    def _target(self) -> TargetFolder:
        fs, _ = resolve(self._url, self._options)
        return LocalFolder() if is_local(fs) else RemoteFolder(fs)

    def _pending_folder(self, operator: str) -> str:
        """Where the pending files of one operator are; readable, and different for every operator."""
        readable = re.sub(r"[^A-Za-z0-9.]+", "-", operator)[:40].strip("-.")
        digest = blake2b(operator.encode(), digest_size=4).hexdigest()
        return f"{self._folder}/{PENDING_FOLDER}/{readable}-{digest}"


def _is_before(pending: str, generation: int | None) -> bool:
    """Whether a writer of an earlier generation gave out this name."""
    if generation is None:
        return True
    _, written_in, *_ = pending.rpartition("/")[2].split("-")
    return int(written_in) < generation


class _FileNames:
    """Pending and final names of one writer's files; no two writers ever give out the same."""

    def __init__(self, pending: str, final: str, suffix: str, context: SinkContext) -> None:
        self._pending = pending
        self._final = final
        self._suffix = suffix
        self._context = context
        self._unique = uuid.uuid4().hex[:8]

    def pending(self, number: int) -> str:
        context = self._context
        name = f"{context.subtask:05d}-{context.generation:04d}-{number:04d}-{self._unique}"
        return f"{self._pending}/{name}{self._suffix}.pending"

    def final(self, number: int, checkpoint_id: int) -> str:
        context = self._context
        name = f"part-{context.subtask:05d}-{checkpoint_id:08d}-{context.generation:04d}"
        return f"{self._final}/{name}-{number:04d}-{self._unique}{self._suffix}"


@dataclass(slots=True)
class _OutputFile:
    number: int
    pending: str
    stream: BinaryIO
    encoder: Encoder
    rows: int = 0


class _FileWriter(SinkWriter):
    def __init__(
        self,
        target: TargetFolder,
        names: _FileNames,
        encoding: Callable[[BinaryIO], Encoder],
        roll_bytes: int,
    ) -> None:
        self._target = target
        self._names = names
        self._encoding = encoding
        self._roll_bytes = roll_bytes
        self._files_opened = 0
        self._current: _OutputFile | None = None
        self._full: list[_OutputFile] = []

    def write(self, batch: Batch) -> None:
        if len(batch) == 0:
            return
        file = self._current = self._current or self._open_file()
        with storage_errors("cannot write", file.pending):
            file.encoder.write(batch)
            file.rows += len(batch)
            if file.stream.tell() >= self._roll_bytes:
                self._full.append(file)
                self._current = None

    def prepare(self, checkpoint_id: int) -> Prepared:
        files = self._take_files()
        if not files:
            return Prepared()
        handles: list[Handle] = [
            {
                "pending": file.pending,
                "final": self._names.final(file.number, checkpoint_id),
                "rows": file.rows,
            }
            for file in files
        ]
        return Prepared(handles, lambda: self._finish(files))

    def close(self) -> None:
        self._drop(self._take_files())

    def _open_file(self) -> _OutputFile:
        number = self._files_opened
        self._files_opened += 1
        pending = self._names.pending(number)
        with storage_errors("cannot create", pending):
            stream = self._target.create(pending)
        return _OutputFile(number, pending, stream, self._encoding(stream))

    def _take_files(self) -> list[_OutputFile]:
        files = self._full if self._current is None else [*self._full, self._current]
        self._full, self._current = [], None
        return files

    def _finish(self, files: Sequence[_OutputFile]) -> None:
        try:
            for file in files:
                with storage_errors("cannot write", file.pending):
                    file.encoder.finish()
                    self._target.make_durable(file.stream, file.pending)
        except BaseException:
            self._drop(files)
            raise

    def _drop(self, files: Sequence[_OutputFile]) -> None:
        for file in files:
            file.encoder.abandon()
            self._target.drop(file.stream, file.pending)
