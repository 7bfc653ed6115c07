"""Parquet files as source and as sink."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import reduce
from typing import Any, BinaryIO, Unpack

import pyarrow as pa
import pyarrow.parquet as pq

from minirt.data.batch import Batch, Columns
from minirt.data.errors import UnlikeTypesError
from minirt.data.unify import unified_schema, widened_table
from minirt.errors import ConfigurationError, SourceDataError
from minirt.filesystems import explain, failures
from minirt.io.base import Offset, Split, SplitReader
from minirt.io.encoder import Encoder, NextFile
from minirt.io.file_sink import FileOptions, FileSink
from minirt.io.files import (
    FilePath,
    FilePaths,
    InputFiles,
    checked_columns,
    refuse_unknown,
    split_target,
)
from minirt.io.parquet_files import ParquetRows
from minirt.io.remembered import Accept, checked_accept
from minirt.io.schemas import ColumnEncoder, SchemaMismatch, conform, given_schema
from minirt.io.watching import FileSource, Watch
from minirt.units import Duration

BATCH_ROWS = 32768
_SPLIT_BYTES = 64 << 20
_ROW_GROUP_BYTES = 8 << 20


class ParquetSource(FileSource[dict[str, Any]]):
    """Reads Parquet files as record batches; `columns` limits and orders what is read.

    `path` is a file, a folder, a glob or a list of them, on any file system of fsspec, which gets
    `storage_options`. The first file fixes names and types; the columns of the others are found by
    name and cast where nothing is lost. Values that only the names of folders hold are not read.
    With a `schema`, that fixes names and types, and no file is opened to find them. Times in INT96, as
    Spark writes them, are microseconds unless the schema says nanoseconds, and UTC if it has a zone.

    With `watch`, a duration, the source never ends: it looks that often for files that were added to the
    folder `path`, and reads each once. It needs a `schema`, as there may be no file yet. A file must come
    whole: write it under a name that begins with a dot, and rename it.

    A checkpoint remembers the path. A job that is restored with another one is refused with a
    SourceChangedError; accept="other" says that the same files lie there now.

    Raises ConfigurationError for missing files and unknown columns, SourceDataError for files that
    cannot be read or do not fit.
    """

    def __init__(
        self,
        path: FilePaths,
        *,
        columns: Sequence[str] | None = None,
        schema: pa.Schema | None = None,
        watch: Duration | None = None,
        storage_options: Mapping[str, Any] | None = None,
        accept: Accept | Sequence[Accept] = (),
    ) -> None:
        self.accept = checked_accept(accept)
        self._columns = checked_columns(columns)
        self._files = InputFiles(path, (".parquet",), storage_options)
        self.in_one_process = self._files.in_one_process
        self._watch = Watch(self._files, watch)
        self.bounded = not self._watch
        if schema is not None and columns is not None:
            raise ConfigurationError("schema says which columns there are; leave out columns")
        if self._watch and schema is None:
            raise ConfigurationError("a folder that is watched needs a schema=pyarrow.schema(...)")
        self._schema = None if schema is None else _plain_schema(given_schema(schema))

    def schema(self) -> pa.Schema:
        if self._schema is None:
            first = self._files.list()[0].path
            with _open(self._files, first) as rows:
                known = rows.file.schema_arrow
            names = known.names if self._columns is None else self._columns
            refuse_unknown("columns", names, known.names)
            _refuse_repeated(first, names, known.names)
            self._schema = _plain_schema([known.field(name) for name in names])
        return self._schema

    def validate(self) -> None:
        self._watch.check()
        self.schema()

    def plan_splits(self, parallelism: int) -> Sequence[Split]:
        if self._watch:
            return self._watch.splits(parallelism)
        self.schema()
        files = self._files.list()
        target = split_target(sum(file.size for file in files), parallelism, _SPLIT_BYTES)
        splits = []
        for path in (file.path for file in files):
            with _open(self._files, path) as rows:
                runs = list(_runs(rows.file.metadata, target))
            for start, stop in runs:
                info = {"path": path, "start": start, "stop": stop}
                splits.append(Split(f"{path}:{start}", info))
        return splits

    def open_split(self, split: Split, offset: Offset) -> SplitReader:
        return self._watch.reader(self._open, self._whole_file, split, offset)

    def _open(self, split: Split, offset: Offset) -> SplitReader:
        return _ParquetReader(self._files, split, self.schema(), offset)

    def _whole_file(self, path: str) -> Split:
        with _open(self._files, path) as rows:
            return Split(path, {"path": path, "start": 0, "stop": rows.file.num_row_groups})


class _ParquetReader(SplitReader):
    """Its offset is [row group, row in it]."""

    def __init__(self, files: InputFiles, split: Split, schema: pa.Schema, offset: Offset) -> None:
        self._path: str = split.info["path"]
        self._schema = schema
        self._stop: int = split.info["stop"]
        self.offset: list[int] = list(offset or (split.info["start"], 0))
        self._group, self._row = self.offset
        self._batches: Iterator[pa.RecordBatch] | None = None
        with ExitStack() as stack:
            self._rows = stack.enter_context(_open(files, self._path))
            file = self._rows.file
            missing = set(schema.names) - set(file.schema_arrow.names)
            if missing:
                raise SourceDataError(
                    f"{self._path} has no column {', '.join(sorted(missing))}, which the source reads"
                )
            if self._stop > file.num_row_groups:
                raise SourceDataError(
                    f"{self._path} has lost row groups: it was changed after the job had started"
                )
            self._open = stack.pop_all()

    def read(self) -> pa.RecordBatch | None:
        with _data_errors(self._path):
            while self._group < self._stop:
                if self._batches is None:
                    self._batches = self._rows_from(self._group, self._row)
                batch = next(self._batches, None)
                if batch is not None:
                    self._row += batch.num_rows
                    self.offset = [self._group, self._row]
                    return conform(batch, self._schema)
                self._group, self._row, self._batches = self._group + 1, 0, None
        return None

    def close(self) -> None:
        self._batches = None
        self._open.close()

    def _rows_from(self, group: int, row: int) -> Iterator[pa.RecordBatch]:
        for batch in self._rows.batches(group, self._schema.names, BATCH_ROWS, self._schema):
            if row < batch.num_rows:
                yield batch.slice(row)
            row = max(0, row - batch.num_rows)


class ParquetSink(FileSink):
    """Writes records into files `part-*.parquet` below the folder `path`.

    Files appear when the checkpoint that covers them has completed, each exactly once; `FileSink` says when
    files are ended, and what `roll_bytes`, `roll_interval`, `partition_by`, `existing` and
    `storage_options` do, which are given by name.

    Records are dicts, or columns. Without `schema`, every subtask takes names and types from the
    first batch it writes, and keeps to them; give a schema wherever that could come out differently
    in two subtasks (None or whole numbers in a column of floats), since readers expect the same in
    all files. Times keep their unit: Spark reads no nanoseconds, a schema can ask for microseconds.
    Writers raise SinkDataError for records that do not fit.
    """

    suffix = ".parquet"

    def __init__(
        self,
        path: FilePath,
        *,
        schema: pa.Schema | None = None,
        compression: str = "snappy",
        **files: Unpack[FileOptions],
    ) -> None:
        super().__init__(path, **files)
        if schema is not None and not isinstance(schema, pa.Schema):
            raise ConfigurationError(
                f"schema must be a pyarrow.Schema, not {type(schema).__name__}"
            )
        if schema is not None:
            schema = pa.schema([field for field in schema if field.name not in self._partition_by])
        self._schema = schema
        self._compression = _known_codec(compression)

    def encoding(self, operator: str) -> Callable[[BinaryIO], Encoder]:
        columns = ColumnEncoder(operator, self._schema)
        return lambda stream: _ParquetEncoder(stream, columns, self._compression)

    def join(self, parts: Iterable[BinaryIO], stream: BinaryIO) -> None:
        again = list(parts) if isinstance(parts, Iterator) else parts
        schema = self._schema
        if schema is None:  # A later part may have columns that the first one lacks.
            schema = reduce(unified_schema, (pq.read_schema(part) for part in again))
        encoder = _ParquetEncoder(stream, ColumnEncoder("join", None), self._compression)
        for part in again:
            for batch in pq.ParquetFile(part).iter_batches(BATCH_ROWS, use_threads=False):
                encoder.write(Columns(widened_table(batch, schema)))
        encoder.finish()


class _ParquetEncoder(Encoder):
    """Gathers batches into row groups of a few MiB."""

    def __init__(self, stream: BinaryIO, columns: ColumnEncoder, compression: str) -> None:
        self._stream = stream
        self._columns = columns
        self._compression = compression
        self._schema = columns.schema
        self._writer: pq.ParquetWriter | None = None
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_bytes = 0

    def write(self, batch: Batch) -> None:
        encoded = self._columns.encode(batch)
        if self._schema is None or not encoded.schema.equals(self._schema):
            self._grow(encoded.schema)
        self.like = self._columns.changes
        self._gathered.append(encoded)
        self._gathered_bytes += encoded.nbytes
        if self._gathered_bytes >= _ROW_GROUP_BYTES and not self._untyped():
            self._write_row_group()

    def finish(self) -> None:
        if untyped := self._untyped():
            raise self._columns.refuse(
                untyped[0],
                "all records of the file have only None, which tells no type; give the sink a schema",
            )
        self._write_row_group()
        if self._writer is not None:
            self._writer.close()

    def _grow(self, schema: pa.Schema) -> None:
        """Turn what is gathered into the columns of a wider schema. Raises NextFile if that cannot be."""
        if self._writer is not None:
            raise NextFile
        try:
            self._gathered = [widened_table(one, schema) for one in self._gathered]
        except UnlikeTypesError:  # A whole number that is no float begins no column of floats.
            raise NextFile from None
        self._schema = schema

    def _untyped(self) -> list[str]:
        """The columns that have been None so far, and so have no type yet."""
        known = self._columns.schema
        if self._writer is None and known is not None and not known.equals(self._schema):
            with suppress(NextFile):  # Another file of the writer may have told the type.
                self._grow(known)
        return [field.name for field in self._schema or () if pa.types.is_null(field.type)]

    def abandon(self) -> None:
        self._gathered = []
        if self._writer is None:
            return
        try:
            self._writer.close()
        except (pa.ArrowException, OSError, ValueError):
            self._writer.is_open = False  # or else it tries again when it is collected

    def _write_row_group(self) -> None:
        if not self._gathered:
            return
        table = pa.Table.from_batches(self._gathered)
        self._gathered, self._gathered_bytes = [], 0
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._stream, table.schema, compression=self._compression
            )
        self._writer.write_table(table, row_group_size=table.num_rows)


def _runs(metadata: pq.FileMetaData, target: int) -> Iterator[tuple[int, int]]:
    """Row groups `start` to `stop` that together hold about `target` bytes, one run after another."""
    start, held = 0, 0
    for group in range(metadata.num_row_groups):
        size = metadata.row_group(group).total_byte_size
        if held and held + size > target:
            yield start, group
            start, held = group, 0
        held += size
    if start < metadata.num_row_groups:
        yield start, metadata.num_row_groups


def _refuse_repeated(path: str, names: Sequence[str], known: Sequence[str]) -> None:
    repeated = [name for name in names if known.count(name) > 1]
    if repeated:
        raise ConfigurationError(
            f"{path} has more than one column {repeated[0]!r}; name columns=[...] without it, or rename"
        )


def _plain_schema(fields: Iterable[pa.Field]) -> pa.Schema:
    return pa.schema([_plain(field) for field in fields])


def _plain(field: pa.Field) -> pa.Field:
    """The field as batches carry it: nullable, without metadata, dictionaries decoded."""
    kind = field.type
    return pa.field(field.name, kind.value_type if pa.types.is_dictionary(kind) else kind)


def _known_codec(compression: str) -> str:
    known = ("none", "snappy", "gzip", "zstd", "lz4", "brotli")
    if compression not in known:
        raise ConfigurationError(
            f"compression must be one of {', '.join(known)}, got {compression!r}"
        )
    return compression


@contextmanager
def _open(files: InputFiles, path: str) -> Iterator[ParquetRows]:
    stream, opened = files.open(path)
    with opened, _data_errors(path):
        yield ParquetRows(stream)


@contextmanager
def _data_errors(path: str) -> Iterator[None]:
    try:
        yield
    except failures(pa.ArrowException) as error:
        raise SourceDataError(f"cannot read {path} as Parquet: {explain(error)}") from error
    except SchemaMismatch as error:
        raise SourceDataError(f"{path} differs from the first file: {error}") from error
