"""Single values as bytes: msgpack, with extensions so that every supported type comes back exact.

msgpack has one kind of array. What is not a list is packed as an array whose first element is a
*mark*, an extension that says tuple, set or frozenset; a list never begins with one. `Packed.marked`
tells whether there are any, because looking for marks costs a call for every array.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, NamedTuple, NoReturn

import msgpack

from minirt import by_value
from minirt.data.errors import MalformedDataError, UnsupportedRecordError
from minirt.data.extensions import CODE_OF, PACK, UNPACK, Code
from minirt.errors import MinirtError, UserCodeError
from minirt.script_classes import load_value
from minirt.wording import given_in_call

_DEPTH_MAX = 400
_DEPTH_OF_PLAIN_DATA = 10
_REPR_CHARS = 200
_PACKER_BUFFER_BYTES = 64 * 1024

_MARK_OF = {
    kind: msgpack.ExtType(Code.MARK, name)
    for kind, name in ((tuple, b"t"), (set, b"s"), (frozenset, b"f"))
}
_KIND_OF = {mark.data: kind for kind, mark in _MARK_OF.items()}
_ARRAYS = frozenset({list, *_MARK_OF})


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


def pack_plain(values: Iterable[list[Any] | None]) -> list[bytes | None]:
    """As `pack_value` for many lists of whole numbers of 64 bits, bools and texts; None for None.

    msgpack changes none of these, so nothing is looked at.
    """
    packer = msgpack.Packer(buf_size=_PACKER_BUFFER_BYTES)
    return [None if value is None else b"\x10" + packer.pack([value]) for value in values]


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
        return msgpack.ExtType(Code.BYTEARRAY, bytes(value))
    if kind is list or kind is tuple:
        return kind(_settled(item) for item in value)
    if kind is dict:
        return {key: _settled(item) for key, item in value.items()}
    return value


def _unsupported(kind: type) -> UnsupportedRecordError:
    return UnsupportedRecordError(
        f"values of type {kind.__module__}.{kind.__qualname__} cannot be sent or stored: use plain "
        "types (None, bool, int, float, str, bytes, list, tuple, dict, set, datetime, Decimal, "
        f"UUID, numpy), or {given_in_call('options.allow_pickle', True)}"
    )


def shown(value: Any) -> str:
    """A value as messages show it, cut after 200 characters."""
    try:
        text = repr(value)
    except Exception:
        return f"a {type(value).__qualname__} whose repr fails"
    return text if len(text) <= _REPR_CHARS else text[:_REPR_CHARS] + "..."


_NEVER_PICKLED = (TypeError, AttributeError, RecursionError, pickle.PicklingError)
"""What pickle raises for values that no pickle can hold."""


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
        pack = PACK.get(kind)
        data = None if pack is None else pack(value)
        if data is not None:
            return msgpack.ExtType(CODE_OF[kind], data)
        if self._allow_pickle:
            return msgpack.ExtType(Code.PICKLE, _pickled(value))
        raise _unsupported(kind)


def _pickled(value: Any) -> bytes:
    """What the value's own `__reduce__` raises besides may pass, and is raised as it is."""
    try:
        # Classes of a script travel by value, as no other process can import them.
        data: bytes = by_value.dumps(value)
    except _NEVER_PICKLED as error:
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


_UNPACK: dict[int, Callable[[bytes], Any]] = {
    **UNPACK,
    Code.MARK: lambda data: _Mark(_KIND_OF[data]),
}


def _unpack_extension(on_pickle: Callable[[bytes], Any], code: int, data: bytes) -> Any:
    unpack = _UNPACK.get(code)
    if unpack is not None:
        return unpack(data)
    if code == Code.PICKLE:
        return on_pickle(data)
    raise MalformedDataError(f"the data holds a value of unknown kind {code}")


def _load_pickle(data: bytes) -> Any:
    """The failing code most likely belongs to the user's own types; the data need not be damaged."""
    try:
        return load_value(data)
    except pickle.UnpicklingError as error:
        raise MalformedDataError(f"a pickle cannot be loaded ({error})") from error
    except Exception as error:
        raise UserCodeError(
            f"a pickled value cannot be loaded ({type(error).__name__}: {error})"
        ) from error


def _refuse_pickle(data: bytes) -> NoReturn:
    raise MalformedDataError(
        "the data holds a pickle, and unpickling may run any code: if you trust its origin, use "
        f"{given_in_call('options.allow_pickle', True)}"
    )
