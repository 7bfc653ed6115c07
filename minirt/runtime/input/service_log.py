"""The log of a service order, in small files that outlive the process.

An entry is written before what it leads to is done: one write of 16 bytes for each piece of records. The
page cache of the host has it then, whatever becomes of the process. Nothing is forced to disk: if the host
is gone, so are all workers, and the whole job restarts.

There is one file for each segment. Where a segment cannot be written to its end, or the log would hold more
than it may, its file is removed: so no reader takes a part of the log for the whole, and the subtask cannot
come back alone before a checkpoint holds a later snapshot of it.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from minirt.errors import StorageError
from minirt.monitoring.logs import logger_of
from minirt.protocol.ids import SubtaskId
from minirt.protocol.service_order import (
    Determinant,
    Done,
    Fired,
    InputOver,
    Passed,
    Read,
    Segment,
    Served,
    order_since,
)
from minirt.wording import named

_ENTRY = struct.Struct("<iiq")
"""A channel, or one of the following; whether the input is idle, or a place; records, watermark, number or
time."""
ENTRY_BYTES = _ENTRY.size
_EVENT_TIME, _OVER, _BEGIN, _NEXT, _READ, _FIRED = -1, -2, -3, -4, -5, -6
_NO_WATERMARK = -(2**63)
_IDLE = {None: 0, False: 1, True: 2}
_IDLE_OF = {code: idle for idle, code in _IDLE.items()}

logger = logger_of("order")


class LogFile(Protocol):
    """One file that grows."""

    def append(self, data: bytes) -> None:
        """Write at the end. Raises OSError."""

    def close(self) -> None:
        """Nothing more is written."""


class LogFiles(Protocol):
    """A folder for such files, which outlives the process. All methods raise OSError."""

    def names(self) -> Sequence[str]:
        """What is there."""

    def open(self, name: str, size: int = 0) -> LogFile:
        """A file, made if it is not there, cut to so many bytes."""

    def read(self, name: str) -> bytes:
        """All of a file."""

    def remove(self, name: str) -> None:
        """Remove a file; it may be gone already."""


class FolderFiles:
    """`LogFiles` in a folder of the host."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def names(self) -> Sequence[str]:
        return os.listdir(self._folder)

    def open(self, name: str, size: int = 0) -> LogFile:
        return _FolderFile(self._folder / name, size)

    def read(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()

    def remove(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)


class _FolderFile:
    def __init__(self, path: Path, size: int) -> None:
        self._descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        try:
            os.ftruncate(self._descriptor, size)
        except OSError:
            self.close()
            raise

    def append(self, data: bytes) -> None:
        if os.write(self._descriptor, data) < len(data):
            raise OSError("the disk takes no more")

    def close(self) -> None:
        os.close(self._descriptor)


class ServiceLog:
    """That of one subtask in one generation, in all its lives. It holds at most `bytes_max`."""

    def __init__(
        self, files: LogFiles, generation: int, subtask: SubtaskId, name: str, bytes_max: int
    ) -> None:
        self._files = files
        self._owner = f"order-v{subtask.vertex}-s{subtask.index}-g"
        self._prefix = f"{self._owner}{generation}-n"
        self._name = name
        self._bytes_max = bytes_max
        self._sizes: dict[int, int] = {}
        """Of the segments that are kept, by number."""
        self._bytes = 0
        """Of all of them."""
        self._number = 0
        self._file: LogFile | None = None
        """That of the last segment; None ahead of the first snapshot, and where it could not be written."""

    def begin(self) -> None:
        """A generation begins: what an earlier one has left is of no use."""
        for name in self._files.names():
            if name.startswith(self._owner):
                self._files.remove(name)

    def go_on(self, number: int) -> tuple[Determinant, ...]:
        """What earlier lives did behind the snapshot of this number; what this one does goes behind that.

        Raises StorageError if not all of it is known, or the files cannot be read or written on.
        """
        try:
            return self._go_on(number)
        except OSError as error:
            raise StorageError(
                f"{self._name} cannot come back alone: the log of the order in which it read its channels "
                f"cannot be read and written on ({error}). Look after the disk of its host: "
                "a restart of the whole job does not need this log",
                self._prefix + str(number),
            ) from error

    def _go_on(self, number: int) -> tuple[Determinant, ...]:
        found = {
            int(name.removeprefix(self._prefix)): self._files.read(name)
            for name in self._files.names()
            if name.startswith(self._prefix)
        }
        order = order_since(number, {n: _segment(data) for n, data in found.items()})
        if order is None:
            raise StorageError(
                f"{self._name} cannot come back alone: the order in which it read its channels could not "
                "be kept, as an earlier warning says",
                self._prefix + str(number),
            )
        self._sizes = {n: _whole(data) for n, data in found.items()}
        self._bytes = sum(self._sizes.values())
        self._number = order.last
        self._file = self._open(order.last, self._sizes[order.last])
        return order.determinants

    def add(self, determinant: Determinant) -> None:
        """Write down what is done next."""
        self.write(_packed(determinant))

    def served(self, channel: int, records: int) -> None:
        """The same for what comes most often."""
        self.write(_ENTRY.pack(channel, 0, records))

    def write(self, entry: bytes) -> None:
        if self._file is None:
            return
        if self._bytes >= self._bytes_max:
            self._give_up(
                f"it holds {self._bytes} bytes: see the limit {named('limits.order_log_bytes')}"
            )
            return
        try:
            self._file.append(entry)
        except OSError as error:
            self._give_up(str(error))
            return
        self._bytes += len(entry)
        self._sizes[self._number] += len(entry)

    def begin_segment(self, number: int, state: Sequence[Done]) -> None:
        """A local snapshot of this number was taken."""
        head = b"".join(map(_packed, state)) + _ENTRY.pack(_BEGIN, 0, 0)
        file = None
        try:
            file = self._open(number, 0)
            file.append(head)
        except OSError as error:
            if file is not None:
                file.close()
            self._files.remove(self._prefix + str(number))
            self._give_up(str(error))
            return
        self.write(_ENTRY.pack(_NEXT, 0, number))
        if self._file is not None:
            self._file.close()
        self._number, self._file = number, file
        self._sizes[number] = len(head)
        self._bytes += len(head)

    def forget(self, number: int) -> None:
        """Nobody falls back behind the snapshot of this number any more."""
        for old in [n for n in self._sizes if n < number and n != self._number]:
            self._files.remove(self._prefix + str(old))
            self._bytes -= self._sizes.pop(old)

    def _open(self, number: int, size: int) -> LogFile:
        return self._files.open(self._prefix + str(number), size)

    def _give_up(self, why: str) -> None:
        """The last segment is of no use without its rest."""
        if self._file is None:
            return
        logger.warning(
            "%s cannot come back alone before the next checkpoint: the order in which it reads its "
            "channels cannot be kept (%s)",
            self._name,
            why,
        )
        self._file.close()
        self._file = None
        self._files.remove(self._prefix + str(self._number))
        self._bytes -= self._sizes.pop(self._number)


def _packed(determinant: Determinant) -> bytes:
    match determinant:
        case Served(channel, records):
            return _ENTRY.pack(channel, 0, records)
        case Passed(watermark, idle):
            at = _NO_WATERMARK if watermark is None else watermark
            return _ENTRY.pack(_EVENT_TIME, _IDLE[idle], at)
        case InputOver():
            return _ENTRY.pack(_OVER, 0, 0)
        case Read(ms):
            return _ENTRY.pack(_READ, 0, ms)
        case Fired(place, ms):
            return _ENTRY.pack(_FIRED, place, ms)


def _whole(data: bytes) -> int:
    """The size without an entry that was not written to its end: nothing has come of that."""
    return len(data) - len(data) % ENTRY_BYTES


def _segment(data: bytes) -> Segment:
    state: tuple[Done, ...] = ()
    found: list[Determinant] = []
    following: int | None = None
    for what, detail, value in _ENTRY.iter_unpack(data[: _whole(data)]):
        if what >= 0:
            found.append(Served(what, value))
        elif what == _BEGIN:
            state, found = tuple(one for one in found if not isinstance(one, Served)), []
        elif what == _NEXT:
            following = value
        else:
            found.append(_done(what, detail, value))
    return Segment(state, tuple(found), following)


def _done(what: int, detail: int, value: int) -> Done:
    if what == _READ:
        return Read(value)
    if what == _FIRED:
        return Fired(detail, value)
    if what == _OVER:
        return InputOver()
    return Passed(None if value == _NO_WATERMARK else value, _IDLE_OF[detail])
