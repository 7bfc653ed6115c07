"""Frozen dataclasses to and from plain dicts, lists and scalars, checked field by field."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from functools import cache
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")

_SCALARS = (int, float, str, bytes, bool, dict)

_Reader = Callable[[Any], Any]
"""Checks a plain value and gives what it stands for. Raises _MisfitError."""


def to_plain(value: object) -> Any:
    """What msgpack can carry in place of `value`; dicts and scalars are taken as they are."""
    kind: Any = type(value)
    if kind in _SCALARS:
        return value
    names = _names(kind)
    if names is not None:
        return {name: to_plain(getattr(value, name)) for name in names}
    if isinstance(value, tuple):
        return [to_plain(element) for element in value]
    return value


def from_plain(kind: type[T], plain: object) -> T:
    """An instance of the dataclass `kind`. Raises ValueError that names the field which is wrong."""
    wanted: Any = kind
    try:
        result: T = _reader(wanted)(plain)
    except _MisfitError as error:
        raise ValueError(f"{kind.__name__}{error.where} {error.what}") from None
    return result


class _MisfitError(Exception):
    """A value that does not fit. `where` grows from the inside out: most values fit, and need no name."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.where = ""


class _Never:
    """The type of no value."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    name: str
    as_it_is: type
    """A value of exactly this type needs no reader."""
    read: _Reader
    required: bool
    """What was stored before a field existed gets its default, if it has one."""


@cache
def _names(kind: type) -> tuple[str, ...] | None:
    """The fields of a dataclass; None for any other type."""
    if not dataclasses.is_dataclass(kind):
        return None
    return tuple(field.name for field in dataclasses.fields(kind))


@cache
def _fields(kind: type) -> tuple[_Field, ...]:
    hints = get_type_hints(kind)
    return tuple(
        _Field(
            field.name,
            _as_it_is(hints[field.name]),
            _reader(hints[field.name]),
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
        )
        for field in dataclasses.fields(kind)
    )


def _as_it_is(kind: Any) -> type:
    if get_origin(kind) is types.UnionType:
        return _as_it_is(get_args(kind)[0])
    return kind if kind in _SCALARS else _Never


@cache
def _reader(kind: Any) -> _Reader:
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return lambda plain: _read_dataclass(kind, plain)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is types.UnionType:  # Only `T | None`.
        read = _reader(arguments[0])
        return lambda plain: None if plain is None else read(plain)
    if origin is Literal:
        return lambda plain: _read_literal(arguments, plain)
    if origin is tuple:
        read = _reader(arguments[0])
        return lambda plain: _read_tuple(read, plain)
    scalar = origin or kind
    return lambda plain: _read_scalar(scalar, plain)


def _read_dataclass(kind: type, plain: Any) -> Any:
    if not isinstance(plain, dict):
        raise _wrong_type("a map", plain)
    values = {}
    for field in _fields(kind):
        name = field.name
        if name in plain:
            value = plain[name]
            if type(value) is not field.as_it_is:
                try:
                    value = field.read(value)
                except _MisfitError as error:
                    error.where = f".{name}{error.where}"
                    raise
            values[name] = value
        elif field.required:
            raise _lacking(kind, plain)
    return kind(**values)


def _lacking(kind: type, plain: dict[str, Any]) -> _MisfitError:
    required = {field.name for field in _fields(kind) if field.required}
    return _MisfitError(f"lacks {', '.join(sorted(required - plain.keys()))}")


def _read_literal(allowed: tuple[Any, ...], plain: Any) -> Any:
    if plain not in allowed:
        raise _MisfitError(f"is {plain!r}, not one of {', '.join(allowed)}")
    return plain


def _read_tuple(read: _Reader, plain: Any) -> tuple[Any, ...]:
    if not isinstance(plain, list | tuple):
        raise _wrong_type("a list", plain)
    found: list[Any] = []
    try:
        for element in plain:
            found.append(read(element))
    except _MisfitError as error:
        error.where = f"[{len(found)}]{error.where}"
        raise
    return tuple(found)


def _read_scalar(kind: type, plain: Any) -> Any:
    if kind not in _SCALARS:  # A field whose values are stored elsewhere may be of any type.
        raise TypeError(f"no plain form is defined for {kind}")
    if kind is float and type(plain) is int:
        return float(plain)
    if type(plain) is not kind:
        raise _wrong_type(kind.__name__, plain)
    return plain


def _wrong_type(wanted: str, plain: object) -> _MisfitError:
    return _MisfitError(f"must be {wanted}, not {type(plain).__name__}")
