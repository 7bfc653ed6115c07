"""How CSV text becomes columns: its format, the types of its columns, and which rows are bad."""

from __future__ import annotations

import csv
import datetime as dt
import math
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
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
_TRUE = ("true", "True", "TRUE")
_FALSE = ("false", "False", "FALSE")
_SHORT_NAMES = {kind.__name__: _PYTHON_TYPES[kind] for kind in (int, float, str)}


_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_EXACT_BELOW = 2.0**53
"""All whole numbers below are floats, too."""
_DIGITS = 38
_WHOLE = re.compile(r"[+-]?[0-9]+")
_PLAIN = re.compile(r"-?(0|[1-9][0-9]*)")
_CODE = re.compile(r"[+-]?0[0-9]+")
_ADVICE = (
    "its type was inferred from the first rows: name one that holds all in types={column: type}"
)


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """How to read a file's bytes: its header, delimiter, nulls, and whether fields hold newlines."""

    header: bool
    delimiter: str
    null_values: tuple[str, ...]
    multiline: bool

    def width(self, line: bytes, path: str) -> int:
        """How many fields the first row of a file has. Raises SourceDataError if it is no row of CSV."""
        self.check_encoding(line, path)
        try:
            table = arrow_csv.read_csv(
                pa.BufferReader(line + b"\n"),
                read_options=arrow_csv.ReadOptions(
                    autogenerate_column_names=True, use_threads=False, block_size=len(line) + 2
                ),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=self.delimiter, newlines_in_values=self.multiline
                ),
            )
        except pa.ArrowInvalid as error:
            raise SourceDataError(f"{path}: the first line is no row of CSV: {error}") from error
        return int(table.num_columns)

    def check_encoding(self, line: bytes, path: str) -> None:
        """Raises SourceDataError where the first line of a file shows that it is text in UTF-16."""
        if line.startswith(_UTF16_MARKS) or b"\0" in line:
            raise SourceDataError(
                f"{path}: the first line begins with a mark of UTF-16, or holds the character U+0000, as "
                "text in UTF-16 does; convert the file to UTF-8"
            )

    def names(self, line: bytes, path: str) -> list[str]:
        """The names in a header. Raises SourceDataError if they cannot name columns."""
        self.check_encoding(line, path)
        try:
            text = line.decode().rstrip("\r")
            names = next(csv.reader([text], delimiter=self.delimiter), [])
        except UnicodeDecodeError as error:
            raise SourceDataError(
                f"{path}: the first line is no text in UTF-8 ({error}); convert the file to UTF-8"
            ) from error
        except csv.Error as error:
            told = (
                "lines end with carriage returns alone; convert the file, so that they end with line feeds"
                if "new-line" in str(error)
                else f"the first line cannot name columns: {error}"
            )
            raise SourceDataError(f"{path}: {told}") from error
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
        fields = []
        for field in table.schema:
            kind = _roomy(field.type)
            if pa.types.is_integer(kind) or pa.types.is_float64(kind):
                texts = self.read(
                    sample, names, [field.name], {field.name: pa.string()}, skip_misfits=True
                )
                kind = type_of_numbers(kind, texts.column(0))
            fields.append(pa.field(field.name, kind))
        return pa.schema(fields)

    def read(
        self,
        text: bytes,
        names: Sequence[str],
        selected: Sequence[str],
        types: Mapping[str, pa.DataType],
        *,
        skip_misfits: bool = False,
        binary_flags: bool = False,
    ) -> pa.Table:
        """The `selected` columns of the rows; with `binary_flags`, 0 and 1 are booleans, too.

        Raises ArrowInvalid if a row does not parse.
        """
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
                true_values=[*_TRUE, *(["1"] if binary_flags else [])],
                false_values=[*_FALSE, *(["0"] if binary_flags else [])],
            ),
        )


