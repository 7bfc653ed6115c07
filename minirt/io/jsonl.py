"""JSON Lines: one JSON value a line, as source and as sink."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from json import encoder as json_encoder
from typing import Any, BinaryIO

from minirt.data.batch import Batch
from minirt.errors import SinkDataError
from minirt.io.base import BadRecord, Offset, Source, Split, SplitReader
from minirt.io.file_sink import Encoder, FileSink
from minirt.io.files import FilePath, FilePaths, InputFiles
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

    Files appear when the checkpoint that covers them has completed, each exactly once. A file is
    ended at a checkpoint and beyond `roll_bytes`. Beside what JSON knows, records may hold datetimes,
    dates and times (written in ISO 8601), Decimal (as text), bytes (as base64), tuples, sets and
    numpy scalars. Writers raise SinkDataError for anything else.
    """

    suffix = ".jsonl"

    def __init__(
        self,
        path: FilePath,
        *,
        roll_bytes: Size = "128MiB",
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(path, roll_bytes=roll_bytes, storage_options=storage_options)

    def encoding(self, operator: str) -> Callable[[BinaryIO], Encoder]:
        return lambda stream: _JsonlEncoder(stream, operator)


class _JsonlEncoder(Encoder):
    def __init__(self, stream: BinaryIO, operator: str) -> None:
        self._stream = stream
        self._operator = operator

    def write(self, batch: Batch) -> None:
        records = batch.rows().records
        try:
            text = "\n".join([*map(_encode, records), ""]).encode()
        except (TypeError, ValueError, RecursionError):
            raise self._first_error(records) from None
        self._stream.write(text)

    def finish(self) -> None:
        """Nothing is held back."""

    def abandon(self) -> None:
        """Nothing to release."""

    def _first_error(self, records: Sequence[Any]) -> SinkDataError:
        for record in records:
            try:
                _encode(record).encode()
            except (TypeError, ValueError, RecursionError) as error:
                return SinkDataError(
                    f"{self._operator}: a record cannot be written as JSON ({error}): {record!r:.500}"
                )
        raise AssertionError("a batch failed whose records do not")


def _plain(value: Any) -> Any:
    """What JSON has no notion of, in terms of what it has."""
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, set | frozenset):
        return list(value)
    if hasattr(value, "item") and hasattr(value, "dtype"):
        return value.item()
    if type(value).__name__ == "Decimal":
        return str(value)
    raise TypeError(f"a value of type {type(value).__name__} has no form in JSON")


def _line_encoder() -> Callable[[Any], str]:
    """A function that writes one value as JSON, set up once instead of for every record."""
    encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_plain)
    make = getattr(json_encoder, "c_make_encoder", None)
    if make is None:
        return encoder.encode
    chunks = make(
        None, encoder.default, json_encoder.encode_basestring, None, ":", ",", False, False, True
    )
    return lambda value: "".join(chunks(value, 0))


_encode = _line_encoder()
