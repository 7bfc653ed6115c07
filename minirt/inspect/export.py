"""Tables of what a checkpoint holds as files of Parquet or JSON Lines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from minirt.errors import ConfigurationError, StorageError
from minirt.inspect.table import StoredTable
from minirt.inspect.values import json_text, to_json

_FORMATS = {".parquet": "parquet", ".jsonl": "jsonl"}
_GROUP_ROWS = 65536


def format_of(path: str) -> str:
    """The format that the ending of a file's name asks for. Raises ConfigurationError for others."""
    found = _FORMATS.get(Path(path).suffix)
    if found is None:
        raise ConfigurationError(f"cannot tell the format of {path}: it ends in .parquet or .jsonl")
    return found


def export(table: StoredTable, path: str, on_rows: Callable[[int], None]) -> int:
    """Write the rows to a new file, which appears once it is complete; how many they are.

    `on_rows` hears how many are written so far. Raises ConfigurationError if the file exists, StorageError
    if it cannot be written.
    """
    write = {"parquet": _write_parquet, "jsonl": write_jsonl}[format_of(path)]
    with _new_file(path) as file:
        return write(table, file, on_rows)


def write_jsonl(table: StoredTable, file: IO[bytes], on_rows: Callable[[int], None]) -> int:
    """Write the rows as JSON Lines; how many they are."""
    written = 0
    for common, columns in table.pieces():
        origin = dict(zip(table.origin.names, common, strict=True))
        for values in zip(*columns, strict=True):
            own = dict(zip(table.columns, map(to_json, values), strict=True))
            file.write(json_text({**origin, **own}).encode() + b"\n")
        written += len(columns[0])
        on_rows(written)
    return written


def _write_parquet(table: StoredTable, file: IO[bytes], on_rows: Callable[[int], None]) -> int:
    types = table.types()
    schema = table.schema(types)
    written, pending, pending_rows = 0, list[pa.RecordBatch](), 0
    with pq.ParquetWriter(file, schema) as writer:
        for batch in table.record_batches(types):
            pending.append(batch)
            pending_rows += len(batch)
            written += len(batch)
            if pending_rows >= _GROUP_ROWS:
                writer.write_table(pa.Table.from_batches(pending, schema))
                pending, pending_rows = [], 0
            on_rows(written)
        writer.write_table(pa.Table.from_batches(pending, schema))
    return written


@contextmanager
def _new_file(path: str) -> Iterator[IO[bytes]]:
    """A file that gets its name if all goes well, and leaves nothing behind otherwise."""
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
