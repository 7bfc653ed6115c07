"""Frozen dataclasses to and from plain dicts, lists and scalars, checked field by field."""

from __future__ import annotations

import dataclasses
import types
from functools import cache
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")

_SCALARS = (int, float, str, bytes, bool, dict)


def to_plain(value: object) -> Any:
    """What msgpack can carry in place of `value`; dicts and scalars are taken as they are."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, tuple):
        return [to_plain(element) for element in value]
    return value


def from_plain(kind: type[T], plain: object) -> T:
    """An instance of the dataclass `kind`. Raises ValueError that names the field which is wrong."""
    result: T = _read(kind, plain, kind.__name__)
    return result


@cache
def _required(kind: type) -> frozenset[str]:
    """The fields without a default. What was stored before a field existed gets its default."""
    return frozenset(
        field.name
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    )


@cache
def _fields(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _read(kind: Any, plain: Any, where: str) -> Any:
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _read_dataclass(kind, plain, where)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is types.UnionType:  # Only `T | None`.
        return None if plain is None else _read(arguments[0], plain, where)
    if origin is Literal:
        if plain not in arguments:
            raise ValueError(f"{where} is {plain!r}, not one of {', '.join(arguments)}")
        return plain
    if origin is tuple:
        return _read_tuple(arguments[0], plain, where)
    return _read_scalar(origin or kind, plain, where)


def _read_dataclass(kind: type, plain: Any, where: str) -> Any:
    if not isinstance(plain, dict):
        raise _wrong_type(where, "a map", plain)
    fields = _fields(kind)
    missing = _required(kind) - plain.keys()
    if missing:
        raise ValueError(f"{where} lacks {', '.join(sorted(missing))}")
    return kind(
        **{
            name: _read(hint, plain[name], f"{where}.{name}")
            for name, hint in fields.items()
            if name in plain
        }
    )


def _read_tuple(kind: Any, plain: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(plain, list | tuple):
        raise _wrong_type(where, "a list", plain)
    return tuple(_read(kind, element, f"{where}[{i}]") for i, element in enumerate(plain))


def _read_scalar(kind: type, plain: Any, where: str) -> Any:
    if kind not in _SCALARS:
        raise TypeError(f"{where}: no plain form is defined for {kind}")
    if kind is float and type(plain) is int:
        return float(plain)
    if type(plain) is not kind:
        raise _wrong_type(where, kind.__name__, plain)
    return plain


def _wrong_type(where: str, wanted: str, plain: object) -> ValueError:
    return ValueError(f"{where} must be {wanted}, not {type(plain).__name__}")
