"""What a checkpoint holds as a table with one row for each entry or record, for other programs to read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

import pyarrow as pa

from minirt.data.from_python import REFUSALS
from minirt.errors import ConfigurationError
from minirt.inspect.entries import Kind, StoredChannel, StoredEntries, StoredSection
from minirt.inspect.values import TEXT, ColumnType, column_type
from minirt.state.stored import KINDS

Piece = tuple[tuple[Any, ...], tuple[Sequence[Any], ...]]
"""Rows that share some values: the shared values, and the columns in which they differ."""

Part = Callable[[], Iterator[Piece]]

_ENTRIES = pa.schema([("uid", pa.string()), ("name", pa.string()), ("subtask", pa.int32())])
_RECORDS = pa.schema(
    [("link", pa.string()), ("sender", pa.int32()), ("receiver", pa.int32()), ("side", pa.string())]
)


@dataclass(frozen=True, slots=True)
class StoredTable:
    """Rows that say where they are from, and hold values of users.

    Such a value has the type that all of its column have in common; where there is none, it is JSON text.
    Whatever reads raises CorruptCheckpointError for damaged parts, StorageError where storage fails.
    """

    origin: pa.Schema
    """The columns that say where a row is from."""
    columns: tuple[str, ...]
    """The columns that hold what was stored."""
    parts: tuple[Part, ...]
    """One for each piece of storage, to be read on its own."""
    fixed: Mapping[str, ColumnType] = field(default_factory=dict)
    """The types of those columns that need no look at their values."""

    def part(self, place: int) -> StoredTable:
        """The rows of one of the parts."""
        return replace(self, parts=(self.parts[place],))

    def pieces(self) -> Iterator[Piece]:
        """All rows, many at a time."""
        for part in self.parts:
            yield from part()

    def types(self, *, sample: bool = False) -> tuple[ColumnType, ...]:
        """The type of each of `columns`. Reads everything; with `sample`, only the start of each part."""

        def values(place: int) -> Iterator[Sequence[Any]]:
            for part in self.parts:
                for _, columns in islice(part(), 1 if sample else None):
                    yield columns[place]

        return tuple(
            self.fixed.get(name) or column_type(partial(values, place))
            for place, name in enumerate(self.columns)
        )

    def schema(self, types: Sequence[ColumnType]) -> pa.Schema:
        """The Arrow schema of all columns, given the types of `columns`."""
        fields = [
            pa.field(name, kind.arrow) for name, kind in zip(self.columns, types, strict=True)
        ]
        return pa.schema([*self.origin, *fields])

    def record_batches(self, types: Sequence[ColumnType] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow, with `types` or those that fit. Raises ConfigurationError if they do not."""
        types = self.types() if types is None else types
        schema = self.schema(types)
        for common, columns in self.pieces():
            origin = [
                pa.repeat(pa.scalar(value, kind), len(columns[0]))
                for value, kind in zip(common, self.origin.types, strict=True)
            ]
            own = [
                _array(name, kind, values)
                for name, kind, values in zip(self.columns, types, columns, strict=True)
            ]
            yield pa.record_batch([*origin, *own], schema=schema)

    def as_json(self) -> tuple[ColumnType, ...]:
        """Types that fit everything: JSON text."""
        return tuple(self.fixed.get(name, TEXT) for name in self.columns)


def table_of_entries(kind: Kind, entries: Sequence[StoredEntries]) -> StoredTable:
    """States, or timers, or splits, which all are of this kind."""
    parts = [_part_of(found, section) for found in entries for section in found.sections]
    return StoredTable(_ENTRIES, KINDS[kind].columns, tuple(parts))


def table_of_channels(channels: Sequence[StoredChannel]) -> StoredTable:
    """In-flight records, in the order of their channels."""
    fixed = {"timestamp": ColumnType(pa.int64())}
    return StoredTable(_RECORDS, ("timestamp", "record"), tuple(map(_part_in, channels)), fixed)


def _part_of(found: StoredEntries, section: StoredSection) -> Part:
    origin = (found.uid, found.name, section.subtask)
    return lambda: ((origin, chunk) for chunk in section.chunks())


def _part_in(channel: StoredChannel) -> Part:
    data = channel.data
    origin = (data.link, data.sender, data.receiver, data.side)
    return lambda: ((origin, (times, records)) for records, times in channel.chunks())


def _array(name: str, kind: ColumnType, values: Sequence[Any]) -> pa.Array:
    try:
        return kind.array(values)
    except REFUSALS as error:
        raise ConfigurationError(
            f"column {name!r} holds values that are no {kind.arrow} ({error}); read it as JSON text"
        ) from error
