"""Writes to a Delta table by a ledger: what a checkpoint commits is one version of the table.

Writers store Parquet files in the folder of the table, where no reader sees them before the log names them.
What they stage is the list of these files. The coordinator adds them to the log in one version, together
with transaction identifiers (`txn` of the Delta protocol), which are the ledger: two versions that set the
same one conflict, so the library refuses the later one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, Literal, get_args

import pyarrow as pa

from minirt.errors import ConfigurationError, CorruptCheckpointError, SinkDataError
from minirt.io.arrow_pieces import ArrowEncoder, read_piece
from minirt.io.encoder import Encoder
from minirt.io.ledger import LedgerConnection, LedgerEntry, LedgerSink, LedgerTransaction
from minirt.io.partitions import checked_columns
from minirt.io.remembered import Accept, Identity, checked_accept
from minirt.io.schemas import ColumnEncoder
from minirt.units import Size, size_bytes
from minirt_connectors.delta.new_table import check_creatable
from minirt_connectors.delta.table import (
    Location,
    LogMarks,
    Shape,
    check_fits,
    check_merges,
    check_same,
    check_writable,
    shape_of,
)
from minirt_connectors.delta.writing import FilesEncoder, Target, read_piece_of_files
from minirt_connectors.waiting_files import look_for_files

Mode = Literal["append", "merge"]
_CODECS = ("snappy", "zstd", "gzip", "none")
_ORDER = "minirt_order"


class DeltaSink(LedgerSink):
    """Adds records to the Delta table at `uri`, a path or URL, each exactly once.

    `mode="append"` adds files. `mode="merge"` replaces the row of the same `key`, or inserts it; of several
    records of a key in one commit the last one counts. `schema` and `partition_by` create the table if
    it is not there. Files are ended at about `file_size`. `storage_options` are those of `deltalake`. The
    job needs checkpointing, and shows its records when a checkpoint completes. A table whose ledger knows
    less than the job has committed, or another one, is refused with a SinkDataError, unless `accept` names
    that: "behind" or "other".
    """

    def __init__(
        self,
        uri: str,
        *,
        mode: Mode = "append",
        key: str | Sequence[str] | None = None,
        schema: pa.Schema | None = None,
        partition_by: str | Sequence[str] | None = None,
        file_size: Size = "128MiB",
        compression: str = "snappy",
        storage_options: Mapping[str, str] | None = None,
        accept: Accept | Sequence[Accept] = (),
    ) -> None:
        self.accept = checked_accept(accept)
        self._location = Location(uri, storage_options)
        if mode not in get_args(Mode):
            raise ConfigurationError(f"mode must be append or merge, got {mode!r}")
        if (mode == "merge") != (key is not None):
            raise ConfigurationError(
                'mode="merge" needs key=..., which other modes have no use for'
            )
        self._key = (key,) if isinstance(key, str) else tuple(key or ())
        if schema is not None and not isinstance(schema, pa.Schema):
            raise ConfigurationError(
                f"schema must be a pyarrow.Schema, not {type(schema).__name__}"
            )
        if compression not in _CODECS:
            raise ConfigurationError(
                f"compression must be one of {', '.join(_CODECS)}, got {compression!r}"
            )
        self._schema = schema
        self._partition_by = checked_columns(partition_by)
        self._file_bytes = max(1, size_bytes(file_size, "file_size"))
        self._compression = compression
        self._shape: Shape | None = None

    def __repr__(self) -> str:
        return f"DeltaSink({self._location.uri!r})"

    def validate(self) -> None:
        """Look at the table, so that what does not fit is refused before anything starts."""
        if (table := self._location.look()) is not None:
            check_writable(self._location.uri, table)
            if self._key:
                check_merges(self._location.uri, table)
            shape = shape_of(table)
            self._check_wishes(shape)
        elif self._schema is not None:
            shape = Shape(self._schema, self._partition_by)
            self._check_columns(shape)
            check_creatable(self._location, shape)
        else:
            raise ConfigurationError(
                f"{self._location.uri}: there is no Delta table; give schema=... to create it"
            )
        self._check_columns(shape)
        self._shape = shape

    def encoding(self, operator: str) -> Callable[[BinaryIO], Encoder]:
        shape = self._planned
        fields = [
            field.with_nullable(False) if field.name in self._key else field
            for field in shape.schema
        ]
        columns = ColumnEncoder(operator, pa.schema(fields))
        if self._key:
            return lambda stream: ArrowEncoder(stream, columns)
        target = Target(self._location, shape, self._file_bytes, self._compression)
        return lambda stream: FilesEncoder(stream, operator, columns, target)

    def holding(self) -> str | None:
        table = None if self._key else self._location.look()
        holds = table is not None and bool(table.file_uris())
        return f"the Delta table {self._location.uri}" if holds else None

    def target(self) -> Identity:
        return Identity("Delta table", self._location.uri)

    def connect(self) -> LedgerConnection:
        return DeltaConnection(self._location, self._planned, self._key)

    @property
    def _planned(self) -> Shape:
        if self._shape is None:
            self.validate()
        assert self._shape is not None
        return self._shape

    def _check_wishes(self, shape: Shape) -> None:
        """The table is there: what was said of it must be so."""
        if self._schema is not None and not self._schema.equals(shape.schema):
            raise ConfigurationError(
                f"{self._location.uri}: the table is there and has other columns than schema=...: it has "
                f"{', '.join(f'{field.name} {field.type}' for field in shape.schema)}"
            )
        if self._partition_by and self._partition_by != shape.partition_by:
            by = ", ".join(shape.partition_by) or "nothing"
            raise ConfigurationError(
                f"{self._location.uri}: the table is there and partitioned by {by}"
            )

    def _check_columns(self, shape: Shape) -> None:
        names = shape.schema.names
        for option, columns in (("key", self._key), ("partition_by", shape.partition_by)):
            for name in columns:
                if name not in names:
                    raise ConfigurationError(
                        f"{option}: the table {self._location.uri} has no column {name!r}; it has "
                        f"{', '.join(names)}"
                    )
        if not len(shape.stored):
            raise ConfigurationError(
                f"{self._location.uri} is partitioned by all of its columns: its files would have none, "
                "and no rows; leave one out of partition_by"
            )
        for name in shape.partition_by:
            kind = shape.schema.field(name).type
            if not (
                pa.types.is_integer(kind)
                or pa.types.is_string(kind)
                or pa.types.is_date(kind)
                or pa.types.is_boolean(kind)
            ):
                raise ConfigurationError(
                    f"{self._location.uri} is partitioned by {name!r} of type {kind}; the sink can do "
                    "that by text, whole numbers, dates and truth values"
                )


class DeltaConnection(LedgerConnection):
    """Holds the log of the table, and reads on in it ahead of each transaction."""

    def __init__(self, location: Location, shape: Shape, key: tuple[str, ...]) -> None:
        self._location = location
        self._shape = shape
        self._key = key
        if not location.exists():
            location.create(shape)
        self._table = location.load()
        self._marks = LogMarks(location)
        self._mark = self._marks.of(self._table.version())

    @contextmanager
    def transaction(self) -> Iterator[LedgerTransaction]:
        self._read_on()
        check_writable(self._location.uri, self._table)
        if self._key:
            check_merges(self._location.uri, self._table)
        check_same(self._location.uri, self._shape, shape_of(self._table))
        transaction = _Transaction(self._location, self._table, self._key)
        yield transaction
        transaction.finish()

    def _read_on(self) -> None:
        """What is held of the log is of no use where that went back, or was made anew."""
        if self._mark is None or self._marks.of(self._table.version()) != self._mark:
            self._table = self._location.load()
        else:
            with self._location.errors("cannot read the log"):
                self._table.update_incremental()
        self._mark = self._marks.of(self._table.version())

    def close(self) -> None:
        """Nothing is open."""


class _Transaction(LedgerTransaction):
    """The version that the table had at its beginning is what the library compares with."""

    def __init__(self, location: Location, table: Any, key: tuple[str, ...]) -> None:
        self._location = location
        self._table = table
        self._key = key
        self._actions: list[Any] = []
        self._files: list[tuple[str, int]] = []
        self._rows: list[pa.Table] = []
        self._recorded: dict[str, LedgerEntry] = {}

    def entry(self, owner: str) -> LedgerEntry | None:
        with self._location.errors("cannot read the ledger"):
            known = [self._table.transaction_version(name) for name in _names(owner)]
        if known == [None] * len(known):
            return None
        return LedgerEntry(*(version or 0 for version in known))

    def write(self, piece: bytes) -> None:
        uri, now = self._location.uri, shape_of(self._table)
        if self._key:
            rows = read_piece(piece)
            check_fits(uri, rows.schema, now)
            self._rows.append(rows)
            return
        try:
            columns, added = read_piece_of_files(piece)
        except (ValueError, TypeError, KeyError) as error:
            raise CorruptCheckpointError(f"a piece lists no files of a table: {error}") from error
        partition_by = {name for one in added for name in one["partition_values"]}
        check_fits(uri, columns, now, partition_by if added else None)
        self._files += [(one["path"], one["size"]) for one in added]
        action = self._location.library().transaction.AddAction
        self._actions += [action(**one, data_change=True) for one in added]

    def record(self, owner: str, entry: LedgerEntry) -> None:
        self._recorded[owner] = entry

    def finish(self) -> None:
        """Add a version to the table, if there is anything to add."""
        if not self._recorded:
            return
        self._look_for_files()
        delta = self._location.library()
        newest = max(entry.checkpoint_id for entry in self._recorded.values())
        properties = delta.CommitProperties(
            custom_metadata={"minirt.checkpoint": str(newest)},
            app_transactions=[
                delta.Transaction(name, version)
                for owner, entry in self._recorded.items()
                for name, version in zip(_names(owner), _versions(entry), strict=True)
            ],
        )
        with self._location.errors("cannot commit", SinkDataError):
            if self._rows:
                self._merge(properties)
            else:
                self._table.create_write_transaction(
                    self._actions,
                    mode="append",
                    schema=self._table.schema(),
                    partition_by=self._table.metadata().partition_columns,
                    commit_properties=properties,
                )

    def _merge(self, properties: Any) -> None:
        quoted = [f"`{name}`" for name in self._key]
        merging = self._table.merge(
            newest_of_each(pa.concat_tables(self._rows), self._key),
            " AND ".join(f"t.{name} = s.{name}" for name in quoted),
            source_alias="s",
            target_alias="t",
            commit_properties=properties,
        )
        merging.when_matched_update_all().when_not_matched_insert_all().execute()

    def _look_for_files(self) -> None:
        files = self._location.files()

        def size_of(path: str) -> int | None:
            with self._location.errors("cannot look for files"):
                (found,) = files.get_file_info([path])
            return found.size if found.is_file else None

        look_for_files(self._location.uri, self._files, size_of)


def newest_of_each(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Of each key the last row."""
    ordered = rows.append_column(_ORDER, pa.array(range(len(rows)), pa.int64()))
    last = ordered.group_by(list(key), use_threads=False).aggregate([(_ORDER, "max")])
    return rows.take(last.column(f"{_ORDER}_max"))


def _names(owner: str) -> tuple[str, ...]:
    return f"minirt-{owner}", f"minirt-{owner}-generation", f"minirt-{owner}-written-by"


def _versions(entry: LedgerEntry) -> tuple[int, ...]:
    return entry.checkpoint_id, entry.generation, entry.written_by
