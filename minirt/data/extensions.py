"""What msgpack has no type of its own for, each as bytes under a code: an extension of msgpack.

The codes, and what stands behind each, are part of the format of checkpoints.
"""

from __future__ import annotations

import datetime as dt
import functools
import struct
from collections.abc import Callable
from decimal import Decimal
from enum import IntEnum
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np

from minirt.data.civil_time import ByInstant, Nanoseconds, plain_datetime
from minirt.data.errors import MalformedDataError

_NUMPY_SCALARS = frozenset(set(np.sctypeDict.values()) - {np.object_, np.void})
_NUMPY_KINDS = "biufcmMSU"


class Code(IntEnum):
    """Marks and pickles belong to `minirt.data.values`."""

    MARK = 1
    INT = 2
    BYTEARRAY = 3
    DATETIME = 4
    DATE = 5
    TIME = 6
    TIMEDELTA = 7
    DECIMAL = 8
    UUID = 9
    NUMPY_SCALAR = 10
    NUMPY_ARRAY = 11
    PICKLE = 12
    NANOSECONDS = 13


def _pack_int(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)


def _unpack_int(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


def _pack_zone(zone: dt.tzinfo | None) -> bytes | None:
    """None for a zone that cannot be named."""
    if zone is None:
        return b""
    if zone is dt.UTC:
        return b"U"
    if type(zone) is ZoneInfo:
        return None if zone.key is None else b"Z" + zone.key.encode()
    if type(zone) is dt.timezone:
        offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]
        return b"O" + _pack_timedelta(offset) + b"".join(b"=" + text.encode() for text in name)
    return None


@functools.lru_cache(maxsize=256)
def _unpack_zone(data: bytes) -> dt.tzinfo | None:
    kind, rest = data[:1], data[1:]
    if kind == b"":
        return None
    if kind == b"U":
        return dt.UTC
    if kind == b"Z":
        return ZoneInfo(rest.decode())
    offset, name = _unpack_timedelta(rest[: _TIMEDELTA_STATE.size]), rest[_TIMEDELTA_STATE.size :]
    return dt.timezone(offset, name[1:].decode()) if name else dt.timezone(offset)


def _pack_clock(value: dt.datetime | dt.time) -> bytes | None:
    zone = _pack_zone(value.tzinfo)
    # The state that pickle has used for all versions of Python 3; it holds the fold, too.
    state: Any = value.__reduce_ex__(4)[1][0]
    return None if zone is None else bytes(state) + zone


def _unpack_datetime(data: bytes) -> dt.datetime:
    # replace() checks the fields, which the constructor does not do for a state.
    return dt.datetime(data[:10]).replace(tzinfo=_unpack_zone(data[10:]))  # type: ignore[call-arg, arg-type]


_REST = struct.Struct("<H")


def _pack_nanoseconds(value: Nanoseconds) -> bytes | None:
    clock = _pack_clock(plain_datetime(value))
    return None if clock is None else _REST.pack(value.nanosecond) + clock


def _unpack_nanoseconds(data: bytes) -> dt.datetime:
    [nanosecond] = _REST.unpack(data[: _REST.size])
    if not 1 <= nanosecond <= 999:
        raise MalformedDataError(f"the data holds a time with {nanosecond} nanoseconds")
    return Nanoseconds.of(_unpack_datetime(data[_REST.size :]), nanosecond)


def _unpack_time(data: bytes) -> dt.time:
    return dt.time(data[:6]).replace(tzinfo=_unpack_zone(data[6:]))  # type: ignore[arg-type]


_TIMEDELTA_STATE = struct.Struct("<iii")


def _pack_timedelta(value: dt.timedelta) -> bytes:
    return _TIMEDELTA_STATE.pack(value.days, value.seconds, value.microseconds)


def _unpack_timedelta(data: bytes) -> dt.timedelta:
    return dt.timedelta(*_TIMEDELTA_STATE.unpack(data))


def _pack_numpy_scalar(value: np.generic) -> bytes:
    kind = value.dtype.str
    if np.dtype(kind).type is not type(value):  # two C types of one size
        kind = value.dtype.char
    array = np.array(value)
    return kind.encode() + b"\0" + array.tobytes()


def _unpack_numpy_scalar(data: bytes) -> Any:
    kind, _, content = data.partition(b"\0")
    dtype = _numpy_dtype(kind)
    return np.ndarray((), dtype, content)[()] if dtype.itemsize else dtype.type()


def _pack_numpy_array(value: np.ndarray[Any, Any]) -> bytes | None:
    if value.dtype.kind not in _NUMPY_KINDS:
        return None
    shape = ",".join(map(str, value.shape))
    return f"{value.dtype.str}\0{shape}\0".encode() + value.tobytes()


def _unpack_numpy_array(data: bytes) -> Any:
    kind, shape, content = data.split(b"\0", 2)
    lengths = tuple(map(int, shape.split(b","))) if shape else ()
    # A copy, because an array that came in could be written to.
    return np.frombuffer(content, _numpy_dtype(kind)).reshape(lengths).copy()


@functools.lru_cache(maxsize=256)
def _numpy_dtype(kind: bytes) -> np.dtype[Any]:
    dtype = np.dtype(kind.decode())
    if dtype.kind not in _NUMPY_KINDS:
        raise MalformedDataError(f"the data holds a numpy value of kind {dtype}")
    return dtype


PACK: dict[type, Callable[[Any], bytes | None]] = {
    int: _pack_int,
    dt.datetime: _pack_clock,
    ByInstant: _pack_clock,
    Nanoseconds: _pack_nanoseconds,
    dt.date: lambda value: struct.pack("<I", value.toordinal()),
    dt.time: _pack_clock,
    dt.timedelta: _pack_timedelta,
    Decimal: lambda value: str(value).encode(),
    UUID: lambda value: value.bytes,
    np.ndarray: _pack_numpy_array,
    **dict.fromkeys(_NUMPY_SCALARS, _pack_numpy_scalar),
}
CODE_OF: dict[type, Code] = {
    int: Code.INT,
    dt.datetime: Code.DATETIME,
    ByInstant: Code.DATETIME,
    Nanoseconds: Code.NANOSECONDS,
    dt.date: Code.DATE,
    dt.time: Code.TIME,
    dt.timedelta: Code.TIMEDELTA,
    Decimal: Code.DECIMAL,
    UUID: Code.UUID,
    np.ndarray: Code.NUMPY_ARRAY,
    **dict.fromkeys(_NUMPY_SCALARS, Code.NUMPY_SCALAR),
}
UNPACK: dict[int, Callable[[bytes], Any]] = {
    Code.INT: _unpack_int,
    Code.BYTEARRAY: bytearray,
    Code.DATETIME: _unpack_datetime,
    Code.NANOSECONDS: _unpack_nanoseconds,
    Code.DATE: lambda data: dt.date.fromordinal(*struct.unpack("<I", data)),
    Code.TIME: _unpack_time,
    Code.TIMEDELTA: _unpack_timedelta,
    Code.DECIMAL: lambda data: Decimal(data.decode()),
    Code.UUID: lambda data: UUID(bytes=data),
    Code.NUMPY_SCALAR: _unpack_numpy_scalar,
    Code.NUMPY_ARRAY: _unpack_numpy_array,
}
