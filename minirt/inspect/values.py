"""Stored values in forms that other programs read: JSON, and columns of Arrow.

Both forms keep all that they can. Bytes become base64 in JSON; tuples become lists in JSON and structs with
fields _1, _2 in Arrow; dicts whose keys are not text become lists of pairs; a pickle that was not loaded
says how large it is. Values for which Arrow has no common type become JSON text there.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from minirt.data.errors import UnlikeTypesError
from minirt.data.from_python import REFUSALS, column_as, column_of
from minirt.data.unify import unified_type
from minirt.data.values import Pickled

_FIELDS_MAX = 200
"""A struct with more fields is a dict of anything rather than a record."""


def to_json(value: Any) -> Any:
    """The value as `json.dumps` takes it."""
    try:
        return _to_json(value)
    except RecursionError:
        return "nested too deep to be shown"


def json_text(value: Any) -> str:
    """The value as one line of JSON, which any encoding can carry."""
    text = json.dumps(to_json(value), ensure_ascii=False)
    # Halves of surrogate pairs, as in names of files, are text in Python only: they are escaped.
    return text.encode(errors="backslashreplace").decode()


def _to_json(value: Any) -> Any:
    if value is None or type(value) in (bool, int, str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        if all(type(key) is str for key in value):
            return {key: _to_json(item) for key, item in value.items()}
        return [[_to_json(key), _to_json(item)] for key, item in value.items()]
    if isinstance(value, Pickled):
        return {"pickle_bytes": len(value.data)}
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(map(_to_json, value), key=json.dumps)
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, np.ndarray):
        return _to_json(value.tolist())
    if isinstance(value, np.generic):
        return str(value) if value.dtype.kind in "mM" else _to_json(value.item())
    return str(value)


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The Arrow type of a column of values; `as_json` if it holds them as JSON text."""

    arrow: pa.DataType
    as_json: bool = False

    def array(self, values: Sequence[Any]) -> pa.Array:
        """Values as an array, each as it is. Raises `REFUSALS` for those that do not fit."""
        if self.as_json:
            return pa.array(map(json_text, values), pa.string())
        return column_as([_to_arrow(value) for value in values], self.arrow, "value")

    def holds(self, values: Sequence[Any]) -> bool:
        """Tells whether each of the values fits."""
        try:
            self.array(values)
        except (*REFUSALS, RecursionError):
            return False
        return True


_NOTHING = ColumnType(pa.null())
TEXT = ColumnType(pa.string(), as_json=True)


def column_type(batches: Callable[[], Iterable[Sequence[Any]]]) -> ColumnType:
    """One type that holds each value of all batches as it is; else JSON text.

    `batches` is called again where batches differ in type: then only a second look tells, for example,
    whether the whole numbers that came first are exact as floats.
    """
    found, differ = _NOTHING, False
    for values in batches():
        kind = _inferred(values)
        differ |= _NOTHING != found != kind != _NOTHING
        found = _common(found, kind)
        if found.as_json:
            return found
    if differ and not all(map(found.holds, batches())):
        return TEXT
    return found if found != _NOTHING else ColumnType(pa.string())


def _inferred(values: Sequence[Any]) -> ColumnType:
    try:
        kind = column_of([_to_arrow(value) for value in values], "value").type
    except (*REFUSALS, RecursionError):
        return TEXT
    return TEXT if _fields(kind) > _FIELDS_MAX else ColumnType(kind)


def _common(one: ColumnType, other: ColumnType) -> ColumnType:
    if one.as_json or other.as_json:
        return TEXT
    try:
        return ColumnType(unified_type(one.arrow, other.arrow, "value"))
    except UnlikeTypesError:
        return TEXT


def _fields(kind: pa.DataType) -> int:
    return sum(1 + _fields(kind.field(place).type) for place in range(kind.num_fields))


def _to_arrow(value: Any) -> Any:
    """The value as `pa.array` takes it, where that does not take it as it is."""
    if isinstance(value, tuple) and not isinstance(value, Pickled):
        return {f"_{place}": _to_arrow(item) for place, item in enumerate(value, 1)}
    if isinstance(value, list):
        return [_to_arrow(item) for item in value]
    if isinstance(value, set | frozenset):
        return [_to_arrow(item) for item in sorted(value, key=json_text)]
    if isinstance(value, dict):
        if value and all(type(key) is str for key in value):
            return {key: _to_arrow(item) for key, item in value.items()}
        pairs = value.items()
        return [{"key": _to_arrow(key), "value": _to_arrow(item)} for key, item in pairs]
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Pickled):
        return to_json(value)
    if isinstance(value, bytearray):
        return bytes(value)
    return str(value) if isinstance(value, UUID) else value
