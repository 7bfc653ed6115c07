"""Single values as bytes: msgpack, with extensions so that every supported type comes back exact.

msgpack has one kind of array. What is not a list is packed as an array whose first element is a
*mark*, an extension that says tuple, set or frozenset; a list never begins with one. `Packed.marked`
tells whether there are any, because looking for marks costs a call for every array.
"""

from __future__ import annotations

import datetime as dt
import functools
import pickle
import struct
from collections.abc import Callable, Iterable
from decimal import Decimal
from itertools import chain
from typing import Any, NamedTuple, NoReturn
from uuid import UUID
from zoneinfo import ZoneInfo

import cloudpickle
import msgpack
import numpy as np

from minirt.data.civil_time import SecondPass
from minirt.errors import MinirtError, UserCodeError

_DEPTH_MAX = 400
_DEPTH_OF_PLAIN_DATA = 10
_REPR_CHARS = 200
_PACKER_BUFFER_BYTES = 64 * 1024

_MARK, _INT, _BYTEARRAY, _DATETIME, _DATE, _TIME, _TIMEDELTA = range(1, 8)
_DECIMAL, _UUID, _NUMPY_SCALAR, _NUMPY_ARRAY, _PICKLE = range(8, 13)

_MARK_OF = {
    kind: msgpack.ExtType(_MARK, name)
    for kind, name in ((tuple, b"t"), (set, b"s"), (frozenset, b"f"))
}
_KIND_OF = {mark.data: kind for kind, mark in _MARK_OF.items()}
_ARRAYS = frozenset({list, *_MARK_OF})
_NUMPY_SCALARS = frozenset(set(np.sctypeDict.values()) - {np.object_, np.void})
_NUMPY_KINDS = "biufcmMSU"


class UnsupportedRecordError(MinirtError):
    """A record or a state value has a type that cannot be sent or stored."""


class MalformedDataError(MinirtError):
    """Bytes are not what an encoder of minirt wrote."""


class Pickled(NamedTuple):
    """A value that is stored as a pickle and was not loaded, since that may run any code."""

    data: bytes

    def __repr__(self) -> str:
        return f"Pickled({len(self.data)} bytes)"


class Packed(NamedTuple):
    body: bytes
    marked: bool


def pack_value(value: Any, *, allow_pickle: bool = False) -> bytes:
    """A value of any supported type as bytes, for `unpack_value`.

    Raises UnsupportedRecordError for other types, unless `allow_pickle` lets them travel as a pickle.
    """
    try:
        body, marked = pack_exact(settle([value]), allow_pickle=allow_pickle)
    except UnsupportedRecordError as error:
        raise UnsupportedRecordError(f"{error}; in {shown(value)}") from None
    return (b"\x11" if marked else b"\x10") + body


def unpack_value(data: bytes | memoryview, *, allow_pickle: bool = False) -> Any:
    """The value that `pack_value` was given. Raises MalformedDataError."""
    if bytes(data[:1]) not in (b"\x10", b"\x11"):
        raise MalformedDataError("this is not a packed value, or one of a newer version of minirt")
    values = unpack_exact(memoryview(data)[1:], marked=data[0] == 0x11, allow_pickle=allow_pickle)
    if type(values) is not list or len(values) != 1:
        raise MalformedDataError("a packed value is damaged")
    return values[0]


def pack_exact(tree: Any, *, allow_pickle: bool) -> Packed:
    """msgpack of a tree in which `settle` has replaced what msgpack would silently change."""
    extension = _Extension(allow_pickle)
    try:
        try:
            body = _packer(extension).pack(tree)
        except UnicodeEncodeError:  # lone surrogates, as in names of files
            body = _packer(extension, unicode_errors="surrogatepass").pack(tree)
    except ValueError as error:
        raise UnsupportedRecordError(f"a value is too deep or too large ({error})") from error
    return Packed(body, extension.marked)


