"""Lines of text files: byte-range splits, blocks of whole lines, and what happens to bad ones."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from os import SEEK_END
from typing import get_args

import numpy as np

from minirt.errors import BadRecordError, ConfigurationError, SourceDataError
from minirt.filesystems import explain, failures
from minirt.io.base import BadRecord, OnError, Split, SplitReader
from minirt.io.compressed import DAMAGED
from minirt.io.files import InputFile, InputFiles, compression_of, split_target

GOES_ON = 'on_error="skip" or "side_output" goes on without it'
"""What errors of a bad record advise."""

BLOCK_BYTES = 256 * 1024
"""How much text is parsed at a time."""
BLOCK_LINES = 8192
"""How many lines are parsed at a time at most."""
LINE_BYTES_MAX = 64 * 1024 * 1024
"""A longer line is refused: it would have to be held in memory as a whole."""

_TEXT_SHOWN = 200
_BOM = b"\xef\xbb\xbf"


def whole_file(path: str) -> Split:
    """A file as one split."""
    return Split(path, {"path": path, "start": 0, "end": None})


def line_splits(
    files: Sequence[InputFile], parallelism: int, split_bytes: int, *, whole: bool = False
) -> list[Split]:
    """Splits of byte ranges of about `split_bytes`; one a file for compressed ones and with `whole`."""
    target = split_target(sum(file.size for file in files), parallelism, split_bytes)
    splits = []
    for file in files:
        if file.size == 0:
            continue
        if whole or compression_of(file.path):
            splits.append(Split(file.path, {"path": file.path, "start": 0, "end": None}))
            continue
        parts = -(-file.size // target)
        bounds = [part * file.size // parts for part in range(parts + 1)]
        for start, end in pairwise(bounds):
            info = {"path": file.path, "start": start, "end": end}
            splits.append(Split(f"{file.path}:{start}", info))
    return splits


class LineReader:
    """Blocks of the whole lines that begin in one byte range of a file.

    A line belongs to the range that holds its first byte. `offset` is the position, in bytes of the
    decompressed file, of the first line not yet returned. With `quoted`, newlines between double
    quotes do not end a line. Blocks are up to `times` as large as others, for parsers that take long to
    begin. All methods raise SourceDataError if the file cannot be read.
    """

    def __init__(
        self,
        files: InputFiles,
        split: Split,
        offset: int | None,
        *,
        quoted: bool = False,
        times: int = 1,
    ) -> None:
        self.path: str = split.info["path"]
        start: int = split.info["start"]
        self._end: float = float("inf") if split.info["end"] is None else split.info["end"]
        self._quoted = quoted
        self._block_bytes = times * BLOCK_BYTES
        self._block_lines = times * BLOCK_LINES
        self._buffer = b""
        self._stream, self._open = files.open(self.path)
        self.offset = start if offset is None else offset
        with ExitStack() as on_error:
            on_error.callback(self.close)
            if offset is None and start > 0:
                self._skip_to_line_start(start)
            else:
                self._seek(self.offset)
            on_error.pop_all()

    def read_block(self) -> bytes | None:
        """The next whole lines of about a block; None when the range is read."""
        while self.offset < self._end:
            cut = self._whole_lines()
            if cut:
                return self._take(cut)
            if len(self._buffer) > LINE_BYTES_MAX:
                raise SourceDataError(
                    f"{self.path}, byte {self.offset}: a line is longer than {LINE_BYTES_MAX} bytes; "
                    f"is this a text file with one record a line? It begins {_shown(self._buffer)}"
                )
            chunk = self._read(max(self._block_bytes, len(self._buffer)))
            if not chunk:
                return self._take(len(self._buffer)) or None
            self._buffer += chunk
            if self.offset == 0 and self._buffer.startswith(_BOM):
                self._take(len(_BOM))
        return None

    def count_lines(self, block: bytes) -> int:
        """How many lines a block has."""
        if self._quoted:
            return len(self.split_lines(block))
        return block.count(b"\n") + (not block.endswith(b"\n"))

    def split_lines(self, block: bytes) -> list[bytes]:
        """The lines of a block, without the newlines between them."""
        if not self._quoted:
            return block.removesuffix(b"\n").split(b"\n")
        ends = [*_line_ends_outside_quotes(block).tolist(), len(block)]
        starts = [0, *ends]
        return [
            block[start:end].removesuffix(b"\n")
            for start, end in zip(starts, ends, strict=False)
            if start < end
        ]

    def close(self) -> None:
        self._open.close()

    def _whole_lines(self) -> int:
        """How many bytes of the buffer to return: whole lines that begin before the range's end."""
        buffer = self._buffer
        if self._quoted:
            ends = _line_ends_outside_quotes(buffer)[: self._block_lines]
            return int(ends[-1]) if len(ends) else 0
        limit = len(buffer)
        room = self._end - self.offset
        if room <= limit:
            last = buffer.find(b"\n", int(room) - 1)
            limit = last + 1 if last >= 0 else limit
        cut = buffer.rfind(b"\n", 0, limit) + 1
        is_newline = np.frombuffer(buffer, np.uint8, cut) == ord("\n")
        if np.count_nonzero(is_newline) > self._block_lines:  # Takes a fifth of `buffer.count`.
            cut = int(np.flatnonzero(is_newline)[self._block_lines - 1]) + 1
        return cut

    def _take(self, count: int) -> bytes:
        block, self._buffer = self._buffer[:count], self._buffer[count:]
        self.offset += count
        return block

    def _skip_to_line_start(self, start: int) -> None:
        """Go to the first line that begins at `start` or later."""
        self._seek(start - 1)
        self.offset = start - 1
        while chunk := self._read(BLOCK_BYTES):
            newline = chunk.find(b"\n")
            if newline >= 0:
                self._buffer = chunk[newline + 1 :]
                self.offset += newline + 1
                return
            self.offset += len(chunk)

    def _seek(self, position: int) -> None:
        try:
            if position > 0 and self._end != float("inf"):
                exists = position <= self._stream.seek(0, SEEK_END)
            else:
                exists = True
            reached = self._stream.seek(position)
        except failures(*DAMAGED) as error:
            raise SourceDataError(f"cannot read {self.path}: {explain(error)}") from error
        if reached != position or not exists:
            raise SourceDataError(
                f"{self.path} ends before byte {position}, where reading should go on: "
                "the file was changed after the job had started"
            )

    def _read(self, count: int) -> bytes:
        try:
            return self._stream.read(count)
        except failures(*DAMAGED) as error:
            raise SourceDataError(f"cannot read {self.path} on: {explain(error)}") from error


