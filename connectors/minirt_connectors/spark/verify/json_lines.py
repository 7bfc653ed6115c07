"""Reads lines of JSON with Python's own reader; it stands alone as `json_values` does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, BinaryIO

import pyarrow as pa

from minirt_connectors.spark.verify.json_shapes import Mixed, Shape
from minirt_connectors.spark.verify.json_values import Fraction, Misfit, taker

_ROWS = 8192
_SHOWN_CHARS = 80


@dataclass(frozen=True, slots=True)
class Piece:
    """Lines that begin in this range of bytes of a file; a compressed file is one piece."""

    path: str
    begin: int
    end: int | None
    partition: Mapping[str, str | None]
    """What the folders above the file say of its rows."""

    def as_text(self) -> str:
        """The form in which it goes to an executor."""
        return json.dumps(asdict(self))

    @classmethod
    def of_text(cls, text: str) -> Piece:
        return cls(**json.loads(text))


@dataclass(slots=True)
class Scan:
    """What was seen in some pieces."""

    shapes: dict[str, Shape] = field(default_factory=dict)
    """Of the columns whose type nobody has said."""
    present: set[str] = field(default_factory=set)
    """The columns that some line has."""
    misfits: dict[str, str] = field(default_factory=dict)
    """For a column, the first value that is none of its type, and where it is."""
    rows: int = 0

    def as_text(self) -> str:
        """The form in which it comes from an executor."""
        return json.dumps(asdict(self), default=list)

    @classmethod
    def of_text(cls, text: str) -> Scan:
        plain = json.loads(text)
        shapes = {name: Shape.of_plain(one) for name, one in plain["shapes"].items()}
        return cls(shapes, set(plain["present"]), plain["misfits"], plain["rows"])

    def merge(self, other: Scan) -> None:
        """Take in what was seen elsewhere. Raises BadLine for columns that mix kinds."""
        for name, shape in other.shapes.items():
            try:
                self.shapes.setdefault(name, Shape()).merge(shape)
            except Mixed as mixed:
                raise BadLine(
                    f"column {name}: {mixed}; give what is expected as a DataFrame"
                ) from None
        self.present |= other.present
        self.misfits = {**other.misfits, **self.misfits}
        self.rows += other.rows


class BadLine(Exception):
    """A line is no JSON object, or does not fit: file, line and reason."""


def scan(piece: Piece, types: Mapping[str, pa.DataType], zone: str) -> Scan:
    """Look at each value of a piece. Raises BadLine for what is no JSON object."""
    takes = {name: taker(kind, zone) for name, kind in types.items()}
    found = Scan()
    for offset, row in _objects(piece):
        found.rows += 1
        for name, value in row.items():
            take = takes.get(name)
            try:
                if take is None:
                    found.shapes.setdefault(name, Shape()).add(value)
                elif name not in found.misfits:
                    take(value)
            except Misfit as misfit:
                found.misfits[name] = _misfit(piece, offset, name, value, misfit, types[name])
            except Mixed as mixed:
                raise BadLine(f"{_place(piece, offset)}, column {name}: {mixed}") from None
        found.present.update(row)
    return found


def record_batches(piece: Piece, schema: pa.Schema, zone: str) -> Iterator[pa.RecordBatch]:
    """The rows of a piece that `scan` has found to fit. Columns of the folders come first."""
    takes = {one.name: taker(one.type, zone) for one in schema if one.name not in piece.partition}
    rows: list[dict[str, Any]] = []
    for offset, row in _objects(piece):
        try:
            rows.append({name: take(row.get(name)) for name, take in takes.items()})
        except Misfit as misfit:
            raise BadLine(f"{_place(piece, offset)}: {misfit}") from None
        if len(rows) == _ROWS:
            yield _batch(rows, piece, schema)
            rows = []
    if rows:
        yield _batch(rows, piece, schema)


def _batch(rows: list[dict[str, Any]], piece: Piece, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        pa.array([piece.partition[one.name]] * len(rows), pa.string())
        if one.name in piece.partition
        else pa.array([row[one.name] for row in rows], one.type)
        for one in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _objects(piece: Piece) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each line that is not blank as an object, with where it begins."""
    try:
        with _opened(piece) as stream:
            for offset, line in _lines(stream, piece):
                if line.isspace():
                    continue
                try:
                    row = json.loads(
                        line,
                        parse_float=Fraction,
                        parse_constant=Fraction,
                        object_pairs_hook=_object,
                    )
                except (ValueError, RecursionError) as error:
                    raise BadLine(
                        f"{_place(piece, offset)}: {error}; the line is {line[:_SHOWN_CHARS]!r}"
                    ) from None
                if type(row) is not dict:
                    raise BadLine(f"{_place(piece, offset)}: the line is no JSON object")
                taken = [name for name in row if name in piece.partition]
                if taken:
                    raise BadLine(
                        f"{_place(piece, offset)}: the line has {taken[0]}, and so has the folder"
                    )
                yield offset, row
    except (OSError, EOFError) as error:
        raise BadLine(f"{piece.path}: {error or 'it is cut off'}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a field twice")
    return found


def _lines(stream: BinaryIO, piece: Piece) -> Iterator[tuple[int, bytes]]:
    offset = piece.begin
    if offset:
        # The line that another piece has begun ends here.
        stream.seek(offset - 1)
        offset += len(stream.readline()) - 1
    while piece.end is None or offset < piece.end:
        line = stream.readline()
        if not line:
            return
        yield offset, line
        offset += len(line)


def _opened(piece: Piece) -> BinaryIO:
    """The file, without its compression."""
    opener = _OPENERS.get(piece.path.rpartition(".")[2].lower())
    return open(piece.path, "rb") if opener is None else opener(piece.path)


def _gzip(path: str) -> Any:
    import gzip

    return gzip.open(path)


def _bz2(path: str) -> Any:
    import bz2

    return bz2.open(path)


def _xz(path: str) -> Any:
    import lzma

    return lzma.open(path)


def _arrow(path: str) -> Any:
    import io

    raw: Any = pa.input_stream(path)  # It detects zst and lz4 by the name.
    return io.BufferedReader(raw)


_OPENERS: dict[str, Callable[[str], Any]] = {
    "gz": _gzip,
    "bz2": _bz2,
    "xz": _xz,
    "zst": _arrow,
    "lz4": _arrow,
}


def _place(piece: Piece, offset: int) -> str:
    """File and line, counted only now."""
    before, number = offset, 1
    with _opened(piece) as stream:
        while before > 0 and (block := stream.read(min(before, 1 << 20))):
            number += block.count(b"\n")
            before -= len(block)
    return f"{piece.path}, line {number}"


def _misfit(
    piece: Piece, offset: int, name: str, value: Any, misfit: Misfit, kind: pa.DataType
) -> str:
    path = ".".join((name, *misfit.inner))
    shown = value if isinstance(value, Fraction) else json.dumps(value, default=str)
    return (
        f"{_place(piece, offset)}, column {path}: {shown:.200} does not fit what is expected, {kind}: "
        f"{misfit}"
    )
