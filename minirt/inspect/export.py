"""State and in-flight records as files of Parquet or JSON Lines."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from minirt.errors import ConfigurationError, StorageError
from minirt.inspect.entries import Kind, StoredChannel, StoredEntries
from minirt.inspect.values import ColumnType, column_type, to_json
from minirt.state.stored import KINDS

FORMATS = {".parquet": "parquet", ".jsonl": "jsonl"}
_GROUP_ROWS = 65536

Piece = tuple[tuple[Any, ...], tuple[Sequence[Any], ...]]
"""What many rows have in common, and the columns in which they differ."""


@dataclass(frozen=True, slots=True)
class ExportedRows:
    """Rows to be written: columns whose types are known, and columns that hold values of users."""

    known: pa.Schema
    columns: tuple[str, ...]
    fixed_types: dict[str, ColumnType]
    """The types of those of the columns that need no look at their values."""
    pieces: Callable[[], Iterator[Piece]]

    def types(self) -> list[ColumnType]:
        """One type for each of the columns; reads everything."""
        found = []
        for place, name in enumerate(self.columns):
            fixed = self.fixed_types.get(name)
            found.append(fixed or column_type(values[place] for _, values in self.pieces()))
        return found


def rows_of_entries(kind: Kind, entries: Sequence[StoredEntries]) -> ExportedRows:
    """States, or timers, or splits, which all are of this kind."""

    def pieces() -> Iterator[Piece]:
        for found in entries:
            for section in found.sections:
                for chunk in section.chunks():
                    yield (found.uid, found.name, section.subtask), chunk

    known = pa.schema([("uid", pa.string()), ("name", pa.string()), ("subtask", pa.int32())])
    return ExportedRows(known, KINDS[kind].columns, {}, pieces)


def rows_of_channels(channels: Sequence[StoredChannel]) -> ExportedRows:
    """In-flight records, in the order of their channels."""

    def pieces() -> Iterator[Piece]:
        for channel in channels:
            data = channel.data
            for records, times in channel.chunks():
                yield (data.link, data.sender, data.receiver, data.side), (times, records)

    known = pa.schema(
        [
            ("link", pa.string()),
            ("sender", pa.int32()),
            ("receiver", pa.int32()),
            ("side", pa.string()),
        ]
    )
    times = {"timestamp": ColumnType(pa.int64())}
    return ExportedRows(known, ("timestamp", "record"), times, pieces)


def format_of(path: str) -> str:
    """The format that the ending of a file's name asks for. Raises ConfigurationError for others."""
    found = FORMATS.get(Path(path).suffix)
    if found is None:
        raise ConfigurationError(f"cannot tell the format of {path}: it ends in .parquet or .jsonl")
    return found


def export(rows: ExportedRows, path: str, on_rows: Callable[[int], None]) -> int:
    """Write the rows to a new file, which appears once it is complete; how many they are.

    `on_rows` hears how many are written so far. Raises ConfigurationError if the file exists, StorageError
    if it cannot be written.
    """
    write = {"parquet": _write_parquet, "jsonl": write_jsonl}[format_of(path)]
    with _new_file(path) as file:
        return write(rows, file, on_rows)


def write_jsonl(rows: ExportedRows, file: IO[bytes], on_rows: Callable[[int], None]) -> int:
    """Write the rows as JSON Lines; how many they are."""
    written = 0
    for common, columns in rows.pieces():
        shared = dict(zip(rows.known.names, common, strict=True))
        for values in zip(*columns, strict=True):
            own = zip(rows.columns, map(to_json, values), strict=True)
            file.write(json.dumps({**shared, **dict(own)}, ensure_ascii=False).encode() + b"\n")
        written += len(columns[0])
        on_rows(written)
    return written


def _write_parquet(rows: ExportedRows, file: IO[bytes], on_rows: Callable[[int], None]) -> int:
    types = rows.types()
    schema = rows.known
    for name, kind in zip(rows.columns, types, strict=True):
        schema = schema.append(pa.field(name, kind.arrow))
    written, pending = 0, list[pa.RecordBatch]()
    with pq.ParquetWriter(file, schema) as writer:
        for common, columns in rows.pieces():
            count = len(columns[0])
            shared = [
                pa.repeat(pa.scalar(value, kind), count)
                for value, kind in zip(common, rows.known.types, strict=True)
            ]
            own = [kind.array(values) for kind, values in zip(types, columns, strict=True)]
            pending.append(pa.record_batch([*shared, *own], schema=schema))
            written += count
            if sum(map(len, pending)) >= _GROUP_ROWS:
                writer.write_table(pa.Table.from_batches(pending, schema))
                pending.clear()
            on_rows(written)
        writer.write_table(pa.Table.from_batches(pending, schema))
    return written


@contextmanager
def _new_file(path: str) -> Iterator[IO[bytes]]:
    """A file that gets its name when all went well, and leaves nothing behind otherwise."""
    target, temporary = Path(path), Path(f"{path}.tmp-{os.getpid()}")
    if target.exists():
        raise ConfigurationError(f"{path} exists already; name a file that does not")
    try:
        with temporary.open("xb") as file:
            yield file
        temporary.rename(target)
    except OSError as error:
        raise StorageError(f"cannot write ({error.strerror or error})", path) from error
    finally:
        with suppress(OSError):  # It was renamed, or could not be made.
            temporary.unlink()