def unpack_exact(
    body: bytes | memoryview, *, marked: bool, allow_pickle: bool, opaque_pickles: bool = False
) -> Any:
    """The tree that was given to `pack_exact`, marks and extensions resolved."""
    on_pickle = _load_pickle if allow_pickle else Pickled if opaque_pickles else _refuse_pickle
    try:
        return msgpack.unpackb(
            body,
            strict_map_key=False,
            unicode_errors="surrogatepass",
            ext_hook=functools.partial(_unpack_extension, on_pickle),
            list_hook=_resolve_mark if marked else None,
        )
    except MinirtError:
        raise
    except Exception as error:
        raise MalformedDataError(
            f"data cannot be decoded ({type(error).__name__}: {error})"
        ) from error


def settle(values: list[Any]) -> list[Any]:
    """The values, with every bytearray inside made an extension, as msgpack takes it for bytes.

    Raises UnsupportedRecordError for types that msgpack would change without asking, and for values
    that contain themselves.
    """
    kinds = _kinds_inside(values)
    for kind in (memoryview, msgpack.ExtType, msgpack.Timestamp):
        if kind in kinds:
            raise _unsupported(kind)
    return [_settled(value) for value in values] if bytearray in kinds else values


def explain_unsupported(
    values: Iterable[Any], error: UnsupportedRecordError, *, allow_pickle: bool
) -> UnsupportedRecordError:
    """The error, naming the first of the values that cannot be packed."""
    for value in values:
        try:
            pack_value(value, allow_pickle=allow_pickle)
        except UnsupportedRecordError as found:
            return found
    return error


def _packer(extension: _Extension, unicode_errors: str | None = None) -> msgpack.Packer:
    return msgpack.Packer(
        strict_types=True,
        default=extension,
        unicode_errors=unicode_errors,
        buf_size=_PACKER_BUFFER_BYTES,
    )


def _kinds_inside(values: list[Any]) -> set[type]:
    """The types of the values and of everything inside them, level by level."""
    found: set[type] = set()
    level = values
    for depth in range(_DEPTH_MAX):
        kinds = set(map(type, level))
        found |= kinds
        if dict not in kinds and not kinds & _ARRAYS:
            return found
        parts: list[Iterable[Any]] = [value for value in level if type(value) in _ARRAYS]
        if dict in kinds:
            maps = [value for value in level if type(value) is dict]
            parts += maps
            parts += map(dict.values, maps)
        level = list(chain.from_iterable(parts))
        if depth > _DEPTH_OF_PLAIN_DATA:
            # Values that contain themselves twice would double the level every time.
            level = list({id(value): value for value in level}.values())
    raise UnsupportedRecordError(
        f"a value is nested more than {_DEPTH_MAX} deep, or contains itself"
    )


def _settled(value: Any) -> Any:
    kind = type(value)
    if kind is bytearray:
        return msgpack.ExtType(_BYTEARRAY, bytes(value))
    if kind is list or kind is tuple:
        return kind(_settled(item) for item in value)
    if kind is dict:
        return {key: _settled(item) for key, item in value.items()}
    return value


def _unsupported(kind: type) -> UnsupportedRecordError:
    return UnsupportedRecordError(
        f"values of type {kind.__module__}.{kind.__qualname__} cannot be sent or stored: use plain "
        "types (None, bool, int, float, str, bytes, list, tuple, dict, set, datetime, Decimal, UUID, "
        "numpy), or Options(allow_pickle=True)"
    )


def shown(value: Any) -> str:
    """A value as messages show it, cut after 200 characters."""
    try:
        text = repr(value)
    except Exception:
        return f"a {type(value).__qualname__} whose repr fails"
    return text if len(text) <= _REPR_CHARS else text[:_REPR_CHARS] + "..."


