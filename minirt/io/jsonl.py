"""JSON Lines: one JSON value a line, as source and as sink."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, BinaryIO, Unpack, get_args

import pyarrow as pa

from minirt.errors import ConfigurationError
from minirt.io.base import Offset, OnError, Split, SplitReader
from minirt.io.encoder import Encoder
from minirt.io.file_sink import FileOptions, FileSink
from minirt.io.files import FilePath, FilePaths, InputFiles
from minirt.io.json_columns import checked_schema, explained, read_lines
from minirt.io.json_text import JsonlEncoder, OnNan
from minirt.io.lines import (
    BadLines,
    LineReader,
    TextReader,
    check_on_error,
    line_splits,
    whole_file,
)
from minirt.io.remembered import Accept, checked_accept
from minirt.io.watching import FileSource, Watch
from minirt.units import Duration, Size, size_bytes

_SUFFIXES = (".jsonl", ".ndjson", ".json")
_COLUMN_BLOCKS = 4
"""Arrow's reader takes less for each line of a larger block; beyond 1 MiB it hardly gains."""
_BLANK = " \t\r\n"
_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


class JsonlSource(FileSource[Any]):
    """Reads files of JSON Lines; records are what `json.loads` makes of each line.

    `path` is a file, a folder, a glob or a list of them, on any file system of fsspec, which gets
    `storage_options`. Files are read in byte ranges of at most `split_bytes`; compressed ones (by
    their suffix: .gz, .bz2, .xz, ...) as a whole. Blank lines are passed over. A line that is no JSON
    fails the job (`on_error="fail"`), is left out and counted ("skip") or goes to the side output
    `errors` ("side_output").

    With `schema` each line must be an object, and what is read are columns of that schema, which takes less
    time, above all of short records: fields that it does not name are left out, and missing ones are null.
    Timestamps, dates, times of day and durations are ISO texts, or numbers: counts of the unit of their
    type. A text has an offset from UTC if its type has a zone, and none otherwise. A line whose values do
    not fit counts as one that is no JSON.

    With `watch`, a duration, the source never ends: it looks that often for files that were added to the
    folder `path`, and reads each once, compressed ones too. A file must come whole: write it under a name
    that begins with a dot, and rename it.

    A checkpoint remembers the path. A job that is restored with another one is refused with a
    SourceChangedError; accept="other" says that the same files lie there now.

    Raises ConfigurationError for options that cannot work and, when validated, for missing files.
    """

    def __init__(
        self,
        path: FilePaths,
        *,
        schema: pa.Schema | None = None,
        on_error: OnError = "fail",
        split_bytes: Size = "32MiB",
        watch: Duration | None = None,
        storage_options: Mapping[str, Any] | None = None,
        accept: Accept | Sequence[Accept] = (),
    ) -> None:
        self.accept = checked_accept(accept)
        self._files = InputFiles(path, _SUFFIXES, storage_options, compressed=True)
        self.in_one_process = self._files.in_one_process
        self._schema = None if schema is None else checked_schema(schema)
        self.on_error: OnError = check_on_error(on_error)
        self._split_bytes = size_bytes(split_bytes, "split_bytes")
        self.side_errors = on_error == "side_output"
        self._watch = Watch(self._files, watch)
        self.bounded = not self._watch

    def plan_splits(self, parallelism: int) -> Sequence[Split]:
        if self._watch:
            return self._watch.splits(parallelism)
        return line_splits(self._files.list(), parallelism, self._split_bytes)

    def open_split(self, split: Split, offset: Offset) -> SplitReader:
        return self._watch.reader(self._open, whole_file, split, offset)

    def schema(self) -> pa.Schema | None:
        return self._schema

    def validate(self) -> None:
        self._watch.check()

    def _open(self, split: Split, offset: Offset) -> SplitReader:
        times = 1 if self._schema is None else _COLUMN_BLOCKS
        lines = LineReader(self._files, split, offset, times=times)
        bad = BadLines(self.on_error, lines.path)
        if self._schema is None:
            return _JsonlReader(lines, bad)
        return _ColumnsReader(lines, bad, self._schema)


class _JsonlReader(TextReader):
    blank = _BLANK.encode()

    def read(self) -> list[Any] | None:
        block = self._lines.read_block()
        if block is None:
            return None
        self._begin(block, self.offset)
        try:
            records = _parse_block(block)
        except (ValueError, StopIteration, RecursionError):
            records = self._parse_lines(block)
        self.offset = self._lines.offset
        return records

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


class _ColumnsReader(TextReader):
    """Gives columns: of a whole block at once, and line by line where one of its lines is bad."""

    blank = _BLANK.encode()

    def __init__(self, lines: LineReader, bad: BadLines, schema: pa.Schema) -> None:
        super().__init__(lines, bad)
        self._schema = schema

    def read(self) -> pa.RecordBatch | None:
        block = self._lines.read_block()
        if block is None:
            return None
        self._begin(block, self.offset)
        try:
            batch = read_lines(block, self._schema)
        except pa.ArrowException:
            batch = self._read_lines(block)
        self.offset = self._lines.offset
        return batch

    def _read_lines(self, block: bytes) -> pa.RecordBatch:
        batches = [pa.RecordBatch.from_pylist([], self._schema)]
        offset = self.offset
        for line in self._lines.split_lines(block):
            if text := line.strip(_BLANK.encode()):
                try:
                    batches.append(read_lines(text, self._schema))
                except pa.ArrowException as error:
                    reason = explained(text, self._schema, error)
                    self._bad.report(offset, line, f"not valid JSON for the schema ({reason})")
            offset += len(line) + 1
        self.skipped = self._bad.count
        [batch] = pa.Table.from_batches(batches).combine_chunks().to_batches() or batches[:1]
        return batch


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
