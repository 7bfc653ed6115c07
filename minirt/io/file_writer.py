"""Writes the records of one subtask into pending files, and hands these over at snapshots."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from minirt.data.batch import Batch
from minirt.io.base import Handle, Prepared, SinkWriter
from minirt.io.encoder import Encoder, NextFile
from minirt.io.file_names import FileNames
from minirt.io.partitions import Partitioner
from minirt.io.target_folder import TargetFolder, storage_errors

OPEN_FILES_MAX = 64
"""How many files of partitions are open side by side; beyond that, the writer ends the one that waits
longest."""

Join = Callable[[Iterable[BinaryIO], BinaryIO], None]
"""Writes the records of several files, which each pass opens one after another, into one."""


@dataclass(frozen=True, slots=True)
class Rolling:
    """When files are ended, and how those that were held back become one; `interval_s` None: never."""

    bytes: int
    interval_s: float | None
    join: Join


@dataclass(slots=True)
class _OutputFile:
    partition: str
    number: int
    pending: str
    stream: BinaryIO
    encoder: Encoder
    opened_at: float
    rows: int = 0
    finished: bool = False


@dataclass(slots=True)
class _Held:
    """Files of one partition that are durable, or will be with this snapshot, and wait to become one."""

    number: int
    final: str
    since: float
    like: object
    bytes: int = 0
    handles: list[Handle] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Joined:
    """One file that is still to be made of others."""

    pending: str
    parts: tuple[str, ...]


class FileWriter(SinkWriter):
    """Ends its files at each snapshot. With an interval it holds them back, and joins them after it."""

    def __init__(
        self,
        target: TargetFolder,
        names: FileNames,
        encoding: Callable[[BinaryIO], Encoder],
        rolling: Rolling,
        partitioner: Partitioner | None,
    ) -> None:
        self._target = target
        self._names = names
        self._encoding = encoding
        self._rolling = rolling
        self._partitioner = partitioner
        self._files_named = 0
        self._open: dict[str, _OutputFile] = {}
        """By partition, those that were written to last at the end."""
        self._full: list[_OutputFile] = []
        self._held: dict[str, _Held] = {}
        self._due: list[_Held] = []
        """What was held back and cannot be joined with what came later."""
        self._released = False

    def write(self, batch: Batch) -> None:
        if len(batch) == 0:
            return
        if self._partitioner is None:
            self._write("", batch)
            return
        for partition, part in self._partitioner.split(batch):
            self._write(partition, part)

    def prepare(self, checkpoint_id: int) -> Prepared:
        files, joined = self._take_files(), list[_Joined]()
        if self._rolling.interval_s is None:
            handles = [self._handle(file, checkpoint_id) for file in files]
        else:
            self._hold(files, checkpoint_id)
            handles = self._release(joined)
        if not handles:
            return Prepared()
        return Prepared(handles, lambda: self._finish_all(files, joined))

    def release(self) -> None:
        self._released = True

    def close(self) -> None:
        self._drop(self._take_files())

    def _write(self, partition: str, batch: Batch) -> None:
        file = self._open.pop(partition, None) or self._open_file(partition)
        self._open[partition] = file
        with storage_errors("cannot write", file.pending):
            try:
                file.encoder.write(batch)
            except NextFile:
                self._full.append(self._open.pop(partition))
                file = self._open[partition] = self._open_file(partition)
                file.encoder.write(batch)
            file.rows += len(batch)
            if file.stream.tell() >= self._rolling.bytes:
                self._full.append(self._open.pop(partition))

    def _open_file(self, partition: str) -> _OutputFile:
        while len(self._open) >= OPEN_FILES_MAX:
            longest = self._open.pop(next(iter(self._open)))
            self._full.append(longest)
            self._finish(longest)
        number = self._next_number()
        pending = self._names.pending(number)
        with storage_errors("cannot create", pending):
            stream = self._target.create(pending)
        encoder = self._encoding(stream)
        return _OutputFile(partition, number, pending, stream, encoder, time.monotonic())

    def _next_number(self) -> int:
        self._files_named += 1
        return self._files_named - 1

    def _take_files(self) -> list[_OutputFile]:
        files = [*self._full, *self._open.values()]
        self._full, self._open = [], {}
        return files

    def _handle(self, file: _OutputFile, checkpoint_id: int) -> Handle:
        final = self._names.final(file.number, checkpoint_id, file.partition)
        return {"pending": file.pending, "final": final, "rows": file.rows}

    # Holding back

    def _hold(self, files: Sequence[_OutputFile], checkpoint_id: int) -> None:
        for file in files:
            held = self._held.get(file.partition)
            if held is not None and held.like != file.encoder.like:
                self._due.append(self._held.pop(file.partition))
                held = None
            if held is None:
                number, like = self._next_number(), file.encoder.like
                final = self._names.final(number, checkpoint_id, file.partition)
                held = self._held[file.partition] = _Held(number, final, file.opened_at, like)
            held.handles.append({**self._handle(file, checkpoint_id), "joined": held.final})
            held.bytes += 0 if file.finished else file.stream.tell()

    def _release(self, joined: list[_Joined]) -> list[Handle]:
        """The handles of all that is held back, where it is due in one piece."""
        now = time.monotonic()
        handles = [self._joined(held, joined) for held in self._due]
        self._due = []
        for partition, held in list(self._held.items()):
            if not self._is_due(held, now):
                handles += held.handles
                continue
            del self._held[partition]
            handles.append(self._joined(held, joined))
        self._released = False
        return handles

    def _is_due(self, held: _Held, now: float) -> bool:
        interval_s = self._rolling.interval_s
        assert interval_s is not None
        return self._released or now - held.since >= interval_s or held.bytes >= self._rolling.bytes

    def _joined(self, held: _Held, joined: list[_Joined]) -> Handle:
        if len(held.handles) == 1:
            return {name: held.handles[0][name] for name in ("pending", "final", "rows")}
        parts = tuple(handle["pending"] for handle in held.handles)
        pending = self._names.pending(held.number)
        joined.append(_Joined(pending, parts))
        rows = sum(handle["rows"] for handle in held.handles)
        return {"pending": pending, "final": held.final, "rows": rows, "parts": list(parts)}

    # Making durable, outside of the record path

    def _finish_all(self, files: Sequence[_OutputFile], joined: Sequence[_Joined]) -> None:
        try:
            for file in files:
                self._finish(file)
            for one in joined:
                self._join(one)
        except BaseException:
            self._drop(files)
            raise

    def _finish(self, file: _OutputFile) -> None:
        if file.finished:
            return
        with storage_errors("cannot write", file.pending):
            file.encoder.finish()
            self._target.make_durable(file.stream, file.pending)
        file.finished = True

    def _join(self, joined: _Joined) -> None:
        with storage_errors("cannot write", joined.pending):
            stream = self._target.create(joined.pending)
            try:
                self._rolling.join(_Parts(self._target, joined.parts), stream)
                self._target.make_durable(stream, joined.pending)
            except BaseException:
                self._target.drop(stream, joined.pending)
                raise

    def _drop(self, files: Sequence[_OutputFile]) -> None:
        for file in files:
            file.encoder.abandon()
            self._target.drop(file.stream, file.pending)


class _Parts(Iterable[BinaryIO]):
    """Files as streams, one open at a time; each pass opens them anew."""

    def __init__(self, target: TargetFolder, paths: Sequence[str]) -> None:
        self._target = target
        self._paths = paths

    def __iter__(self) -> Iterator[BinaryIO]:
        for path in self._paths:
            with self._target.open(path) as stream:
                yield stream