class _Extension:
    """The hook of a msgpack.Packer for everything that msgpack does not know by itself."""

    __slots__ = ("_allow_pickle", "marked")

    def __init__(self, allow_pickle: bool) -> None:
        self._allow_pickle = allow_pickle
        self.marked = False

    def __call__(self, value: Any) -> Any:
        kind = type(value)
        mark = _MARK_OF.get(kind)
        if mark is not None:
            self.marked = True
            return [mark, *value]
        pack = _PACK.get(kind)
        data = None if pack is None else pack(value)
        if data is not None:
            return msgpack.ExtType(_CODE_OF[kind], data)
        if self._allow_pickle:
            return msgpack.ExtType(_PICKLE, _pickled(value))
        raise _unsupported(kind)


def _pickled(value: Any) -> bytes:
    try:
        # Classes of a script travel by value, as no other process can import them.
        data: bytes = cloudpickle.dumps(value)
    except Exception as error:
        raise UnsupportedRecordError(
            f"a value of type {type(value).__qualname__} cannot be pickled ({error})"
        ) from error
    return data


def _resolve_mark(items: list[Any]) -> Any:
    if items and type(items[0]) is _Mark:
        return items[0].kind(items[1:])
    return items


class _Mark(NamedTuple):
    kind: Callable[[list[Any]], Any]


def _unpack_extension(on_pickle: Callable[[bytes], Any], code: int, data: bytes) -> Any:
    unpack = _UNPACK.get(code)
    if unpack is not None:
        return unpack(data)
    if code == _PICKLE:
        return on_pickle(data)
    raise MalformedDataError(f"the data holds a value of unknown kind {code}")


def _load_pickle(data: bytes) -> Any:
    """The failing code most likely belongs to the user's own types; the data need not be damaged."""
    try:
        return pickle.loads(data)
    except pickle.UnpicklingError as error:
        raise MalformedDataError(f"a pickle cannot be loaded ({error})") from error
    except Exception as error:
        raise UserCodeError(
            f"a pickled value cannot be loaded ({type(error).__name__}: {error})"
        ) from error


def _refuse_pickle(data: bytes) -> NoReturn:
    raise MalformedDataError(
        "the data holds a pickle, and unpickling may run any code: if you trust its origin, "
        "use Options(allow_pickle=True)"
    )


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


_PACK: dict[type, Callable[[Any], bytes | None]] = {
    int: _pack_int,
    dt.datetime: _pack_clock,
    SecondPass: _pack_clock,
    dt.date: lambda value: struct.pack("<I", value.toordinal()),
    dt.time: _pack_clock,
    dt.timedelta: _pack_timedelta,
    Decimal: lambda value: str(value).encode(),
    UUID: lambda value: value.bytes,
    np.ndarray: _pack_numpy_array,
    **dict.fromkeys(_NUMPY_SCALARS, _pack_numpy_scalar),
}
_CODE_OF: dict[type, int] = {
    int: _INT,
    dt.datetime: _DATETIME,
    SecondPass: _DATETIME,
    dt.date: _DATE,
    dt.time: _TIME,
    dt.timedelta: _TIMEDELTA,
    Decimal: _DECIMAL,
    UUID: _UUID,
    np.ndarray: _NUMPY_ARRAY,
    **dict.fromkeys(_NUMPY_SCALARS, _NUMPY_SCALAR),
}
_UNPACK: dict[int, Callable[[bytes], Any]] = {
    _MARK: lambda data: _Mark(_KIND_OF[data]),
    _INT: _unpack_int,
    _BYTEARRAY: bytearray,
    _DATETIME: _unpack_datetime,
    _DATE: lambda data: dt.date.fromordinal(*struct.unpack("<I", data)),
    _TIME: _unpack_time,
    _TIMEDELTA: _unpack_timedelta,
    _DECIMAL: lambda data: Decimal(data.decode()),
    _UUID: lambda data: UUID(bytes=data),
    _NUMPY_SCALAR: _unpack_numpy_scalar,
    _NUMPY_ARRAY: _unpack_numpy_array,
}
