"""Reads a Delta table: a version as a whole, and then what later versions add."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence

import pyarrow as pa

from minirt.errors import ConfigurationError, MinirtError
from minirt.io.files import refuse_unknown
from minirt.io.remembered import Accept, Identity, same
from minirt.units import Duration
from minirt_connectors.delta.changes import ChangeLog, check_changes, with_changes
from minirt_connectors.delta.log import DeltaLog
from minirt_connectors.delta.table import Location, Shape, check_readable, shape_of
from minirt_connectors.versions import OnChange, VersionedSource, VersionLog, check_moment


class DeltaSource(VersionedSource):
    """Reads the Delta table at `uri`, a path or URL, as columns.

    A job that starts without a checkpoint reads the table as it is in `version`, by default the newest: a
    number, or a datetime, which is the version of that time. It goes on with the rows that later versions
    add, and looks for these every `poll`. With `existing=False` it reads only what comes after that
    version; with `bounded=True` only that version. A version that takes rows away ends the job
    (`on_change="fail"`), or is passed over as a whole ("skip").

    With `changes=True` it reads the change data feed: all changes of later versions as rows with
    `_change_type` ("insert", "delete", "update_preimage", "update_postimage"), `_commit_version` and
    `_commit_timestamp`; rows of the version to begin with are inserts. There is one split then, unless
    `splits` says otherwise: changes of a key are in order within one split.

    `columns` limits and orders what is read. The files of a version are dealt to `splits` parts, by
    default one for each subtask. `storage_options` are those of `deltalake`.

    A checkpoint remembers the table and the version. A job that is restored with another table, or a log
    that went back, is refused with a SourceChangedError, unless `accept` names that: "other" or "behind".
    """

    def __init__(
        self,
        uri: str,
        *,
        version: int | dt.datetime | None = None,
        existing: bool = True,
        bounded: bool = False,
        changes: bool = False,
        columns: Sequence[str] | None = None,
        on_change: OnChange = "fail",
        splits: int | None = None,
        poll: Duration = "1s",
        storage_options: Mapping[str, str] | None = None,
        accept: Accept | Sequence[Accept] = (),
    ) -> None:
        super().__init__(
            existing=existing,
            bounded=bounded,
            columns=columns,
            on_change=on_change,
            splits=1 if changes and splits is None else splits,
            poll=poll,
            accept=accept,
        )
        if changes and (bounded or on_change == "skip"):
            named = "bounded=True" if bounded else 'on_change="skip"'
            raise ConfigurationError(
                f"changes=True reads what later versions do; leave out {named}"
            )
        check_moment("version", version, "a number")
        if isinstance(version, int) and version < 0:
            raise ConfigurationError(f"version must not be negative, got {version}")
        self._location = Location(uri, storage_options)
        self._version = version
        self._changes = bool(changes)
        self._planned: tuple[int, Shape] | None = None

    def __repr__(self) -> str:
        return f"DeltaSource({self._location.uri!r})"

    def validate(self) -> None:
        self._plan()

    def schema(self) -> pa.Schema:
        readable = self._plan()[1].readable
        return with_changes(readable) if self._changes else readable

    def first_version(self) -> tuple[int, bool]:
        return self._plan()[0], self._existing

    def identity(self) -> Identity:
        id = str(self._location.load().metadata().id)
        return Identity("Delta table", self._location.uri, {"table id": id})

    def open_log(self, kept: Identity | None) -> VersionLog:
        found = self.identity()
        same(repr(self), kept, found, self.accept)
        kind = ChangeLog if self._changes else DeltaLog
        return kind(self._location, self._plan()[1], self._on_change, found.ids["table id"])

    def _plan(self) -> tuple[int, Shape]:
        """The version to begin with, and what is read of it."""
        if self._planned is None:
            table = self._location.look()
            if table is None:
                raise ConfigurationError(f"{self._location.uri}: there is no Delta table")
            if self._version is not None:
                try:
                    with self._location.errors(f"cannot go to version {self._version}"):
                        table.load_as_version(self._version)
                except MinirtError as error:
                    raise ConfigurationError(str(error)) from error
            check_readable(self._location.uri, table)
            if self._changes:
                check_changes(self._location.uri, table)
            shape = shape_of(table)
            if self._columns is not None:
                refuse_unknown("columns", self._columns, shape.schema.names)
                shape = shape.only(self._columns)
            self._planned = table.version(), shape
        return self._planned
