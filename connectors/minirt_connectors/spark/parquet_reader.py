"""Streams one Parquet file, and can go on in the middle of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from minirt.errors import SourceDataError
from minirt.io.base import Offset, SplitReader

BATCH_RECORDS = 8192

Opened = Callable[[str], Any]
"""What pyarrow takes for a path: the path itself, or a file of fsspec."""


class ParquetFileReader(SplitReader):
    """Record batches of at most `BATCH_RECORDS` rows; the offset is `[row group, row in it]`.

    Raises SourceDataError, with the file's name, for a file that is missing or damaged and for an
    offset that it does not have.
    """

    def __init__(self, path: str, offset: Offset, opened: Opened = str) -> None:
        self._path = path
        self._group: int
        self._row: int
        self._group, self._row = offset or (0, 0)
        try:
            self._file = pq.ParquetFile(opened(path))
        except (OSError, pa.ArrowException) as error:
            raise SourceDataError(f"cannot read {path}: {error}") from error
        if offset is not None and not self._has(self._group, self._row):
            self._file.close()
            raise SourceDataError(
                f"{path} has no position {list(offset)}: it is not the file that was read before"
            )
        self._batches = self._open_group()

    @property
    def offset(self) -> Offset:
        return [self._group, self._row]

    def read(self) -> pa.RecordBatch | None:
        while self._group < self._file.num_row_groups:
            try:
                batch = next(self._batches, None)
            except (OSError, pa.ArrowException) as error:
                raise SourceDataError(
                    f"cannot read {self._path}, row group {self._group} after row {self._row}: {error}"
                ) from error
            if batch is not None:
                self._row += batch.num_rows
                return batch
            self._group, self._row = self._group + 1, 0
            self._batches = self._open_group()
        return None

    def close(self) -> None:
        self._file.close()

    def _has(self, group: int, row: int) -> bool:
        groups: int = self._file.num_row_groups
        if not 0 <= group < groups:
            return group == groups and row == 0
        rows: int = self._file.metadata.row_group(group).num_rows
        return 0 <= row <= rows

    def _open_group(self) -> Iterator[pa.RecordBatch]:
        """The batches of the current row group, from the current row on."""
        if self._group == self._file.num_row_groups:
            return
        skip = self._row
        for batch in self._file.iter_batches(BATCH_RECORDS, row_groups=[self._group]):
            if skip >= batch.num_rows:
                skip -= batch.num_rows
                continue
            yield batch.slice(skip).replace_schema_metadata(None)
            skip = 0


class ParquetFilesReader(SplitReader):
    """Files, one after the other. The offset is `[number of the file, row group, row in it]`.

    Raises SourceDataError as the reader of one file does.
    """

    def __init__(self, paths: Sequence[str], offset: Offset, opened: Opened = str) -> None:
        self._paths, self._opened = paths, opened
        self._number: int
        self._number, *inner = offset or (0,)
        if not 0 <= self._number < len(paths):
            raise SourceDataError(
                f"there is no file {self._number} of the {len(paths)} that begin with {paths[0]}: "
                "they are not the files that were read before"
            )
        self._reader = ParquetFileReader(paths[self._number], inner or None, opened)

    @property
    def offset(self) -> Offset:
        return [self._number, *self._reader.offset]

    def read(self) -> pa.RecordBatch | None:
        while (batch := self._reader.read()) is None and self._number + 1 < len(self._paths):
            self._reader.close()
            self._number += 1
            self._reader = ParquetFileReader(self._paths[self._number], None, self._opened)
        return batch

    def close(self) -> None:
        self._reader.close()
