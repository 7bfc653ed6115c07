"""Standard streams that outlive their readers: what nobody reads any more is dropped, and kills nobody.

`minirt run job.py | head -1` closes the pipe after one line. A job goes on then, and so do the workers
that print; a program that has nothing to do but to print may ask `is_read` and end.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any, TextIO

_STREAMS = ((1, "stdout"), (2, "stderr"))


class _Outlet(io.FileIO):
    """Writes to a descriptor as long as anybody reads it."""

    is_read = True

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._was_terminal = os.isatty(descriptor)

    def write(self, data: Any, /) -> int:
        if self.is_read:
            try:
                return super().write(data)
            except OSError as error:
                # A terminal that is gone says EIO. Elsewhere that is a disk which fails: nothing to hide.
                lost = error.errno == errno.EPIPE or (
                    error.errno == errno.EIO and self._was_terminal
                )
                if not lost:
                    raise
                self.is_read = False
        return memoryview(data).nbytes


def outlive_readers() -> None:
    """Have standard output and standard error of this process outlive whoever reads them.

    Streams that somebody has put in their place are left alone. Descriptors that are closed lead
    nowhere from now on, here and in processes that this one starts: else the next file or socket
    would be taken for standard output.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for descriptor, name in _STREAMS:
        ours: TextIO | None = getattr(sys, f"__{name}__")
        if getattr(sys, name) is ours:
            outliving = _outliving(descriptor, ours)
            setattr(sys, name, outliving)
            setattr(sys, f"__{name}__", outliving)


def is_read(stream: TextIO | None) -> bool:
    """False once nobody will read what is written to it."""
    buffer = getattr(stream, "buffer", None)
    raw = getattr(buffer, "raw", None)
    return not isinstance(raw, _Outlet) or raw.is_read


def flush_or_drop(stream: TextIO) -> OSError | None:
    """Write what waits in the buffer. What cannot be written is dropped: Python would try again at exit."""
    try:
        stream.flush()
    except OSError as error:
        raw = getattr(getattr(stream, "buffer", None), "raw", None)
        if isinstance(raw, _Outlet):
            raw.is_read = False
            stream.flush()
        return error
    return None


def _outliving(descriptor: int, before: TextIO | None) -> TextIO:
    if before is None:
        # It was closed when Python started: what has the number by now is somebody's file or socket.
        descriptor = os.open(os.devnull, os.O_WRONLY)
    buffer = io.BufferedWriter(_Outlet(descriptor))
    if not isinstance(before, io.TextIOWrapper):
        return io.TextIOWrapper(buffer, encoding="utf-8", errors="backslashreplace")
    before.flush()
    return io.TextIOWrapper(
        buffer,
        encoding=before.encoding,
        errors=before.errors,
        line_buffering=before.line_buffering,
        write_through=before.write_through,
    )
