"""Spill files: where frames wait on local disk while there is no room for them in memory.

Frames are appended to a *segment*, a temporary file that has lost its name as soon as it is open: however
the process ends, nothing is left behind. Each spilled frame refers to its segment, in a queue or in what a
checkpoint captured. A segment whose last frame is gone is closed, which gives its space back; nothing
is ever overwritten. So files never need to be tidied up, and no frame can lose its bytes.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterable
from dataclasses import dataclass

from minirt.errors import StorageError
from minirt.runtime.channels.frames import HEADER, Frame
from minirt.wording import named

_SEGMENT_BYTES = 128 * 1024 * 1024
"""Space is given back in units of this. Every segment in use costs a file descriptor."""


class Spill:
    """The spilled frames of one subtask, at most `bytes_max` of them, in files in `folder`.

    None as a folder stands for the one that the system has for temporary files. Frames are added by one
    thread. They may be read, and dropped, by any.
    """

    def __init__(self, folder: str | None, bytes_max: int) -> None:
        self._folder = folder or tempfile.gettempdir()
        self.refusal = ""
        """Why the last frame that was refused found no room, for messages."""
        self._bytes_max = bytes_max
        self._segments: list[weakref.ref[_Segment]] = []
        self._refused_at: int | None = None
        """How much was in use when a frame was refused, if none was taken since."""

    @property
    def used_bytes(self) -> int:
        """The size of the segments that any frame still refers to."""
        return sum(segment.size for segment in self._live())

    @property
    def has_room(self) -> bool:
        """False from when a frame was refused until space is given back."""
        return self._refused_at is None or self.used_bytes < self._refused_at

    def add(self, frame: Frame) -> SpilledFrame | None:
        """Write a frame to disk; None if the limit is reached or the disk takes no more."""
        used = self.used_bytes
        if used + frame.size > self._bytes_max:
            self._refuse(
                used, f"{named('limits.spill_bytes_max')} ({self._bytes_max}) allows no more"
            )
            return None
        try:
            segment = self._segment()
            offset = segment.append(frame.wire())
        except OSError as error:
            self._refuse(used, f"the disk takes no more ({error})")
            return None
        self._refused_at = None
        return SpilledFrame(frame.kind, frame.size, frame.records, segment, offset)

    def _refuse(self, used: int, reason: str) -> None:
        self._refused_at = used
        self.refusal = f"{used} bytes of its output wait in {self._folder}, and {reason}"

    def _segment(self) -> _Segment:
        """The newest segment, or another one if that is full or nobody needs it any more."""
        live = self._live()
        if live and live[-1].size < _SEGMENT_BYTES:
            return live[-1]
        segment = _Segment(self._folder)
        self._segments = [weakref.ref(each) for each in [*live, segment]]
        return segment

    def _live(self) -> list[_Segment]:
        return [segment for each in self._segments if (segment := each()) is not None]


@dataclass(frozen=True, slots=True)
class SpilledFrame:
    """A data frame that waits on disk. It is used like a Frame, but for its payload: `load` first."""

    kind: int
    size: int
    records: int
    _segment: _Segment
    _offset: int

    @property
    def is_data(self) -> bool:
        return True

    def load(self) -> Frame:
        """The frame itself. Raises StorageError if it cannot be read."""
        return Frame(self.kind, self.wire()[HEADER.size :], self.records)

    def wire(self) -> bytes:
        """Its form on a wire. Raises StorageError if it cannot be read."""
        return self._segment.read(self._offset, self.size)


@dataclass(slots=True)
class Room:
    """Room for frames that have to be kept: so many bytes in memory, and beyond that on disk.

    Those that the disk does not take stay in memory all the same: what a job could capture must come back.
    """

    memory_bytes: int
    """What is left of it."""
    spill: Spill

    def keep(self, frames: Iterable[Frame]) -> list[Frame | SpilledFrame]:
        """The frames as they are kept."""
        kept: list[Frame | SpilledFrame] = []
        for frame in frames:
            spilled = self.spill.add(frame) if frame.size > self.memory_bytes else None
            if spilled is None:
                self.memory_bytes -= frame.size
            kept.append(spilled or frame)
        return kept

    def give_back(self, frames: Iterable[Frame | SpilledFrame]) -> None:
        """These are not kept any longer."""
        self.memory_bytes += sum(frame.size for frame in frames if isinstance(frame, Frame))


class _Segment:
    """A file without a name, open until the last reference to it is gone."""

    def __init__(self, folder: str) -> None:
        self.size = 0
        self._folder = folder
        self._descriptor, path = tempfile.mkstemp(prefix="spill-", dir=folder)
        weakref.finalize(self, os.close, self._descriptor)
        os.unlink(path)

    def append(self, data: bytes) -> int:
        """Write at the end, and return where that is; what a failed write has left does not count."""
        start, rest = self.size, memoryview(data)
        while rest:
            rest = rest[os.pwrite(self._descriptor, rest, start + len(data) - len(rest)) :]
        self.size = start + len(data)
        return start

    def read(self, offset: int, size: int) -> bytes:
        data = b""
        try:
            while len(data) < size:
                part = os.pread(self._descriptor, size - len(data), offset + len(data))
                if not part:
                    raise OSError("it is cut short")
                data += part
        except OSError as error:
            raise StorageError(f"cannot read a spill file ({error})", self._folder) from error
        return data
