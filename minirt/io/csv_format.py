"""How CSV text becomes columns: its format, the types of its columns, and which rows are bad."""

from __future__ import annotations

import csv
import datetime as dt
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import csv as arrow_csv

from minirt.errors import ConfigurationError, SourceDataError
from minirt.io.lines import BadLines

_PYTHON_TYPES: dict[type, pa.DataType] = {
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bool: pa.bool_(),
    bytes: pa.binary(),
    dt.date: pa.date32(),
    dt.datetime: pa.timestamp("us"),
    dt.time: pa.time64("us"),
}
_SHORT_NAMES = {kind.__name__: _PYTHON_TYPES[kind] for kind in (int, float, str)}


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """How to read a file's bytes: its header, delimiter, nulls, and whether fields hold newlines."""

    header: bool
    delimiter: str
    null_values: tuple[str, ...]
    multiline: bool

    def fields(self, line: bytes) -> list[str]:
        """The fields of one row, as text."""
        text = line.decode(errors="replace").rstrip("\r")
        return next(csv.reader([text], delimiter=self.delimiter), [])

    def names(self, line: bytes, path: str) -> list[str]:
        """The names in a header. Raises SourceDataError if they cannot name columns."""
        names = self.fields(line)
        if not names or len(set(names)) < len(names):
            problem = "names a column twice" if names else "is empty"
            raise SourceDataError(f"{path}: the first line {problem}: {', '.join(names)}")
        return names

    def infer(self, names: Sequence[str], sample: bytes, path: str) -> pa.Schema:
        """Types by what the rows of a sample look like; rows with too few or many fields don't count."""
        if not sample.strip():
            return pa.schema([pa.field(name, pa.string()) for name in names])
        try:
            table = self.read(sample, names, names, {}, skip_misfits=True)
        except pa.ArrowInvalid as error:
            raise SourceDataError(f"cannot read {path} as CSV: {error}") from error
        return pa.schema([pa.field(field.name, _roomy(field.type)) for field in table.schema])

    def read(
        self,
        text: bytes,
        names: Sequence[str],
        selected: Sequence[str],
        types: Mapping[str, pa.DataType],
        *,
        skip_misfits: bool = False,
    ) -> pa.Table:
        """The `selected` columns of the rows. Raises ArrowInvalid if one of them does not parse."""
        return arrow_csv.read_csv(
            pa.BufferReader(text),
            read_options=arrow_csv.ReadOptions(
                column_names=list(names), use_threads=False, block_size=len(text) + 1
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=self.delimiter,
                newlines_in_values=self.multiline,
                invalid_row_handler=_skip if skip_misfits else None,
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict(types),
                include_columns=list(selected),
                null_values=list(self.null_values),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )


class BlockParser:
    """Parses blocks of rows of one file, whose columns are `names`, into batches of `schema`.

    Good blocks take one vectorised pass. In the others the bad rows are found by halving; a row's
    verdict depends on that row alone, so it is the same wherever reading resumes.
    """

    def __init__(self, format: CsvFormat, names: Sequence[str], schema: pa.Schema) -> None:
        self._format = format
        self._names = list(names)
        self._schema = schema
        self._types = {field.name: field.type for field in schema}

    def parse(self, text: bytes, lines: int) -> pa.RecordBatch | None:
        """The text as a batch, or None unless every one of its `lines` is exactly one good row."""
        if text.count(b'"') % 2:
            return None
        try:
            table = self._read(text)
        except pa.ArrowInvalid:
            return None
        return table.to_batches()[0] if table.num_rows == lines else None

    def parse_rows(self, lines: Sequence[bytes], offset: int, bad: BadLines) -> pa.RecordBatch:
        """A batch of the good rows; bad ones are reported, the first line being at byte `offset`."""
        rows = []
        for line in lines:
            if line.strip(b"\r"):
                rows.append((offset, line))
            offset += len(line) + 1
        batches = self._good(rows, bad)
        if not batches:
            return pa.RecordBatch.from_pylist([], schema=self._schema)
        return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]

    def _good(self, rows: Sequence[tuple[int, bytes]], bad: BadLines) -> list[pa.RecordBatch]:
        if len(rows) == 1:
            offset, line = rows[0]
            batch = self._parse_single(line)
            if batch is None:
                bad.report(offset, line, self._reason(line))
            return [] if batch is None else [batch]
        if not rows:
            return []
        batch = self.parse(b"\n".join([line for _, line in rows]), len(rows))
        if batch is not None:
            return [batch]
        half = len(rows) // 2
        return self._good(rows[:half], bad) + self._good(rows[half:], bad)

    def _parse_single(self, line: bytes) -> pa.RecordBatch | None:
        """Read twice over: an open quote swallows what follows, which a row by itself hides."""
        try:
            table = self._read(line + b"\n" + line)
        except pa.ArrowInvalid:
            return None
        return table.slice(0, 1).to_batches()[0] if table.num_rows == 2 else None

    def _read(self, text: bytes) -> pa.Table:
        return self._format.read(text, self._names, self._schema.names, self._types)

    def _reason(self, line: bytes) -> str:
        try:
            self._read(line)
        except pa.ArrowInvalid as error:
            return self._readable(str(error))
        return "a quote is never closed (fields with newlines need multiline=True)"

    def _readable(self, message: str) -> str:
        """Arrow's message with the column's name for its number, and without rows of the block."""
        named = re.sub(
            r"In CSV column #(\d+)",
            lambda match: f"column {self._names[int(match[1])]!r}",
            message.partition("\n")[0],
        )
        return re.sub(r"Row #\d+: ", "", named)


def arrow_type(column: str, kind: pa.DataType | str | type) -> pa.DataType:
    """The Arrow type that a user means. Raises ConfigurationError for what is none."""
    if isinstance(kind, pa.DataType):
        return kind
    if isinstance(kind, type) and kind in _PYTHON_TYPES:
        return _PYTHON_TYPES[kind]
    if isinstance(kind, str):
        try:
            return _SHORT_NAMES.get(kind) or pa.type_for_alias(kind)
        except ValueError:
            pass
    known = ", ".join(each.__name__ for each in _PYTHON_TYPES)
    raise ConfigurationError(
        f"types: {kind!r}, given for column {column!r}, is neither an Arrow type, nor the name of one, "
        f"nor one of {known}"
    )


def _roomy(kind: pa.DataType) -> pa.DataType:
    """An inferred type, made wide enough for what other rows are likely to hold."""
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_timestamp(kind) and kind.unit == "s":
        return pa.timestamp("us", kind.tz)
    return kind


def _skip(row: arrow_csv.InvalidRow) -> str:
    return "skip"
