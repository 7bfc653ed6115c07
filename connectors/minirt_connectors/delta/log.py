"""Reads the log of a Delta table version by version, and the files that it names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from minirt.errors import SourceChangedError, SourceDataError
from minirt.io.parquet_files import ParquetRows, in_zone
from minirt.io.schemas import SchemaMismatch, conform
from minirt_connectors.delta.table import (
    READER_FEATURES,
    Location,
    LogMarks,
    Shape,
    check_readable,
    entry_name,
)
from minirt_connectors.versions import OnChange, Version, VersionLog

Action = Mapping[str, Any]
"""One line of the log: what it does, by its name."""

_BATCH_ROWS = 32768


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A file that the log names, and the values of the columns that it leaves out."""

    path: str
    partition_values: Mapping[str, Any]

    def __str__(self) -> str:
        return self.path


class DeltaLog(VersionLog):
    """`on_change` says what to do with versions that take rows away: fail, or pass over them as a whole.

    `table_id` is what each version must say that names one.
    """

    def __init__(
        self, location: Location, shape: Shape, on_change: OnChange, table_id: str | None
    ) -> None:
        self._location = location
        self._shape = shape
        self._on_change = on_change
        self._table_id = table_id
        self._storage = location.files()
        self._marks = LogMarks(location)

    def whole(self, number: int) -> Version:
        table = self._location.load(number)
        check_readable(self._location.uri, table)
        with self._location.errors(f"cannot read version {number}"):
            actions = pa.table(table.get_add_actions())
        columns = ["path", *(["partition"] if "partition" in actions.column_names else [])]
        rows = sorted(actions.select(columns).to_pylist(), key=lambda row: row["path"])
        return Version(
            number, [self._file(row["path"], row.get("partition") or {}) for row in rows]
        )

    def added(self, number: int) -> Version:
        actions = self._actions(number)
        if actions is None:
            raise self._gone(number)
        for action in actions:
            if (action.get("add") or {}).get("deletionVector"):
                raise SourceDataError(
                    f"{self._location.uri}: version {number} has deletion vectors"
                )
            if protocol := action.get("protocol"):
                self._check_protocol(number, protocol)
            if metadata := action.get("metaData"):
                self._check_table(number, metadata)
        return self._version(number, actions)

    def mark(self, number: int) -> str | None:
        return self._marks.of(number)

    def newest(self) -> int:
        return int(self._location.load().version())

    def following(self, number: int) -> int | None:
        if self._exists(entry_name(number + 1)):
            return number + 1
        # A log is cleaned up to one of its checkpoints, so nothing else can hide a version.
        if (text := self._content("_delta_log/_last_checkpoint")) is not None:
            newest = int(json.loads(text)["version"])
            if newest > number and not self._exists(entry_name(number + 1)):
                raise self._gone(number + 1)
        return None

    def rows(self, file: AddedFile) -> Iterator[pa.RecordBatch]:
        names = self._stored_names(file)
        with self._location.errors(f"cannot read {file.path}"):
            try:
                stored = ParquetRows(self._storage.open_input_file(file.path), pre_buffer=False)
            except FileNotFoundError:
                raise SourceDataError(
                    f"{self._location.uri}: {file.path} is gone: VACUUM has removed what this job had yet "
                    "to read. Keep files for longer than the job may rest"
                ) from None
            there = [
                name
                for name in names
                if name in stored.file.schema_arrow.names and name not in file.partition_values
            ]
            groups = range(stored.file.num_row_groups)
        batches = chain.from_iterable(
            stored.batches(group, there, _BATCH_ROWS, self._shape.readable) for group in groups
        )
        while True:
            with self._location.errors(f"cannot read {file.path}"):
                batch = next(batches, None)
            if batch is None:
                return
            yield self._complete(file, batch)

    def _actions(self, number: int) -> list[Action] | None:
        """What a version does, None if its entry is not there."""
        text = self._content(entry_name(number))
        if text is None:
            return None
        try:
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError as error:
            raise SourceDataError(f"{self._location.uri}: version {number} is no JSON") from error

    def _version(self, number: int, actions: Sequence[Action]) -> Version:
        """What is read of a version."""
        added = [action["add"] for action in actions if action.get("add")]
        removed = [action["remove"] for action in actions if action.get("remove")]
        if not any(remove["dataChange"] for remove in removed):
            files = [add for add in added if add["dataChange"]]
            return Version(
                number, [self._file(add["path"], add["partitionValues"]) for add in files]
            )
        if self._on_change == "fail":
            raise SourceDataError(
                f"{self._location.uri}: version {number} changes or deletes rows that were read already; "
                'on_change="skip" passes over such versions'
            )
        return Version(number, [])

    def _stored_names(self, file: AddedFile) -> list[str]:
        """The columns to read of a file, as far as it has them."""
        names: list[str] = self._shape.schema.names
        return names

    def _complete(self, file: AddedFile, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with all columns: those of the log, and null where the file is older than a column.

        Each file says by which columns it is partitioned: a table can be written anew by other ones.
        """
        columns = []
        for field in self._shape.schema:
            if field.name in file.partition_values:
                value = pa.array([file.partition_values[field.name]])
                columns.append(pa.repeat(value.cast(field.type)[0], batch.num_rows))
            elif field.name in batch.schema.names:
                # Some writers leave the zone out, which is always UTC.
                columns.append(in_zone(batch.column(field.name), field.type))
            else:
                columns.append(pa.nulls(batch.num_rows, field.type))
        whole = pa.RecordBatch.from_arrays(columns, names=self._shape.schema.names)
        try:
            return conform(whole, self._shape.readable)
        except SchemaMismatch as error:
            raise SourceDataError(f"{self._location.uri}: {file.path}: {error}") from error

    def _file(self, path: str, values: Mapping[str, Any]) -> AddedFile:
        plain = unquote(path)
        if "://" in plain or plain.startswith("/"):
            raise SourceDataError(
                f"{self._location.uri}: {plain} is outside of the table, as in a shallow clone"
            )
        return AddedFile(plain, values)

    def _check_table(self, number: int, metadata: Mapping[str, Any]) -> None:
        """Raise SourceDataError if a version is of another table, or no longer has what is read."""
        uri, id = self._location.uri, metadata.get("id")
        if self._table_id is not None and id is not None and id != self._table_id:
            raise SourceChangedError(
                f"{uri}: version {number} is of the table with the id {id}, and those before it were of "
                f"the table {self._table_id}: the table was dropped and made anew"
            )
        fields = json.loads(metadata["schemaString"])["fields"]
        gone = set(self._shape.schema.names) - {field["name"] for field in fields}
        if gone:
            raise SourceDataError(
                f"{uri}: from version {number} on the table has no column {', '.join(sorted(gone))}, which "
                "the source reads. Give columns=[...] without it, in a job that starts anew"
            )

    def _check_protocol(self, number: int, protocol: Mapping[str, Any]) -> None:
        unknown = set(protocol.get("readerFeatures") or ()) - READER_FEATURES
        if unknown:
            raise SourceDataError(
                f"{self._location.uri}: from version {number} on the table asks of its readers what minirt "
                f"cannot do: {', '.join(sorted(unknown))}"
            )

    def _exists(self, path: str) -> bool:
        with self._location.errors("cannot read the log"):
            [info] = self._storage.get_file_info([path])
        return bool(info.is_file)

    def _content(self, path: str) -> bytes | None:
        with self._location.errors("cannot read the log"):
            try:
                with self._storage.open_input_file(path) as stream:
                    content: bytes = stream.read()
            except FileNotFoundError:
                return None
        return content

    def _gone(self, number: int) -> SourceDataError:
        return SourceDataError(
            f"{self._location.uri}: version {number} is not in the log any more, so nobody can read what "
            "it added. Keep the log (delta.logRetentionDuration) for longer than the job may rest"
        )
