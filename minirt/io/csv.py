"""CSV files as source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from minirt.errors import ConfigurationError, SourceDataError
from minirt.io.base import Offset, OnError, Split, SplitReader
from minirt.io.csv_format import BlockParser, CsvFormat, arrow_type
from minirt.io.files import FilePaths, InputFiles, checked_columns, refuse_unknown
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

_SUFFIXES = (".csv",)
_SAMPLE_BYTES = 1 << 20


class CsvSource(FileSource[dict[str, Any]]):
    """Reads CSV files as record batches.

    `path` is a file, a folder, a glob or a list of them, on any file system of fsspec, which gets
    `storage_options`. With a `header`, each file's columns are found by its own first line, and
    `columns` limits and orders what is read; without one, `columns` names what the files hold (f0,
    f1, ... by default). `types` maps columns to Arrow types, their names ("int64", "date32",
    "timestamp[us]", ...; "int" and "float" are 64 bits wide) or Python types (float, datetime, ...);
    the types of other columns are inferred from the first MiB of the first file and then hold for all.
    Whole numbers keep all their digits: those beyond 64 bits are uint64, decimals or text, and codes with
    leading zeros are text. Text is UTF-8; a row in another encoding does not parse.
    A field that is one of `null_values` and not in quotes is None.

    Files are read in byte ranges of at most `split_bytes`, compressed ones as a whole. A quoted field
    must not hold a newline unless `multiline=True`, which makes every file one split. A row that does
    not parse fails the job (`on_error="fail"`), is left out and counted ("skip") or goes to the side
    output `errors` ("side_output").

    With `watch`, a duration, the source never ends: it looks that often for files that were added to the
    folder `path`, and reads each once, as a whole. Then `types` must name all columns, as there may be no
    file yet to find them in. A file must come whole: write it under a name that begins with a dot, and
    rename it.

    A checkpoint remembers the path. A job that is restored with another one is refused with a
    SourceChangedError; accept="other" says that the same files lie there now.

    Raises ConfigurationError for options that cannot work, missing files and unknown columns.
    """

    def __init__(
        self,
        path: FilePaths,
        *,
        header: bool = True,
        columns: Sequence[str] | None = None,
        types: Mapping[str, pa.DataType | str | type] | None = None,
        delimiter: str = ",",
        null_values: Sequence[str] = ("",),
        multiline: bool = False,
        on_error: OnError = "fail",
        split_bytes: Size = "32MiB",
        watch: Duration | None = None,
        storage_options: Mapping[str, Any] | None = None,
        accept: Accept | Sequence[Accept] = (),
    ) -> None:
        self.accept = checked_accept(accept)
        self._columns = checked_columns(columns)
        if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n':
            raise ConfigurationError(f"delimiter must be a single character, got {delimiter!r}")
        if types is not None and not isinstance(types, Mapping):
            raise ConfigurationError(f"types must be a dict from column to type, got {types!r}")
        if isinstance(null_values, str):
            raise ConfigurationError(f"null_values must be a list of texts, got {null_values!r}")
        self._files = InputFiles(path, _SUFFIXES, storage_options, compressed=True)
        self.in_one_process = self._files.in_one_process
        self._types = {name: arrow_type(name, kind) for name, kind in (types or {}).items()}
        self._format = CsvFormat(header, delimiter, tuple(null_values), multiline)
        self.on_error: OnError = check_on_error(on_error)
        self._split_bytes = size_bytes(split_bytes, "split_bytes")
        self._watch = Watch(self._files, watch)
        self.bounded = not self._watch
        self._schema: pa.Schema | None = self._given_schema(header) if self._watch else None
        self.side_errors = on_error == "side_output"

    def schema(self) -> pa.Schema:
        if self._schema is None:
            self._schema = self._infer_schema()
        return self._schema

    def validate(self) -> None:
        self._watch.check()
        self.schema()

    def plan_splits(self, parallelism: int) -> Sequence[Split]:
        if self._watch:
            return self._watch.splits(parallelism)
        self.schema()
        return line_splits(
            self._files.list(), parallelism, self._split_bytes, whole=self._format.multiline
        )

    def open_split(self, split: Split, offset: Offset) -> SplitReader:
        return self._watch.reader(self._open, whole_file, split, offset)

    def _open(self, split: Split, offset: Offset) -> SplitReader:
        schema = self.schema()
        names = schema.names
        if self._format.header:
            names = self._header(split.info["path"]) or names
            missing = [name for name in schema.names if name not in names]
            if missing:
                raise SourceDataError(
                    f"{split.info['path']} has no column {', '.join(missing)}; "
                    f"its first line names {', '.join(names)}"
                )
        lines = LineReader(self._files, split, offset, quoted=self._format.multiline)
        parser = BlockParser(self._format, names, schema, self._types)
        bad = BadLines(self.on_error, lines.path)
        return _CsvReader(lines, parser, bad, self._format)

    def _header(self, path: str) -> list[str] | None:
        """The names in the first line of a file; None if the file is empty."""
        lines = LineReader(self._files, whole_file(path), None, quoted=self._format.multiline)
        try:
            block = lines.read_block() or b""
        finally:
            lines.close()
        return self._format.names(lines.split_lines(block)[0], path) if block else None

    def _given_schema(self, header: bool) -> pa.Schema:
        """That of a folder that is watched: its files may be still to come, and must all be alike."""
        names = self._columns if self._columns is not None else list(self._types)
        refuse_unknown("types", self._types, names)
        if missing := [name for name in names if name not in self._types]:
            raise ConfigurationError(
                f"a folder that is watched needs types of all columns; there are none of {missing}"
            )
        if not names:
            raise ConfigurationError("a folder that is watched needs types={column: type, ...}")
        if not header and self._columns is None:
            raise ConfigurationError("files without a header need columns=[...] in their order")
        return pa.schema([pa.field(name, self._types[name]) for name in names])

    def _infer_schema(self) -> pa.Schema:
        first, names, sample = self._first_rows()
        selected = self._columns if self._columns is not None else names
        if self._format.header:
            refuse_unknown("columns", selected, names)
        elif len(selected) != len(names):
            raise ConfigurationError(
                f"columns names {len(selected)} columns, but {first} holds {len(names)}"
            )
        else:
            names = selected
        refuse_unknown("types", self._types, names)
        inferred = self._format.infer(names, sample, first)
        known = {field.name: field.type for field in inferred} | self._types
        return pa.schema([pa.field(name, known[name]) for name in selected])

    def _first_rows(self) -> tuple[str, list[str], bytes]:
        """The first file that is not empty, the names of its columns, and its first rows."""
        files = self._files.list()
        for path in (file.path for file in files if file.size):
            names, sample = self._sample(path)
            if names:
                return path, names, sample
        raise SourceDataError(f"{files[0].path} is empty, and so is each other file of the source")

    def _sample(self, path: str) -> tuple[list[str], bytes]:
        """The names of the columns, and the first rows; no names if the file is empty."""
        lines = LineReader(self._files, whole_file(path), None, quoted=self._format.multiline)
        blocks: list[bytes] = []
        try:
            while sum(map(len, blocks)) < _SAMPLE_BYTES and (block := lines.read_block()):
                blocks.append(block)
        finally:
            lines.close()
        if not blocks:
            return [], b""
        sample = b"".join(blocks)
        first = lines.split_lines(blocks[0])[0]
        if self._format.header:
            return self._format.names(first, path), sample[len(first) + 1 :]
        return [f"f{place}" for place in range(self._format.width(first, path))], sample


class _CsvReader(TextReader):
    def __init__(
        self, lines: LineReader, parser: BlockParser, bad: BadLines, format: CsvFormat
    ) -> None:
        super().__init__(lines, bad)
        self._format = format
        self._parser = parser

    def read(self) -> pa.RecordBatch | None:
        block = self._lines.read_block()
        if block is None:
            return None
        start = self._lines.offset - len(block)
        if self.offset == 0:
            first = self._lines.split_lines(block)[0]
            self._format.check_encoding(first, self._lines.path)
            if self._format.header:
                start, block = start + len(first) + 1, block[len(first) + 1 :]
        self._begin(block, start)
        batch = self._parser.parse(block, self._lines.count_lines(block))
        if batch is None:
            batch = self._parser.parse_rows(self._lines.split_lines(block), start, self._bad)
        self.skipped = self._bad.count
        self.offset = self._lines.offset
        return batch
