"""Splits output into folders by the values of columns, as Hive and Spark do: `day=2024-05-06/part-...`."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from minirt.data.batch import Batch, Columns, Rows
from minirt.data.simple_columns import simple
from minirt.errors import ConfigurationError, SinkDataError

_NOTHING = "__HIVE_DEFAULT_PARTITION__"
_NAME_BYTES_MAX = 255
"""More than that no file system takes."""
_KNOWN_MAX = 10_000
"""How many folders are remembered by their values."""
_SPECIAL = re.compile(r"""[\x00-\x1f"#%'*/:=?\\\x7f{}\[\]^]""")
_TEXT_TYPES = (int, str, dt.date, dt.time, Decimal, UUID)


class Partitioner:
    """Cuts batches by the values of columns. The files leave these columns out, because the folder names
    them.

    All methods raise SinkDataError, naming operator and column.
    """

    def __init__(self, operator: str, columns: Sequence[str]) -> None:
        self._operator = operator
        self._columns = list(columns)
        self._known: dict[Any, str] = {}

    def split(self, batch: Batch) -> Iterator[tuple[str, Batch]]:
        """The partitions of a batch, each with its folder, in the order of the first record of each."""
        if isinstance(batch, Columns):
            return self._split_columns(batch.table)
        return self._split_rows(batch.records)

    def _split_rows(self, records: Sequence[Any]) -> Iterator[tuple[str, Batch]]:
        columns, by_folder = frozenset(self._columns), dict[str, list[Any]]()
        try:
            values = [[record[name] for record in records] for name in self._columns]
            rest = [
                {name: value for name, value in record.items() if name not in columns}
                for record in records
            ]
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise self._without_column(records) from error
        for folder, record in zip(map(self._folder, zip(*values, strict=True)), rest, strict=True):
            by_folder.setdefault(folder, []).append(record)
        return ((folder, Rows(part)) for folder, part in by_folder.items())

    def _split_columns(self, table: pa.RecordBatch) -> Iterator[tuple[str, Batch]]:
        missing = [name for name in self._columns if name not in table.schema.names]
        if missing:
            raise self._error(missing[0], f"missing, there are {', '.join(table.schema.names)}")
        if table.num_columns == len(self._columns):
            raise self._error(self._columns[0], "nothing is left to write into the files")
        codes = np.zeros(table.num_rows, np.int64)
        alike = True
        for name in self._columns:
            encoded = pc.dictionary_encode(simple(table.column(name)), null_encoding="encode")
            if len(encoded.dictionary) > 1:
                values = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
                codes, alike = np.unique(values, return_inverse=True)[1], False
        rest = Columns(table.drop_columns(self._columns))
        if alike:
            yield self._folder_of(table, 0), rest
            return
        _, firsts = np.unique(codes, return_index=True)
        for first in sorted(firsts.tolist()):
            yield self._folder_of(table, first), rest.take(np.flatnonzero(codes == codes[first]))

    def _folder_of(self, table: pa.RecordBatch, row: int) -> str:
        return self._folder(tuple(_scalar(table.column(name)[row]) for name in self._columns))

    def _folder(self, key: tuple[Any, ...]) -> str:
        """The folder of the partition that has these values."""
        try:
            # 1, True and Decimal(1) are one key of a dict, and different partitions.
            exact = (key, *map(type, key))
            known = self._known.get(exact)
        except TypeError:
            return self._path(key)  # which says that a list names no folder
        if known is None:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            known = self._known[exact] = self._path(key)
        return known

    def _path(self, key: tuple[Any, ...]) -> str:
        return "/".join(map(self._name, self._columns, key))

    def _name(self, column: str, value: Any) -> str:
        name = f"{escaped(column)}={self._text(column, value)}"
        try:
            size = len(name.encode())
        except UnicodeEncodeError:
            raise self._error(column, f"{value!a} cannot be the name of a folder") from None
        if size > _NAME_BYTES_MAX:
            raise self._error(column, f"{value!r:.200} is too long for the name of a folder")
        return name

    def _text(self, column: str, value: Any) -> str:
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or (isinstance(value, str) and not value):
            return _NOTHING
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, _TEXT_TYPES):
            return escaped(str(value))
        raise self._error(
            column, f"{value!r:.200} cannot be the name of a folder; turn it into a text before"
        )

    def _without_column(self, records: Sequence[Any]) -> SinkDataError:
        for record in records:
            if not isinstance(record, Mapping):
                return self._error("*", f"records must be dicts, got {record!r:.500}")
            for column in self._columns:
                if column not in record:
                    return self._error(column, f"missing in record {record!r:.500}")
        raise AssertionError("a batch failed whose records have all columns")

    def _error(self, column: str, reason: str) -> SinkDataError:
        return SinkDataError(f"{self._operator}: partition_by column {column!r}: {reason}")


def checked_columns(partition_by: str | Sequence[str] | None) -> tuple[str, ...]:
    """The columns to partition by, mostly none. Raises ConfigurationError for what names no columns."""
    if partition_by is None:
        return ()
    if not isinstance(partition_by, str | Sequence):
        raise ConfigurationError(f"partition_by must name columns, got {partition_by!r}")
    columns = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    if not columns or not all(isinstance(name, str) and name for name in columns):
        raise ConfigurationError(
            f"partition_by must be the name of a column or a list of them, got {partition_by!r}"
        )
    if len(set(columns)) < len(columns):
        raise ConfigurationError(f"partition_by names a column twice: {', '.join(columns)}")
    return columns


def escaped(text: str) -> str:
    """As Hive writes names and values in paths."""
    return _SPECIAL.sub(lambda match: f"%{ord(match[0]):02X}", text)


def _scalar(value: pa.Scalar) -> Any:
    """The Python value; of a time that Python cannot hold, the text."""
    try:
        return value.as_py()
    except ValueError:
        return str(value.cast(pa.string()))
