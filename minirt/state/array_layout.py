"""The stored form of tables of array state: a record batch with keys and the columns of the aggregates.

The names of its columns tell apart what is computed, so that state of one kind is never taken for that of
another. Without the operator a table can be read as keys with values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from minirt.aggregates import Aggregate, Fold
from minirt.data.errors import MalformedDataError
from minirt.data.simple_columns import in_microseconds
from minirt.data.values import unpack_value
from minirt.state.sections import metadata_of_columns, pack_columns, unpack_columns

ARRAY_TABLE = b"ARRY"
TIME, PENDING, GONE = "time", "pending", "gone"

_PLACE = "\x1f"
"""Before the place of a column among those of its aggregate."""

_PACKED = (Fold.__name__, "HeldRecords", "HeldValue")
"""The aggregates that are stored as packed values."""

_KEY = "key "
_TOTAL = b"keys"
_PART = re.compile(r"(?P<output>.*) = (?P<kind>\w+)\(.*\)", re.DOTALL)


def key_part(column: str) -> str:
    """The name of the column with this part of the keys."""
    return f"{_KEY}{column}"


def part_of(aggregate: Aggregate) -> str:
    """A text that says what the columns of an aggregate hold."""
    return f"{aggregate.output} = {type(aggregate).__name__}({aggregate.computes})"


def column_of(aggregate: Aggregate, place: int) -> str:
    """The name of one of the columns of an aggregate, which may need several."""
    return f"{part_of(aggregate)}{_PLACE}{place}"


def columns_of(stored: pa.RecordBatch, aggregate: Aggregate) -> list[pa.Array]:
    """The stored columns of an aggregate, in the order of its accumulator; none if it was not kept."""
    wanted = part_of(aggregate)
    return [stored.column(name) for name in stored.schema.names if part(name) == wanted]


def part(stored: str) -> str:
    """A text that says what a stored column holds."""
    return stored.rpartition(_PLACE)[0] if _PLACE in stored else stored


def pack_table(pieces: Iterable[pa.RecordBatch], total: int) -> bytes:
    """Rows as a section; `total` is how many keys the whole table has, also in older sections."""
    return pack_columns(ARRAY_TABLE, pieces, {_TOTAL: str(total)})


def total_of(section: bytes) -> int:
    """How many keys the whole table had when this was stored. Raises MalformedDataError."""
    try:
        return int(metadata_of_columns(ARRAY_TABLE, section)[_TOTAL])
    except (KeyError, ValueError) as error:
        raise MalformedDataError("a table of arrays does not say how many keys it has") from error


def gone_of(section: bytes) -> list[Any]:
    """The keys that are gone, whatever older sections hold of them. Raises MalformedDataError."""
    gone: list[Any] = []
    for batch in unpack_columns(ARRAY_TABLE, section):
        if GONE in batch.schema.names:
            gone += _keys_of(batch.filter(batch.column(GONE)))
    return gone


def entries_of(section: bytes) -> Iterator[tuple[list[Any], list[Any]]]:
    """Keys, as tuples if they are of several columns; and dicts of what each aggregate has come to.

    In pieces. An aggregate that remembers several numbers, as the mean does, has a list of them. Raises
    MalformedDataError.
    """
    for batch in unpack_columns(ARRAY_TABLE, section):
        if GONE in batch.schema.names:
            batch = batch.filter(pc.invert(batch.column(GONE)))
        yield _keys_of(batch), _values_of(batch)


def _keys_of(batch: pa.RecordBatch) -> list[Any]:
    keys = [_objects(batch, name) for name in batch.schema.names if _is_key(name)]
    if not keys:
        raise MalformedDataError("a table of arrays has no keys")
    return keys[0] if len(keys) == 1 else list(zip(*keys, strict=True))


def _values_of(batch: pa.RecordBatch) -> list[Any]:
    held: dict[str, list[list[Any]]] = {}
    for name in batch.schema.names:
        if _PLACE in name and not _is_key(name):
            output, values = _held(part(name), _objects(batch, name))
            held.setdefault(output, []).append(values)
    columns = [found[0] if len(found) == 1 else _rows(found) for found in held.values()]
    rows = zip(*columns, strict=True) if columns else ((),) * len(batch)
    return [dict(zip(held, row, strict=True)) for row in rows]


def _objects(batch: pa.RecordBatch, name: str) -> list[Any]:
    objects: list[Any] = in_microseconds(batch.column(name)).to_pylist()
    return objects


def _is_key(name: str) -> bool:
    return name.startswith(_KEY) and _PLACE not in name


def _held(of: str, values: list[Any]) -> tuple[str, list[Any]]:
    """The name of a result, and what is stored for it."""
    found = _PART.fullmatch(of)
    if found is None:
        raise MalformedDataError(f"a table of arrays has a column {of!r} of nothing that is known")
    if found["kind"] in _PACKED:
        values = [None if packed is None else unpack_value(packed) for packed in values]
    return found["output"], values


def _rows(columns: list[list[Any]]) -> list[Any]:
    return [list(row) for row in zip(*columns, strict=True)]
