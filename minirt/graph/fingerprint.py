"""Fingerprints of what users hand over: whether two functions are the same, as far as that can be told.

Equal fingerprints mean equal code, made with equal values, that names equal plain globals and functions
of its module. Different ones prove nothing: another version of Python compiles otherwise, so those of
different versions are not compared (`minirt.protocol.topology.differ`).
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import sys
import types
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow.compute as pc

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_PIECES_MAX = 10_000
"""Enough for any function; a value of millions of elements is told by its first ones."""

_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def fingerprint(value: object) -> str:
    """A short text that is the same for the same value in any process of this version of Python."""
    pieces = islice(_Teller().told(value), _PIECES_MAX)
    digest = hashlib.sha256("\n".join(pieces).encode("utf-8", "surrogatepass"))
    return f"{_PYTHON}:{digest.hexdigest()[:16]}"


class _Teller:
    """Describes a value completely, without running its code, and no object twice."""

    def __init__(self) -> None:
        self._seen: dict[int, object] = {}

    def told(self, value: Any) -> Iterator[str]:
        kind = type(value)
        yield f"{kind.__module__}.{kind.__qualname__}"
        if kind in _PLAIN:
            yield repr(value)
            return
        if id(value) in self._seen:
            return
        self._seen[id(value)] = value
        match value:
            case types.FunctionType():
                yield from self._function(value)
            case types.CodeType():
                yield value.co_code.hex()
                yield from self._all((*value.co_names, *value.co_consts))
            case types.MethodType():
                yield from self._all((value.__func__, value.__self__))
            case functools.partial():
                yield from self._all((value.func, value.args, value.keywords))
            case list() | tuple():
                yield from self._all(value)
            case set() | frozenset():
                yield from sorted("\n".join(self.told(element)) for element in value)
            case dict():
                yield from self._all(part for item in value.items() for part in item)
            case type() | types.BuiltinFunctionType():
                yield f"{value.__module__}.{value.__qualname__}"
            case types.ModuleType():
                yield value.__name__
            case pc.Expression():
                yield str(value)
            case _:
                yield from self._all((_fields(value),))

    def _function(self, function: types.FunctionType) -> Iterator[str]:
        cells = (cell.cell_contents for cell in function.__closure__ or () if not _is_empty(cell))
        yield from self._all((function.__code__, function.__defaults__, function.__kwdefaults__))
        yield from self._all(cells)
        for name in function.__code__.co_names:
            value = function.__globals__.get(name)
            if isinstance(value, types.FunctionType):
                own = value.__globals__ is function.__globals__
                yield from self.told(value) if own else [value.__qualname__]
            elif type(value) in _PLAIN:
                yield from self.told(value)

    def _all(self, values: Iterable[Any]) -> Iterator[str]:
        for value in values:
            yield from self.told(value)
        yield ";"


def _is_empty(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return True
    return False


def _fields(value: Any) -> dict[str, Any]:
    """The fields of an object that is nothing but its fields."""
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    return dict(getattr(value, "__dict__", {}))