class BlockParser:
    """Parses blocks of rows of one file, whose columns are `names`, into batches of `schema`.

    `given` names the columns whose types the user has chosen.

    Good blocks take one vectorised pass. In the others the bad rows are found by halving; a row's
    verdict depends on that row alone, so it is the same wherever reading resumes.
    """

    def __init__(
        self,
        format: CsvFormat,
        names: Sequence[str],
        schema: pa.Schema,
        given: Container[str] = (),
    ) -> None:
        self._format = format
        self._names = list(names)
        self._schema = schema
        self._types = {field.name: field.type for field in schema}
        self._given = given
        self._floats = [field.name for field in schema if pa.types.is_floating(field.type)]
        self._binary_flags = any(
            pa.types.is_boolean(field.type) and field.name in given for field in schema
        )

    def parse(self, text: bytes, lines: int) -> pa.RecordBatch | None:
        """The text as a batch, or None unless every one of its `lines` is exactly one good row."""
        if text.count(b'"') % 2:
            return None
        try:
            table = self._read(text)
        except pa.ArrowInvalid:
            return None
        if table.num_rows != lines or self._bent(text, table) is not None:
            return None
        return table.to_batches()[0]

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
        if table.num_rows != 2 or self._bent(line, table) is not None:
            return None
        return table.slice(0, 1).to_batches()[0]

    def _read(self, text: bytes) -> pa.Table:
        return self._format.read(
            text, self._names, self._schema.names, self._types, binary_flags=self._binary_flags
        )

    def _bent(self, text: bytes, table: pa.Table) -> str | None:
        """What is wrong with a number that a column of floats does not hold; None if there is none.

        A whole number keeps all its digits, unless the user has asked for floats. No number becomes
        infinite.
        """
        for name in self._floats:
            column = table.column(name)
            found = pc.min_max(column).as_py()
            least, most = found["min"] or 0.0, found["max"] or 0.0
            is_given = name in self._given
            if max(-least, most) < (_EXACT_BELOW if not is_given else float("inf")):
                continue
            texts = self._format.read(text, self._names, [name], {name: pa.string()}).column(0)
            for number, written in zip(column.to_pylist(), texts.to_pylist(), strict=False):
                if number is not None and not _holds(number, written, digits=not is_given):
                    return f"column {name!r}: {self._types[name]} cannot hold {written} as it is"
        return None

    def _reason(self, line: bytes) -> str:
        try:
            table = self._read(line)
        except pa.ArrowInvalid as error:
            return self._readable(str(error))
        if (bent := self._bent(line, table)) is not None:
            return f"{bent}; {_ADVICE}"
        return "a quote is never closed (fields with newlines need multiline=True)"

    def _readable(self, message: str) -> str:
        """Arrow's message with the column's name for its number, and without rows of the block."""
        inferred = False

        def named(match: re.Match[str]) -> str:
            nonlocal inferred
            name = self._names[int(match[1])]
            inferred = name not in self._given
            return f"column {name!r}"

        told = re.sub(r"In CSV column #(\d+)", named, message.partition("\n")[0])
        told = re.sub(r"Row #\d+: ", "", told)
        return f"{told}; {_ADVICE}" if inferred else told


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


def type_of_numbers(inferred: pa.DataType, texts: pa.ChunkedArray) -> pa.DataType:
    """The type for numbers that Arrow takes for `inferred`, in which each keeps all its digits.

    Whole numbers beyond int64 are uint64, or decimals of up to 38 digits. What Arrow reads as a number, but
    is more than one (leading zeros, hexadecimal digits), or has more digits, is text.
    """
    written = [text.strip() for text in texts.drop_null().to_pylist()]
    if pa.types.is_integer(inferred):
        return inferred if all(map(_PLAIN.fullmatch, written)) else pa.string()
    if not all(map(_WHOLE.fullmatch, written)):
        return pa.string() if any(map(_CODE.fullmatch, written)) else inferred
    numbers = [int(text) for text in written]
    least, most = min(numbers, default=0), max(numbers, default=0)
    if max(-least, most) <= _EXACT_BELOW:
        return inferred  # Arrow reads no plus sign as part of a whole number.
    if not all(map(_PLAIN.fullmatch, written)):
        return pa.string()
    if least >= 0 and most < 2**64:
        return pa.uint64()
    return pa.decimal128(_DIGITS, 0) if max(-least, most) < 10**_DIGITS else pa.string()


def _holds(number: float, written: str, *, digits: bool) -> bool:
    """Whether a float is what was written, as far as a float can be."""
    if math.isinf(number):
        return "inf" in written.lower()
    whole = written.strip()
    return not digits or not _WHOLE.fullmatch(whole) or int(whole) == number


def _roomy(kind: pa.DataType) -> pa.DataType:
    """An inferred type, made wide enough for what other rows are likely to hold."""
    if pa.types.is_null(kind) or pa.types.is_binary(kind):
        # Arrow infers bytes where a field is no UTF-8; such rows are bad ones of a column of texts.
        return pa.string()
    if pa.types.is_timestamp(kind) and kind.unit == "s":
        return pa.timestamp("us", kind.tz)
    return kind


def _skip(row: arrow_csv.InvalidRow) -> str:
    return "skip"
