"""Where a Delta table is, what it is made of, and what the errors of its library mean."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa

from minirt.errors import ConfigurationError, MinirtError, SinkDataError, StorageError

_ASKS_TO_INSTALL = 'Delta Lake needs the extra "delta": pip install "minirt[delta]"'

_AWKWARD = re.compile(r"%[0-9A-Fa-f]{2}|[\[\]^|\\\x00-\x1f]")
"""The library takes the first for another character, and gives up on the others with a panic."""

_QUICK = {"connect_timeout": "3s", "timeout": "4s", "max_retries": "1", "retry_timeout": "8s"}
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

WRITER_FEATURES = frozenset(
    {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"}
    | {"identityColumns", "columnMapping", "timestampNtz"}
)
"""Those that ask nothing of who appends, once the settings and columns below are refused."""

READER_FEATURES = frozenset({"columnMapping", "timestampNtz"})

_REFUSED_OF_FIELDS = {
    "delta.invariants": "an invariant",
    "delta.generationExpression": "an expression that generates it",
    "delta.identity.start": "an identity",
}


@dataclass(frozen=True)
class Shape:
    """What writers and readers must know of a table, as it is in one of its versions."""

    schema: pa.Schema
    partition_by: tuple[str, ...]

    @property
    def stored(self) -> pa.Schema:
        """The columns that its files hold: the others are in the log."""
        return pa.schema([field for field in self.schema if field.name not in self.partition_by])

    @property
    def readable(self) -> pa.Schema:
        """The columns as a source gives them."""
        return pa.schema([field.with_nullable(True) for field in self.schema])

    def only(self, names: Sequence[str]) -> Shape:
        """These columns, in this order."""
        schema = pa.schema([self.schema.field(name) for name in names])
        return Shape(schema, tuple(name for name in self.partition_by if name in names))


class Location:
    """The place of a table, and the options of its storage. Pickled into workers; names no option."""

    def __init__(self, uri: object, options: Mapping[str, str] | None) -> None:
        if not isinstance(uri, str | Path) or not str(uri):
            raise ConfigurationError(f"uri must be the path or URL of a Delta table, got {uri!r}")
        self.uri = str(uri) if "://" in str(uri) else str(Path(uri).absolute())
        if "://" not in self.uri and (awkward := _AWKWARD.search(self.uri)):
            raise ConfigurationError(
                f"{self.uri}: the library of Delta Lake cannot have {awkward[0]!r} in a local path: take a "
                "folder with another name"
            )
        self.options = dict(options or {})
        wrong = [key for key, value in self.options.items() if not isinstance(value, str)]
        if wrong:
            raise ConfigurationError(f"storage option {wrong[0]!r} must be text")

    def __repr__(self) -> str:
        return f"Location({self.uri!r})"

    def library(self) -> Any:
        """The package. Raises ConfigurationError if it is not installed."""
        try:
            import deltalake
            import deltalake.exceptions
            import deltalake.fs
            import deltalake.transaction
        except ImportError as error:
            raise ConfigurationError(_ASKS_TO_INSTALL) from error
        return deltalake

    def load(self, version: int | None = None) -> Any:
        """The table at a version, by default the newest."""
        delta = self.library()
        with self.errors("cannot open the table"):
            return delta.DeltaTable(self.uri, version=version, storage_options=self.options)

    def exists(self) -> bool:
        delta = self.library()
        with self.errors("cannot look for the table"):
            found: bool = delta.DeltaTable.is_deltatable(self.uri, self._quick)
            return found

    @property
    def _quick(self) -> dict[str, str]:
        """The options for a question that somebody waits for: the library tries for three minutes."""
        return {**_QUICK, **self.options} if "://" in self.uri else self.options

    def look(self) -> Any:
        """The table, when the job is built; None if there is none.

        Raises ConfigurationError if nobody can tell, or no version of the library could read it.
        """
        try:
            return self.load() if self.exists() else None
        except StorageError as error:
            raise ConfigurationError(str(error)) from error

    def create(self, shape: Shape) -> None:
        """Create the table if it is not there."""
        delta = self.library()
        with self.errors("cannot create the table", ConfigurationError):
            delta.DeltaTable.create(
                self.uri,
                schema=shape.schema,
                mode="ignore",
                partition_by=list(shape.partition_by),
                storage_options=self.options,
            )

    def files(self) -> Any:
        """The files below the table, by their paths relative to it."""
        delta = self.library()
        with self.errors("cannot open the folder of the table"):
            if "://" not in self.uri:
                Path(self.uri).mkdir(parents=True, exist_ok=True)  # The library asks for that.
            return delta.fs.DeltaStorageHandler(self.uri, self.options)

    @contextmanager
    def errors(self, action: str, hopeless: type[MinirtError] = StorageError) -> Iterator[None]:
        """Errors of the library as those of minirt; `hopeless` where trying again would not help."""
        delta = self.library()
        try:
            yield
        except MinirtError:
            raise
        except (delta.exceptions.DeltaProtocolError, delta.exceptions.SchemaMismatchError) as error:
            raise hopeless(f"{self.uri}: {action}: {_line(error)}") from None
        except (delta.exceptions.DeltaError, OSError, ValueError) as error:
            raise StorageError(f"{self.uri}: {action}: {_line(error)}") from None


class LogMarks:
    """Tells versions from others of their number, by digests of their entries in the log.

    An entry names files, which are called like no others, so two entries are never the same.
    """

    def __init__(self, location: Location) -> None:
        self._location = location
        self._storage = location.files()
        self._known: tuple[int, tuple[int, Any], str] | None = None
        """A version, how its entry looked, and its mark."""

    def of(self, number: int) -> str | None:
        """The mark of a version; None if its entry is not in the log. Raises StorageError."""
        with self._location.errors("cannot read the log"):
            [info] = self._storage.get_file_info([entry_name(number)])
            if not info.is_file:
                return None
            looks = (info.size, info.mtime)
            if self._known is None or self._known[:2] != (number, looks):
                try:
                    with self._storage.open_input_file(entry_name(number)) as stream:
                        digest = blake2b(stream.read(), digest_size=8).hexdigest()
                except FileNotFoundError:
                    return None
                self._known = (number, looks, digest)
        return self._known[2]


def entry_name(number: int) -> str:
    """Where the log has the entry of a version, relative to the table."""
    return f"_delta_log/{number:020d}.json"


def shape_of(table: Any) -> Shape:
    """The columns of a table as Arrow has them."""
    described = pa.schema(table.schema().to_arrow())
    fields = [pa.field(field.name, field.type, field.nullable) for field in described]
    return Shape(pa.schema(fields), tuple(table.metadata().partition_columns))


def check_writable(uri: str, table: Any) -> None:
    """Raises ConfigurationError if the table asks more of its writers than `DeltaSink` does."""
    _check_features(uri, table.protocol().writer_features, WRITER_FEATURES, "writers")
    _check_mapping(uri, table)
    for key in table.metadata().configuration:
        if key.startswith("delta.constraints."):
            raise ConfigurationError(
                f"{uri}: the table has the constraint {key.removeprefix('delta.constraints.')!r}, which "
                "the sink cannot check"
            )
    for field in table.schema().fields:
        for key, what in _REFUSED_OF_FIELDS.items():
            if key in field.metadata:
                raise ConfigurationError(
                    f"{uri}: column {field.name!r} has {what}, which the sink knows nothing of"
                )


def check_readable(uri: str, table: Any) -> None:
    """Raises ConfigurationError if its files do not say all, as those with deletion vectors."""
    _check_features(uri, table.protocol().reader_features, READER_FEATURES, "readers")
    _check_mapping(uri, table)


def check_same(uri: str, planned: Shape, now: Shape) -> None:
    """Raises SinkDataError if a table is not any more what it was when the job was built."""
    if planned != now:
        raise SinkDataError(
            f"{uri}: the table was changed while the job ran: it has the columns {_named(now)} now, and "
            f"had {_named(planned)}. Start the job again; if output waits that does not fit, change the "
            "table back before"
        )


def check_fits(
    uri: str, written: pa.Schema | None, now: Shape, partition_by: Collection[str] | None = None
) -> None:
    """Raises SinkDataError if output that waits does not fit the table as it is now.

    `written` are the columns that it was written for, None if nobody knows. A column that the table got
    since is null in such output.
    """
    fits = partition_by is None or set(partition_by) == set(now.partition_by)
    if written is not None:
        types = {field.name: field.type for field in now.schema}
        fits &= all(types.get(field.name) == field.type for field in written)
        fits &= all(field.nullable for field in now.schema if field.name not in written.names)
    if not fits:
        was = "other partitions"
        if written is not None:
            was = ", ".join(f"{field.name} {field.type}" for field in written)
        raise SinkDataError(
            f"{uri}: output that waits for its commit was written for other columns than the table has "
            f"now: for {was}; the table has {_named(now)}. Change the table back and start the job again"
        )


def check_merges(uri: str, table: Any) -> None:
    """Raises ConfigurationError if rows of the table cannot be replaced."""
    if table.metadata().configuration.get("delta.appendOnly", "").lower() == "true":
        raise ConfigurationError(
            f'{uri}: the table only takes appends (delta.appendOnly), and mode="merge" replaces rows: '
            'take mode="append", or set the property to false'
        )


def _check_features(uri: str, asked: list[str] | None, known: frozenset[str], who: str) -> None:
    unknown = sorted(set(asked or ()) - known)
    if unknown:
        raise ConfigurationError(
            f"{uri}: the table asks of its {who} what minirt cannot do: {', '.join(unknown)}"
        )


def _check_mapping(uri: str, table: Any) -> None:
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        raise ConfigurationError(
            f"{uri}: the columns of the table are mapped to other names in its files "
            "(delta.columnMapping.mode), which minirt cannot do"
        )


def _named(shape: Shape) -> str:
    columns = ", ".join(f"{field.name} {field.type}" for field in shape.schema)
    return f"{columns} by {', '.join(shape.partition_by)}" if shape.partition_by else columns


def _line(error: Exception) -> str:
    plain = _COLOURS.sub("", str(error)).replace("↳", ":")
    return " ".join(plain.split())[:1000]
