"""The Spark data source "minirt": what checkpoints hold, as DataFrames.

    from minirt_connectors.spark import register

    register(spark)
    state = (
        spark.read.format("minirt")
        .option("path", "checkpoints/totals")
        .option("uid", "total")
        .load()
    )

Options: `path` is the storage of the job, or a savepoint. `what` is "state" (the default), "in-flight",
"history" or "checkpoints". `checkpoint` is the number or name of a checkpoint, the latest by default.
`uid` names an operator, `state` one of its states: that of `reduce` is called "value". All by default.
`storage_options` are those of fsspec for the path, as a JSON object; secrets are better in the environment.

`values` is "typed" (the default) or "json". The types of keys and values are those that the first entries
of all stored parts have in common. If later ones do not fit, the query fails: "json" shows all of them,
as JSON text.

Each stored part is one partition. Reading runs no code that is stored: pickles are only counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

import minirt as rt
from minirt.errors import ConfigurationError

_WHATS = ("state", "in-flight", "history", "checkpoints")
_OPTIONS = ("path", "storage_options", "what", "checkpoint", "uid", "state", "values")

_HISTORY = pa.schema(
    [
        ("checkpoint_id", pa.int64()),
        ("generation", pa.int64()),
        ("mode", pa.string()),
        ("kind", pa.string()),
        ("status", pa.string()),
        ("reason", pa.string()),
        ("stored", pa.string()),
        ("triggered_at", pa.timestamp("us", "UTC")),
        ("duration_s", pa.float64()),
        ("bytes", pa.int64()),
    ]
)
_CHECKPOINTS = pa.schema(
    [
        ("job", pa.string()),
        ("checkpoint_id", pa.int64()),
        ("generation", pa.int64()),
        ("uid", pa.string()),
        ("holds", pa.string()),
        ("name", pa.string()),
        ("subtask", pa.int32()),
        ("entries", pa.int64()),
        ("bytes", pa.int64()),
    ]
)


class CheckpointsSource(DataSource):  # type: ignore[misc]
    """What the options ask for. Raises ConfigurationError for options that cannot work."""

    @classmethod
    def name(cls) -> str:
        return "minirt"

    def schema(self) -> StructType:
        return from_arrow_schema(self._reader.arrow_schema)

    def reader(self, schema: StructType) -> CheckpointsReader:
        reader = self._reader
        if schema.fieldNames() != reader.arrow_schema.names:
            raise ConfigurationError(
                "a schema of one's own has no effect: the columns are "
                + ", ".join(reader.arrow_schema.names)
            )
        return reader

    @cached_property
    def _reader(self) -> CheckpointsReader:
        return CheckpointsReader(_Request.of(self.options))


@dataclass(frozen=True)
class _Request:
    path: str
    what: str
    checkpoint: str
    uid: str | None
    state: str | None
    as_json: bool
    storage_options: Mapping[str, Any] = field(repr=False)

    def open(self) -> rt.Checkpoints:
        opened = rt.open_checkpoints(self.path, storage_options=self.storage_options)
        opened.check_not_empty()
        return opened

    @classmethod
    def of(cls, options: Mapping[str, str]) -> _Request:
        """The options, checked; their names are without case, as everywhere in Spark."""
        given = {name.lower(): value for name, value in options.items()}
        unknown = sorted(given.keys() - set(_OPTIONS))
        if unknown:
            raise ConfigurationError(
                f"no option {', '.join(unknown)}; there are {', '.join(_OPTIONS)}"
            )
        what, values = given.get("what", "state"), given.get("values", "typed")
        if "path" not in given:
            raise ConfigurationError("the option path is missing: where the job stores checkpoints")
        if what not in _WHATS:
            raise ConfigurationError(f"what must be one of {', '.join(_WHATS)}, got {what!r}")
        if values not in ("typed", "json"):
            raise ConfigurationError(f"values must be typed or json, got {values!r}")
        has_effect = {
            "state": {"checkpoint", "uid", "state", "values"},
            "in-flight": {"checkpoint", "uid", "values"},
            "checkpoints": set[str](),
            "history": set[str](),
        }[what] | {"path", "storage_options", "what"}
        if idle := sorted(given.keys() - has_effect):
            raise ConfigurationError(f"option {', '.join(idle)} has no effect with what={what}")
        return cls(
            given["path"],
            what,
            given.get("checkpoint", "latest"),
            given.get("uid"),
            given.get("state"),
            values == "json",
            _storage_options(given.get("storage_options", "{}")),
        )


def _storage_options(text: str) -> dict[str, Any]:
    try:
        options = json.loads(text)
    except json.JSONDecodeError:
        options = None
    if not isinstance(options, dict):
        # The message does not show the text, which may hold a secret.
        raise ConfigurationError('storage_options must be a JSON object, such as {"anon": true}')
    return options


class _Part(InputPartition):  # type: ignore[misc]
    """One of the stored parts, by its place."""

    def __init__(self, place: int) -> None:
        super().__init__(place)
        self.place = place


class CheckpointsReader(DataSourceReader):  # type: ignore[misc]
    """Reads what is asked for. It travels to the executors, and opens the storage there again."""

    def __init__(self, request: _Request) -> None:
        self._request = request
        self._types: Sequence[Any] = ()
        if request.what in ("state", "in-flight"):
            # The latest checkpoint may be another one by the time the executors look.
            checkpoint = request.open().find(request.checkpoint)
            self._checkpoint = checkpoint.path
            table = self._table()
            self._types = table.as_json() if request.as_json else table.types(sample=True)
            self.arrow_schema = table.schema(self._types)
            self._parts = len(table.parts)
        else:
            self.arrow_schema = _HISTORY if request.what == "history" else _CHECKPOINTS
            self._parts = 1

    def partitions(self) -> Sequence[InputPartition]:
        return [_Part(place) for place in range(self._parts)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, _Part):  # Spark asks for None where there are no partitions.
            return
        what = self._request.what
        if what in ("state", "in-flight"):
            yield from self._table().part(partition.place).record_batches(self._types)
            return
        checkpoints = self._request.open()
        rows = _history(checkpoints) if what == "history" else _held(checkpoints)
        yield pa.RecordBatch.from_pylist(rows, self.arrow_schema)

    def _table(self) -> Any:
        request = self._request
        checkpoint = request.open().find(self._checkpoint)
        if request.what == "in-flight":
            return checkpoint.table("in-flight", uid=request.uid)
        return checkpoint.table("state", uid=request.uid, name=request.state)


def _history(checkpoints: rt.Checkpoints) -> list[dict[str, Any]]:
    """How each checkpoint went; times of what Spark knows as timestamps."""
    return [
        {**report.to_plain(), "triggered_at": int(report.triggered_at * 1_000_000)}
        for report in checkpoints.history()
    ]


def _held(checkpoints: rt.Checkpoints) -> list[dict[str, Any]]:
    """What each checkpoint that can be restored holds, a row for each subtask."""
    return [
        {
            "job": checkpoint.manifest.job,
            "checkpoint_id": checkpoint.id,
            "generation": checkpoint.generation,
            "uid": operator.uid,
            "holds": found.kind,
            "name": found.name,
            "subtask": section.subtask,
            "entries": section.entries,
            "bytes": section.bytes,
        }
        for checkpoint in checkpoints
        for operator in checkpoint.operators.values()
        for found in operator.entries
        for section in found.sections
    ]
