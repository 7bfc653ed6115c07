"""What values say, told without the code under test: 5, 5.0 and Decimal("5.00") say the same.

A float says what it is, and the shortest decimal that tells it from the others of its type: so 0.1 is one
tenth in 32 and in 64 bits, and 2.0**60 is 2**60. A date says its midnight. Kinds are told apart: True is
not 1, text not bytes, a time without a zone no instant.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_FLOATS = {16: np.float16, 32: np.float32, 64: np.float64}
_DAY_MS = 86_400_000


def said_by(scalar: pa.Scalar) -> Any:
    """What a value of Arrow says."""
    type = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_dictionary(type):
        return said_by(scalar.dictionary[scalar.index.as_py()])
    if pa.types.is_run_end_encoded(type):
        return said_by(scalar.value)
    if pa.types.is_struct(type):
        return _fields({each.name: said_by(scalar[each.name]) for each in type})
    if pa.types.is_map(type):
        return [[said_by(pair["key"]), said_by(pair["value"])] for pair in scalar.values]
    if hasattr(type, "value_field"):
        return [said_by(value) for value in scalar.values]
    if pa.types.is_timestamp(type):
        return _time("local" if type.tz is None else "instant", scalar.value, type.unit)
    if pa.types.is_time(type):
        return _time("clock", scalar.value, type.unit)
    if pa.types.is_duration(type):
        return _time("span", scalar.value, type.unit)
    if pa.types.is_date(type):
        days = Fraction(scalar.value, 1 if pa.types.is_date32(type) else _DAY_MS)
        return "local", days * 86_400
    if pa.types.is_floating(type):
        return _float(_FLOATS[type.bit_width](scalar.as_py()))
    return said(scalar.as_py())


def said(value: Any) -> Any:
    """What a value of Python says."""
    match value:
        case None:
            return None
        case bool() | np.bool_():
            return "truth", bool(value)
        case Decimal() if not value.is_finite():
            return "number", {str(float(value))}
        case int() | np.integer() | Decimal():
            return "number", {Fraction(value if isinstance(value, Decimal) else int(value))}
        case float() | np.floating():
            return _float(value)
        case dt.datetime():
            kind = "local" if value.tzinfo is None else "instant"
            epoch = dt.datetime(1970, 1, 1, tzinfo=None if value.tzinfo is None else dt.UTC)
            return kind, Fraction((value - epoch) // dt.timedelta(microseconds=1), 10**6)
        case dt.date():
            return "local", Fraction((value - dt.date(1970, 1, 1)).days * 86_400)
        case dt.time():
            seconds = (value.hour * 60 + value.minute) * 60 + value.second
            kind = "clock" if value.tzinfo is None else "clock with a zone"
            return kind, seconds + Fraction(value.microsecond, 10**6)
        case dt.timedelta():
            return "span", Fraction(value // dt.timedelta(microseconds=1), 10**6)
        case Mapping():
            return _fields({name: said(part) for name, part in value.items()})
        case list() | tuple():
            return [said(part) for part in value]
    assert isinstance(value, str | bytes | UUID), value
    return type(value).__name__, value


def _fields(fields: dict[Any, Any]) -> Any:
    """A field that is missing is null."""
    return {name: value for name, value in sorted(fields.items()) if value is not None}


def _time(kind: str, count: int, unit: str) -> tuple[str, Fraction]:
    return kind, Fraction(count, PER_SECOND[unit])


def _float(value: Any) -> Any:
    if not math.isfinite(value):
        return "number", {str(float(value))}
    return "number", {Fraction(str(value)), Fraction(float(value))}


def same(one: Any, other: Any) -> bool:
    """Whether two values say the same, by what `said` and `said_by` tell of them."""
    if isinstance(one, set) and isinstance(other, set):
        return bool(one & other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def said_by_all(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """What all values of a column say."""
    return [said_by(value) for value in array]
