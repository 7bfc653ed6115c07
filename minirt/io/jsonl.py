"""JSON Lines: one JSON value a line, as source and as sink."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, BinaryIO, Unpack, get_args

from minirt.errors import ConfigurationError
from minirt.io.base import BadRecord, Offset, Source, Split, SplitReader
from minirt.io.encoder import Encoder
from minirt.io.file_sink import FileOptions, FileSink
from minirt.io.files import FilePath, FilePaths, InputFiles
from minirt.io.json_text import JsonlEncoder, OnNan
from minirt.io.lines import BadLines, LineReader, OnError, check_on_error, line_splits
from minirt.units import Size, size_bytes

_SUFFIXES = (".jsonl", ".ndjson", ".json")
_BLANK = " \t\r\n"
_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


class JsonlSource(Source):
    """Reads files of JSON Lines; records are what `json.loads` makes of each line.

    `path` is a file, a folder, a glob or a list of them, on any file system of fsspec, which gets
    `storage_options`. Files are read in byte ranges of at most `split_bytes`; compressed ones (by
    their suffix: .gz, .bz2, .xz, ...) as a whole. Blank lines are passed over. A line that is no JSON
    fails the job (`on_error="fail"`), is left out and counted ("skip") or goes to the side output
    `errors` ("side_output").

    Raises ConfigurationError for options that cannot work and, when validated, for missing files.
    """

    def __init__(
        self,
        path: FilePaths,
        *,
        on_error: OnError = "fail",
        split_bytes: Size = "32MiB",
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._files = InputFiles(path, _SUFFIXES, storage_options, compressed=True)
        self.in_one_process = self._files.in_one_process
        self._on_error = check_on_error(on_error)
        self._split_bytes = size_bytes(split_bytes, "split_bytes")
        self.side_errors = on_error == "side_output"

    def plan_splits(self, parallelism: int) -> Sequence[Split]:
        return line_splits(self._files.list(), parallelism, self._split_bytes)

    def open_split(self, split: Split, offset: Offset) -> SplitReader:
        lines = LineReader(self._files, split, offset)
        return _JsonlReader(lines, BadLines(self._on_error, lines.path))

    def validate(self) -> None:
        self._files.list()


class _JsonlReader(SplitReader):
    def __init__(self, lines: LineReader, bad: BadLines) -> None:
        self._lines = lines
        self._bad = bad
        self.offset = lines.offset

    def read(self) -> list[Any] | None:
        block = self._lines.read_block()
        if block is None:
            return None
        try:
            records = _parse_block(block)
        except (ValueError, StopIteration, RecursionError):
            records = self._parse_lines(block)
        self.offset = self._lines.offset
        return records

    def take_bad_records(self) -> list[BadRecord]:
        return self._bad.take()

    def close(self) -> None:
        self._lines.close()

    def _parse_lines(self, block: bytes) -> list[Any]:
        """Line by line, for blocks with blank or bad lines in them."""
        records = []
        offset = self.offset
        for line in self._lines.split_lines(block):
            try:
                if text := line.decode().strip(_BLANK):
                    records.append(json.loads(text))
            except (ValueError, RecursionError) as error:
                self._bad.report(offset, line, f"not valid JSON ({error})")
            offset += len(line) + 1
        self.skipped = self._bad.count
        return records


def _parse_block(block: bytes) -> list[Any]:
    """All lines at once, straight through the scanner: much less work a line than `json.loads`.

    Raises ValueError or StopIteration unless every line is a JSON value with no blanks around it.
    """
    text = block.decode()
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    lines = text.removesuffix("\n").split("\n")
    scanned = [_scan(line, 0) for line in lines]
    if [end for _, end in scanned] != list(map(len, lines)):
        raise ValueError("a line goes on after its value")
    return [record for record, _ in scanned]


class JsonlSink(FileSink):
    """Writes each record as a line of JSON into files `part-*.jsonl` below the folder `path`.

    Files appear when the checkpoint that covers them has completed, each exactly once; `FileSink` says when
    files are ended, and what `roll_bytes`, `roll_interval`, `partition_by`, `existing` and
    `storage_options` do, which are given by name.

    Beside what JSON knows, records may hold all that records may be made of: datetimes, dates, times and
    timedeltas (written in ISO 8601), Decimal and UUID (as text), bytes (as base64), tuples, sets, and
    values and arrays of numpy. JSON has no NaN and no infinity: a record that holds one fails the job
    (`nan="error"`), or the number becomes null (`nan="null"`). Writers raise SinkDataError for anything
    else.
    """

    suffix = ".jsonl"

    def __init__(
        self,
        path: FilePath,
        *,
        nan: OnNan = "error",
        **files: Unpack[FileOptions],
    ) -> None:
        super().__init__(path, **files)
        if nan not in get_args(OnNan):
            raise ConfigurationError(
                f"nan must be one of {', '.join(get_args(OnNan))}, got {nan!r}"
            )
        self._nan = nan

    def encoding(self, operator: str) -> Callable[[BinaryIO], Encoder]:
        return lambda stream: JsonlEncoder(stream, operator, self._nan)

    def join(self, parts: Iterable[BinaryIO], stream: BinaryIO) -> None:
        for part in parts:
            shutil.copyfileobj(part, stream)
