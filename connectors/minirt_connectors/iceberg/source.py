"""Reads an Iceberg table: a snapshot as a whole, and then what later snapshots add."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from minirt.errors import ConfigurationError, SourceDataError, StorageError
from minirt.io.base import Offset, Split
from minirt.io.files import refuse_unknown
from minirt.io.remembered import Accept, Identity, same
from minirt.io.schemas import SchemaMismatch, conform
from minirt.units import Duration
from minirt_connectors.iceberg.table import Location, columns_of, identity_of
from minirt_connectors.versions import OnChange, Version, VersionedSource, VersionLog, check_moment

_NONE = -1
"""Stands for a table that had no snapshot yet."""


class IcebergSource(VersionedSource):
    """Reads the Iceberg table `namespace.table` of a catalog as columns.

    A job that starts without a checkpoint reads the table as it is in `snapshot`, by default the newest:
    its id, or a datetime, which is the snapshot of that time. It goes on with the rows that later snapshots
    add, and looks for these every `poll`. With `existing=False` it reads only what comes after that
    snapshot; with `bounded=True` only that snapshot. A snapshot that takes rows away ends the job
    (`on_change="fail"`), or is passed over as a whole ("skip").

    `columns` limits and orders what is read. The files of a snapshot are dealt to `splits` parts, by
    default one for each subtask. `catalog` is as for `IcebergSink`.

    A checkpoint remembers the table. A job that is restored with another one is refused with a
    SourceChangedError; accept="other" reads that one from its beginning, as a job without a checkpoint.
    """

    accept_other = "read the other table from its beginning, as a job without a checkpoint"

    def __init__(
        self,
        catalog: Mapping[str, str] | str,
        table: str,
        *,
        snapshot: int | dt.datetime | None = None,
        existing: bool = True,
        bounded: bool = False,
        columns: Sequence[str] | None = None,
        on_change: OnChange = "fail",
        splits: int | None = None,
        poll: Duration = "1s",
        accept: Accept | Sequence[Accept] = (),
    ) -> None:
        super().__init__(
            existing=existing,
            bounded=bounded,
            columns=columns,
            on_change=on_change,
            splits=splits,
            poll=poll,
            accept=accept,
        )
        check_moment("snapshot", snapshot, "an id")
        self._location = Location(catalog, table)
        self._snapshot = snapshot
        self._planned: tuple[int, pa.Schema] | None = None

    def __repr__(self) -> str:
        return f"IcebergSource({self._location.name!r})"

    def validate(self) -> None:
        self._plan()

    def schema(self) -> pa.Schema:
        return self._plan()[1]

    def first_version(self) -> tuple[int, bool]:
        return self._plan()[0], self._existing

    def identity(self) -> Identity:
        return identity_of(self._location, self._location.load())

    def moved(self, split: Split, offset: Offset, kept: Identity) -> tuple[Split, Offset]:
        """Snapshots of one table are none of another."""
        number, whole = self.first_version()
        return Split(split.id, {**split.info, "version": number, "whole": whole}), None

    def open_log(self, kept: Identity | None) -> VersionLog:
        log = _Snapshots(self._location, self._plan()[1], self._on_change)
        same(repr(self), kept, log.identity(), self.accept)
        return log

    def _plan(self) -> tuple[int, pa.Schema]:
        """The snapshot to begin with, and what is read of it."""
        if self._planned is None:
            table = self._location.look()
            known = columns_of(table)
            if self._columns is not None:
                refuse_unknown("columns", self._columns, known.names)
            names = known.names if self._columns is None else self._columns
            schema = pa.schema([known.field(name).with_nullable(True) for name in names])
            self._planned = self._first_snapshot(table), schema
        return self._planned

    def _first_snapshot(self, table: Any) -> int:
        asked = self._snapshot
        if asked is None:
            found = table.current_snapshot()
            return _NONE if found is None else int(found.snapshot_id)
        if isinstance(asked, dt.datetime):
            found = table.snapshot_as_of_timestamp(int(asked.timestamp() * 1000))
        else:
            found = table.snapshot_by_id(asked)
        if found is None:
            raise ConfigurationError(f"{self._location.name}: the table has no snapshot {asked}")
        return int(found.snapshot_id)


class _Snapshots(VersionLog):
    """The snapshots of the branch `main`, one behind the other."""

    def __init__(self, location: Location, schema: pa.Schema, on_change: OnChange) -> None:
        self._location = location
        self._schema = schema
        self._on_change = on_change
        self._table = location.load()

    def identity(self) -> Identity:
        return identity_of(self._location, self._table)

    def whole(self, number: int) -> Version:
        if number == _NONE:
            return Version(number, [])
        self._check_known(number)
        with self._location.errors(f"cannot read snapshot {number}"):
            tasks = list(self._table.scan(snapshot_id=number).plan_files())
        if any(task.delete_files for task in tasks):
            raise SourceDataError(
                f"{self._location.name}: snapshot {number} has delete files, which the source does not "
                "read; rewrite the data files of the table"
            )
        return Version(
            number, sorted((task.file for task in tasks), key=lambda file: file.file_path)
        )

    def added(self, number: int) -> Version:
        snapshot = self._check_known(number)
        operation = snapshot.summary.operation.value if snapshot.summary else "append"
        if operation == "replace":  # Rows were only moved into other files.
            return Version(number, [])
        if operation != "append":
            if self._on_change == "fail":
                raise SourceDataError(
                    f"{self._location.name}: snapshot {number} changes or deletes rows that were read "
                    'already; on_change="skip" passes over such snapshots'
                )
            return Version(number, [])
        with self._location.errors(f"cannot read snapshot {number}"):
            files = [
                entry.data_file
                for manifest in snapshot.manifests(self._table.io)
                if manifest.added_snapshot_id == number
                for entry in manifest.fetch_manifest_entry(self._table.io)
                if entry.snapshot_id == number and entry.status.name == "ADDED"
            ]
        return Version(number, sorted(files, key=lambda file: file.file_path))

    def following(self, number: int) -> int | None:
        before = self.identity()
        with self._location.errors("cannot look for snapshots"):
            self._table.refresh()
        same(f"IcebergSource({self._location.name!r})", before, self.identity(), ())
        newest = self._table.current_snapshot()
        if newest is None or newest.snapshot_id == number:
            return None
        snapshot = newest
        while snapshot.parent_snapshot_id is not None:
            if snapshot.parent_snapshot_id == number:
                return int(snapshot.snapshot_id)
            parent = self._table.snapshot_by_id(snapshot.parent_snapshot_id)
            if parent is None:
                raise self._gone(number)
            snapshot = parent
        if number == _NONE:
            return int(snapshot.snapshot_id)
        raise self._gone(number)

    def rows(self, file: Any) -> Iterator[pa.RecordBatch]:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan
        from pyiceberg.table import FileScanTask

        table = self._table
        with self._location.errors(f"cannot read {file.file_path}"):
            wanted = table.schema().select(*self._schema.names)
            scan = ArrowScan(table.metadata, table.io, wanted, AlwaysTrue())
            batches = scan.to_record_batches([FileScanTask(file)])
        while True:
            try:
                with self._location.errors(f"cannot read {file.file_path}"):
                    batch = next(batches, None)
                if batch is None:
                    return
                yield conform(batch, self._schema)
            except SchemaMismatch as error:
                raise SourceDataError(
                    f"{self._location.name}: {file.file_path}: {error}"
                ) from error
            except StorageError as error:
                if "FileNotFound" in str(error):
                    raise SourceDataError(
                        f"{self._location.name}: {file.file_path} is gone: its snapshot was expired. Keep "
                        "snapshots for longer than the job may rest"
                    ) from error
                raise

    def _check_known(self, number: int) -> Any:
        snapshot = self._table.snapshot_by_id(number)
        if snapshot is None:
            raise self._gone(number)
        return snapshot

    def _gone(self, number: int) -> SourceDataError:
        place = "its first snapshot" if number == _NONE else f"snapshot {number}"
        return SourceDataError(
            f"{self._location.name}: what comes behind {place} cannot be read: snapshots were expired, or "
            "the table was rolled back. Keep snapshots for longer than the job may rest"
        )
