"""Writes Parquet files into the folder of a Delta table: nobody sees them until the log names them."""

from __future__ import annotations

import datetime as dt
import json
import re
import uuid
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from minirt.data.batch import Batch
from minirt.errors import SinkDataError
from minirt.io.encoder import Encoder
from minirt.io.schemas import ColumnEncoder
from minirt_connectors.delta.statistics import nan_columns, partition_text, statistics
from minirt_connectors.delta.table import Location, Shape

HELD_BYTES_MAX = 256 << 20
"""What a writer holds of all files that it has begun; above that it ends the largest."""
_ROW_GROUP_BYTES = 8 << 20
_NO_FOLDER = re.compile(r"[^A-Za-z0-9_-]")
_PATH = re.compile(r"([A-Za-z0-9_-]+=[A-Za-z0-9_-]+/)*part-[0-9a-f-]{36}\.parquet")

Values = tuple[str | None, ...]
"""The values of the columns that a table is partitioned by, as the log has them."""


class FilesEncoder(Encoder):
    """A piece is a list of the files that were written for it, each as an add action of the log."""

    def __init__(
        self,
        stream: BinaryIO,
        operator: str,
        columns: ColumnEncoder,
        target: Target,
    ) -> None:
        self._stream = stream
        self._operator = operator
        self._columns = columns
        self._target = target
        self._open: dict[Values, _OpenFile] = {}
        self._added: list[dict[str, Any]] = []

    def write(self, batch: Batch) -> None:
        encoded = self._columns.encode(batch)
        for values, part in partitions(self._operator, encoded, self._target.shape):
            file = self._open.get(values)
            if file is None:
                file = self._open[values] = _OpenFile(part.schema, self._target.compression)
            file.write(part)
            if file.held_bytes >= self._target.file_bytes:
                self._end(values)
        while sum(file.held_bytes for file in self._open.values()) > HELD_BYTES_MAX:
            self._end(max(self._open, key=lambda values: self._open[values].held_bytes))

    def finish(self) -> None:
        for values in list(self._open):
            self._end(values)
        columns = b64encode(self._target.shape.schema.serialize()).decode()
        self._stream.write(json.dumps({"columns": columns, "files": self._added}).encode())

    def abandon(self) -> None:
        self._open.clear()

    def _end(self, values: Values) -> None:
        file = self._open.pop(values)
        content, stats = file.finish()
        partition_by = self._target.shape.partition_by
        folder = "".join(
            f"{_NO_FOLDER.sub('_', name)}={_NO_FOLDER.sub('_', _shown(value))}/"
            for name, value in zip(partition_by, values, strict=True)
        )
        path = f"{folder}part-{uuid.uuid4()}.parquet"
        self._target.store(path, content)
        self._added.append(
            {
                "path": path,
                "size": len(content),
                "partition_values": dict(zip(partition_by, values, strict=True)),
                "modification_time": now_ms(),
                "stats": json.dumps(stats, separators=(",", ":")),
            }
        )


@dataclass(frozen=True)
class Target:
    """Where a writer writes, and how."""

    location: Location
    shape: Shape
    file_bytes: int
    compression: str

    def store(self, path: str, content: pa.Buffer) -> None:
        """Write a whole file. Raises StorageError."""
        with self.location.errors(f"cannot write {path}"):
            # The file of pyarrow around it hands over buffers, and this takes nothing but bytes.
            stream = self.location.files()._handler.open_output_stream(path, None)
            stream.write(content.to_pybytes())
            stream.close()


@dataclass(slots=True)
class _OpenFile:
    """A Parquet file in memory: row groups that are encoded, and batches for the next one."""

    schema: pa.Schema
    compression: str
    _sink: pa.BufferOutputStream = field(default_factory=pa.BufferOutputStream)
    _writer: pq.ParquetWriter | None = None
    _gathered: list[pa.RecordBatch] = field(default_factory=list)
    _gathered_bytes: int = 0
    _with_nan: set[str] = field(default_factory=set)

    @property
    def held_bytes(self) -> int:
        return int(self._sink.tell()) + self._gathered_bytes

    def write(self, batch: pa.RecordBatch) -> None:
        self._gathered.append(batch)
        self._gathered_bytes += batch.nbytes
        self._with_nan |= nan_columns(batch)
        if self._gathered_bytes >= _ROW_GROUP_BYTES:
            self._write_row_group()

    def finish(self) -> tuple[pa.Buffer, dict[str, Any]]:
        """The bytes of the file, and its statistics."""
        self._write_row_group()
        assert self._writer is not None
        self._writer.close()
        content = self._sink.getvalue()
        metadata = pq.read_metadata(pa.BufferReader(content))
        return content, statistics(metadata, self.schema, self._with_nan)

    def _write_row_group(self) -> None:
        if not self._gathered:
            return
        table = pa.Table.from_batches(self._gathered)
        self._gathered, self._gathered_bytes = [], 0
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._sink, self.schema, compression=self.compression)
        self._writer.write_table(table, row_group_size=table.num_rows)


def partitions(
    operator: str, batch: pa.RecordBatch, shape: Shape
) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """The parts of a batch by the values of its partition columns, which the parts leave out.

    Raises SinkDataError for values that the log of a table cannot hold.
    """
    names = list(shape.partition_by)
    if not names:
        yield (), batch
        return
    codes = np.zeros(batch.num_rows, np.int64)
    for name in names:
        encoded = pc.dictionary_encode(batch.column(name), null_encoding="encode")
        joined = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
        codes = np.unique(joined, return_inverse=True)[1]
    _, firsts = np.unique(codes, return_index=True)
    rest = batch.select(shape.stored.names)
    for first in sorted(firsts.tolist()):
        values = tuple(_text(operator, name, batch.column(name)[first].as_py()) for name in names)
        places = np.flatnonzero(codes == codes[first])
        yield values, rest if len(places) == batch.num_rows else rest.take(pa.array(places))


def now_ms() -> int:
    return int(dt.datetime.now(dt.UTC).timestamp() * 1000)


def read_piece_of_files(piece: bytes) -> tuple[pa.Schema | None, list[dict[str, Any]]]:
    """The columns of the table that a piece of a `FilesEncoder` was written for, and its files.

    Older pieces are lists of files and tell no columns. Raises ValueError, TypeError or KeyError for what
    is no such piece.
    """
    told = json.loads(piece)
    added = told if isinstance(told, list) else told["files"]
    for one in added:
        if not _PATH.fullmatch(one["path"]):
            raise ValueError(f"{one['path']!r} is no file that a writer has made")
    if isinstance(told, list):
        return None, added
    return pa.ipc.read_schema(pa.py_buffer(b64decode(told["columns"], validate=True))), added


def _text(operator: str, name: str, value: object) -> str | None:
    if value is None:
        return None
    text = partition_text(value)
    if text is None:
        raise SinkDataError(
            f"{operator}: partition column {name!r}: {value!r} is nothing that a Delta table can be "
            "partitioned by; an empty text would come back as null"
        )
    return text


def _shown(value: str | None) -> str:
    return "__HIVE_DEFAULT_PARTITION__" if value is None else value[:100]
