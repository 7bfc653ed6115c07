"""Writes to an Iceberg table by a ledger: what a checkpoint commits is one snapshot of the table.

Writers store Parquet files where the table has its data; what they stage is the list of these files. The
coordinator adds them in one snapshot. In the same commit it sets a property of the table, the ledger, and
the snapshot says the same in its summary. A commit asks that the snapshot is still the one whose ledger was
read, and **is never repeated by the library itself**: that would add the files again behind another
coordinator that has committed them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, BinaryIO

import msgpack
import pyarrow as pa
import pyarrow.compute as pc

from minirt.data.batch import Batch
from minirt.errors import ConfigurationError, CorruptCheckpointError, SinkDataError, StorageError
from minirt.io.encoder import Encoder
from minirt.io.ledger import LedgerConnection, LedgerEntry, LedgerSink, LedgerTransaction
from minirt.io.remembered import Accept, Identity, checked_accept
from minirt.io.schemas import ColumnEncoder
from minirt.units import Size, size_bytes
from minirt_connectors.iceberg.table import (
    Location,
    check_writable,
    columns_of,
    float_partitions,
    identity_of,
)
from minirt_connectors.waiting_files import look_for_files

_NO_RETRIES = {"commit.retry.num-retries": "0"}
_LOADED_S = 300.0
"""How long a writer uses a table that it has loaded: catalogs lend credentials for a quarter of an hour."""
_PLAIN = (
    "file_path",
    "record_count",
    "file_size_in_bytes",
    "column_sizes",
    "value_counts",
    "null_value_counts",
    "nan_value_counts",
    "lower_bounds",
    "upper_bounds",
    "split_offsets",
    "sort_order_id",
)
"""What is told of a data file, beside its partition."""


class IcebergSink(LedgerSink):
    """Adds records to an Iceberg table, each exactly once.

    `catalog` are the properties of the catalog, as `pyiceberg.catalog.load_catalog` takes them, with its
    "name" ("minirt" by default), or the name of one that is configured for pyiceberg. `table` is
    `namespace.table` in it. The table must be there; it may be partitioned by any transform. A writer
    ends files when it holds about `file_size` of columns in memory. The job needs checkpointing, and shows
    its records when a checkpoint completes. A table whose ledger knows less than the job has committed, or
    another one, is refused with a SinkDataError, unless `accept` names that: "behind" or "other".
    """

    def __init__(
        self,
        catalog: Mapping[str, str] | str,
        table: str,
        *,
        file_size: Size = "128MiB",
        accept: Accept | Sequence[Accept] = (),
    ) -> None:
        self.accept = checked_accept(accept)
        self._location = Location(catalog, table)
        self._file_bytes = max(1, size_bytes(file_size, "file_size"))
        self._schema: pa.Schema | None = None

    def __repr__(self) -> str:
        return f"IcebergSink({self._location.name!r})"

    def validate(self) -> None:
        """Look at the table, so that what does not fit is refused before anything starts."""
        table = self._location.look()
        check_writable(table)
        schema = columns_of(table)
        try:
            with self._location.errors("cannot write to a table with such partitions"):
                _partitioned(table, schema.empty_table())
        except StorageError as error:
            raise ConfigurationError(str(error)) from error
        self._schema = schema

    def encoding(self, operator: str) -> Callable[[BinaryIO], Encoder]:
        columns = ColumnEncoder(operator, self._planned)
        writing = _Writing(self._location, self._planned, self._file_bytes)
        return lambda stream: _FilesEncoder(stream, operator, columns, writing)

    def holding(self) -> str | None:
        snapshot = self._location.look().current_snapshot()
        summary = None if snapshot is None else snapshot.summary
        holds = summary is not None and summary.additional_properties.get("total-records") != "0"
        return f"the Iceberg table {self._location.name}" if holds else None

    def target(self) -> Identity:
        return identity_of(self._location, self._location.load())

    def connect(self) -> LedgerConnection:
        return IcebergConnection(self._location, self._planned)

    @property
    def _planned(self) -> pa.Schema:
        if self._schema is None:
            self.validate()
        assert self._schema is not None
        return self._schema


class _Writing:
    """The table as a writer has found it, loaded anew now and then: its credentials may be short-lived."""

    def __init__(self, location: Location, schema: pa.Schema, file_bytes: int) -> None:
        self.location = location
        self.file_bytes = file_bytes
        self._schema = schema
        self._table: Any = None
        self._loaded_at = 0.0

    @property
    def table(self) -> Any:
        """The table. Raises SinkDataError if its columns are not those that the job was built for."""
        now = time.monotonic()
        if self._table is None or now - self._loaded_at > _LOADED_S:
            self._table, self._loaded_at = self.location.load(), now
            _check_columns(self.location, self._table, self._schema)
        return self._table

    def check(self, operator: str, batch: pa.RecordBatch) -> None:
        """Raise SinkDataError, with the record, for one that no partition of the table can have."""
        for path in float_partitions(self.table):
            found = pc.index(pc.is_nan(_nested(batch, path)), True).as_py()
            if found >= 0:
                record = batch.slice(found, 1).to_pylist()[0]
                raise SinkDataError(
                    f"{operator}: column {'.'.join(path)!r} is NaN in {record!r:.500}: the table "
                    f"{self.location.name} is partitioned by it, and files of such a partition cannot be "
                    "written. Leave these records out, or partition the table by something else"
                )

    def store(self, batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
        """Write the batches into files of the table, and tell of each."""
        from pyiceberg.io.pyarrow import _dataframe_to_data_files

        table = self.table
        with self.location.errors("cannot write files"):
            files = [
                file
                for rows in _by_sign_of_zero(
                    pa.Table.from_batches(batches), float_partitions(table)
                )
                for file in _dataframe_to_data_files(table.metadata, rows, table.io)
            ]
        spec, fields = table.metadata.default_spec_id, _field_ids(table)
        return [{**_described(file, spec), "fields": fields} for file in files]


class _FilesEncoder(Encoder):
    """A piece is a list of the files that were written for it."""

    def __init__(
        self, stream: BinaryIO, operator: str, columns: ColumnEncoder, writing: _Writing
    ) -> None:
        self._stream = stream
        self._operator = operator
        self._columns = columns
        self._writing = writing
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._files: list[dict[str, Any]] = []

    def write(self, batch: Batch) -> None:
        encoded = self._columns.encode(batch)
        self._writing.check(self._operator, encoded)
        self._held.append(encoded)
        self._held_bytes += encoded.nbytes
        if self._held_bytes >= self._writing.file_bytes:
            self._store()

    def finish(self) -> None:
        self._store()
        self._stream.write(msgpack.packb(self._files))

    def abandon(self) -> None:
        self._held = []

    def _store(self) -> None:
        held, self._held, self._held_bytes = self._held, [], 0
        if held:
            self._files += self._writing.store(held)


class IcebergConnection(LedgerConnection):
    """Loads the table anew for each transaction."""

    def __init__(self, location: Location, schema: pa.Schema) -> None:
        self._location = location
        self._schema = schema

    @contextmanager
    def transaction(self) -> Iterator[LedgerTransaction]:
        table = self._location.load()
        check_writable(table)
        _check_columns(self._location, table, self._schema)
        # For this object alone: the property of the table stays as it is.
        properties = {**table.metadata.properties, **_NO_RETRIES}
        table.metadata = table.metadata.model_copy(update={"properties": properties})
        transaction = _Transaction(self._location, table)
        yield transaction
        transaction.finish()

    def close(self) -> None:
        """Nothing is open."""


class _Transaction(LedgerTransaction):
    """What was read is of one snapshot; a commit asks that this is still the newest."""

    def __init__(self, location: Location, table: Any) -> None:
        self._location = location
        self._table = table
        self._files: list[Any] = []
        self._recorded: dict[str, str] = {}

    def entry(self, owner: str) -> LedgerEntry | None:
        key = _key(owner)
        text = self._table.properties.get(key)
        snapshot = self._table.current_snapshot()
        while text is None and snapshot is not None:
            # Somebody has removed the property: the newest snapshot of ours says the same.
            text = snapshot.summary.additional_properties.get(key) if snapshot.summary else None
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self._table.metadata.snapshot_by_id(parent)
        if text is None:
            return None
        try:
            checkpoint_id, generation, written_by = map(int, text.split(","))
        except ValueError:
            raise ConfigurationError(
                f"{self._location.name}: the table property {key} was changed: {text!r} is no ledger"
            ) from None
        return LedgerEntry(checkpoint_id, generation, written_by)

    def write(self, piece: bytes) -> None:
        try:
            described = msgpack.unpackb(piece, strict_map_key=False)
            self._files += [_data_file(one) for one in described]
            for one in described:
                self._check_fields(one["file_path"], one.get("fields", {}))
        except (ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
            raise CorruptCheckpointError(f"a piece lists no files of a table: {error}") from error
        specs = self._table.specs()
        for file in self._files:
            if file.spec_id not in specs:
                raise SinkDataError(
                    f"{self._location.name}: {file.file_path} was written for partitions that the table "
                    "does not have"
                )

    def _check_fields(self, path: str, fields: Mapping[str, int]) -> None:
        """Raise SinkDataError where the table would not find columns, which it knows by their ids.

        Pieces of versions up to 0.1.0 do not tell the ids.
        """
        now = _field_ids(self._table)
        for name, id in fields.items():
            if now.get(name) != id:
                found = "gone" if name not in now else f"another one now, of the id {now[name]}"
                raise SinkDataError(
                    f"{self._location.name}: {path} was written with the column {name!r} of the id {id}, "
                    f"which is {found}: it was dropped, and readers would find no values. Roll the table "
                    "back to the schema before, or give this output up"
                )

    def record(self, owner: str, entry: LedgerEntry) -> None:
        values = (entry.checkpoint_id, entry.generation, entry.written_by)
        self._recorded[_key(owner)] = ",".join(map(str, values))

    def finish(self) -> None:
        """Add a snapshot to the table, also without files: only snapshots are compared."""
        if not self._recorded:
            return
        self._look_for_files()
        with self._location.errors("cannot commit"):
            transaction = self._table.transaction()
            transaction.set_properties(self._recorded)
            snapshot = transaction.update_snapshot(snapshot_properties=self._recorded)
            with snapshot.fast_append() as append:
                for file in self._files:
                    append.append_data_file(file)
            transaction.commit_transaction()

    def _look_for_files(self) -> None:
        def size_of(path: str) -> int | None:
            with self._location.errors("cannot look for files"):
                try:
                    return len(self._table.io.new_input(path))
                except FileNotFoundError:
                    return None

        files = [(file.file_path, file.file_size_in_bytes) for file in self._files]
        look_for_files(self._location.name, files, size_of)


def _check_columns(location: Location, table: Any, planned: pa.Schema) -> None:
    if not columns_of(table).equals(planned):
        raise SinkDataError(
            f"{location.name}: the columns of the table were changed while the job ran. Start "
            "the job again; if output waits that does not fit, change the table back before"
        )


def _key(owner: str) -> str:
    return f"minirt.{owner}"


def _partitioned(table: Any, rows: pa.Table) -> None:
    """Raises what the library raises if it cannot cut rows into the partitions of the table."""
    from pyiceberg.io.pyarrow import _determine_partitions

    if not table.spec().is_unpartitioned():
        list(_determine_partitions(table.spec(), table.schema(), rows))


def _field_ids(table: Any) -> dict[str, int]:
    """The ids of all columns, nested ones by their full names."""
    from pyiceberg.schema import index_by_name

    return dict(index_by_name(table.schema()))


def _nested(rows: pa.Table | pa.RecordBatch, path: Sequence[str]) -> Any:
    """A column, or what lies in one that is made of structs."""
    column = rows.column(path[0])
    return pc.struct_field(column, list(path[1:])) if len(path) > 1 else column


def _by_sign_of_zero(rows: pa.Table, paths: Sequence[Sequence[str]]) -> list[pa.Table]:
    """The rows in parts, none of which has both 0.0 and -0.0 in a column of `paths`.

    The library makes a partition for each, and would put the rows of either zero into both.
    """
    parts = [rows]
    for path in paths:
        cut = []
        for part in parts:
            column = _nested(part, path)
            negative = pc.and_(pc.equal(column, 0.0), pc.less(pc.divide(1.0, column), 0.0))
            is_negative = pc.fill_null(negative, False)
            cut += [part.filter(is_negative), part.filter(pc.invert(is_negative))]
        parts = [part for part in cut if part.num_rows]
    return parts


def _described(file: Any, spec: int) -> dict[str, Any]:
    described = {name: getattr(file, name) for name in _PLAIN}
    partition = [_to_plain(value) for value in file.partition._data]
    return {**described, "partition": partition, "spec_id": spec}


def _to_plain(value: object) -> object:
    """The value of a partition as msgpack can carry it."""
    return {"decimal": str(value)} if isinstance(value, Decimal) else value


def _of_plain(value: Any) -> object:
    return Decimal(value["decimal"]) if isinstance(value, dict) else value


def _data_file(described: Mapping[str, Any]) -> Any:
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_format=FileFormat.PARQUET,
        partition=Record(*map(_of_plain, described["partition"])),
        equality_ids=None,
        key_metadata=None,
        **{name: described[name] for name in _PLAIN},
    )
    file.spec_id = described["spec_id"]
    return file
