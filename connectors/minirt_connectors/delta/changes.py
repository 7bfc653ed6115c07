"""Reads the change data feed of a Delta table: which rows each version inserts, deletes and updates.

A version that only adds or only removes whole files says so with these. One that does both, such as an
update, names files with the changes beside them, which hold the kind of each change in a column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import pyarrow as pa

from minirt.errors import ConfigurationError, SourceDataError
from minirt_connectors.delta.log import Action, AddedFile, DeltaLog
from minirt_connectors.versions import Version

_KIND = "_change_type"
COLUMNS = pa.schema(
    [
        (_KIND, pa.string()),
        ("_commit_version", pa.int64()),
        ("_commit_timestamp", pa.timestamp("ms", "UTC")),
    ]
)
"""What a change has beside the columns of the table, as Delta names it."""

_ENABLED = "delta.enableChangeDataFeed"


@dataclass(frozen=True, slots=True)
class ChangedFile(AddedFile):
    """A file whose rows were all changed in one way, or that holds the kind of each change."""

    kind: Literal["insert", "delete"] | None
    version: int
    at_ms: int | None


class ChangeLog(DeltaLog):
    """Every version is a list of changes; that to begin with is a list of rows that were inserted."""

    def whole(self, number: int) -> Version:
        files = super().whole(number).files
        at_ms = _time(self._actions(number) or [])
        return Version(
            number,
            [ChangedFile(one.path, one.partition_values, "insert", number, at_ms) for one in files],
        )

    def _version(self, number: int, actions: Sequence[Action]) -> Version:
        at_ms = _time(actions)
        found: dict[str, list[ChangedFile]] = {"cdc": [], "remove": [], "add": []}
        kinds: Mapping[str, Any] = {"remove": "delete", "add": "insert"}
        for action in actions:
            if metadata := action.get("metaData"):
                self._check_enabled(number, metadata["configuration"])
            for name, files in found.items():
                entry = action.get(name)
                if entry and (name == "cdc" or entry["dataChange"]):
                    plain = self._file(entry["path"], self._values(number, entry))
                    files.append(
                        ChangedFile(
                            plain.path, plain.partition_values, kinds.get(name), number, at_ms
                        )
                    )
        return Version(number, found["cdc"] or [*found["remove"], *found["add"]])

    def _stored_names(self, file: AddedFile) -> list[str]:
        return [*super()._stored_names(file), _KIND]

    def _complete(self, file: AddedFile, batch: pa.RecordBatch) -> pa.RecordBatch:
        change, count = cast(ChangedFile, file), batch.num_rows
        kinds = batch.column(_KIND) if change.kind is None else pa.array([change.kind] * count)
        told = (kinds, pa.array([change.version] * count), pa.array([change.at_ms] * count))
        whole = super()._complete(file, batch)
        for field, column in zip(COLUMNS, told, strict=True):
            whole = whole.append_column(field, column.cast(field.type))
        return whole

    def _values(self, number: int, entry: Mapping[str, Any]) -> Mapping[str, Any]:
        values = entry.get("partitionValues")
        if values is None and self._shape.partition_by:
            raise SourceDataError(
                f"{self._location.uri}: version {number} removes a file and does not say of which "
                "partition, so nobody can tell the rows that were deleted"
            )
        return values or {}

    def _check_enabled(self, number: int, configuration: Mapping[str, str]) -> None:
        if not is_enabled(configuration):
            raise SourceDataError(
                f"{self._location.uri}: from version {number} on the table keeps no change data feed "
                f"({_ENABLED})"
            )


def is_enabled(configuration: Mapping[str, str]) -> bool:
    return configuration.get(_ENABLED, "false").lower() == "true"


def check_changes(uri: str, table: Any) -> None:
    """Raises ConfigurationError if the table does not keep its changes."""
    if not is_enabled(table.metadata().configuration):
        raise ConfigurationError(
            f"{uri}: the table keeps no change data feed; set its property {_ENABLED} to true"
        )


def with_changes(schema: pa.Schema) -> pa.Schema:
    return pa.schema([*schema, *COLUMNS])


def _time(actions: Sequence[Action]) -> int | None:
    """When a version was committed, in milliseconds since 1970, as its writer says."""
    infos = [action["commitInfo"] for action in actions if "commitInfo" in action]
    for name in ("inCommitTimestamp", "timestamp"):
        for info in infos:
            if isinstance(info.get(name), int):
                return int(info[name])
    return None