class BadLines:
    """Handles text that does not parse, as the `on_error` option of a source says."""

    def __init__(self, on_error: OnError, path: str) -> None:
        self._on_error = on_error
        self._path = path
        self._kept: list[BadRecord] = []
        self.count = 0
        self.of_block: set[int] = set()
        """The offsets of those in the block that was read last."""

    def report(self, offset: int, text: bytes, error: str) -> None:
        """Count a bad line, and keep it for the side output. Raises BadRecordError with "fail"."""
        location = f"{self._path}, byte {offset}"
        if self._on_error == "fail":
            raise BadRecordError(f"{location}: {error}: {_shown(text)}; {GOES_ON}")
        self.count += 1
        self.of_block.add(offset)
        if self._on_error == "side_output":
            self._kept.append(BadRecord.of(location, text, error))

    def take(self) -> list[BadRecord]:
        """The bad lines that were kept since the last call."""
        taken, self._kept = self._kept, []
        return taken


class TextReader(SplitReader):
    """A reader of lines. Who inherits it moves `offset` on, and reports what does not parse to `_bad`."""

    blank = b"\r"
    """What a line is made of that holds no record."""

    def __init__(self, lines: LineReader, bad: BadLines) -> None:
        self._lines = lines
        self._bad = bad
        self._block = b""
        self._block_start = 0
        self.offset = lines.offset

    def take_bad_records(self) -> list[BadRecord]:
        return self._bad.take()

    def locate(self, places: Sequence[int]) -> Sequence[tuple[str, bytes] | None]:
        offset, found = self._block_start, []
        for line in self._lines.split_lines(self._block):
            if line.strip(self.blank) and offset not in self._bad.of_block:
                found.append((f"{self._lines.path}, byte {offset}", line))
            offset += len(line) + 1
        return [found[place] if place < len(found) else None for place in places]

    def _begin(self, block: bytes, start: int) -> None:
        """Remember the block whose records are the next batch, for `locate`."""
        self._block, self._block_start = block, start
        self._bad.of_block.clear()

    def close(self) -> None:
        self._lines.close()


def check_on_error(value: str) -> OnError:
    """The value, if it is one that `on_error` knows. Raises ConfigurationError otherwise."""
    for allowed in get_args(OnError):
        if value == allowed:
            return allowed  # type: ignore[no-any-return]
    raise ConfigurationError(
        f"on_error must be one of {', '.join(get_args(OnError))}, got {value!r}"
    )


def _line_ends_outside_quotes(text: bytes) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    data = np.frombuffer(text, np.uint8)
    inside = np.bitwise_xor.accumulate(data == ord('"'))
    return np.flatnonzero((data == ord("\n")) & ~inside) + 1


def _shown(text: bytes) -> str:
    shown = repr(text[:_TEXT_SHOWN].decode(errors="replace"))
    return shown if len(text) <= _TEXT_SHOWN else f"{shown}… ({len(text)} bytes)"
