"""`dataclass` as in the standard library, but quick to make: each process of a job makes hundreds of them.

The standard decorator compiles up to seven methods for each class, one by one (before Python 3.13). Here
those that are called often are compiled, all at once, and the others are closures.

What it does not know it leaves to the standard library, for which its classes are dataclasses as well.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable
from dataclasses import MISSING, Field, FrozenInstanceError
from functools import partial
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

Fields = tuple[Field[Any], ...]


@dataclasses.dataclass(frozen=True)
class _Frozen:
    """Lends its parameters, by which the standard library knows a frozen dataclass."""


_FROZEN_PARAMETERS = _Frozen.__dataclass_params__  # type: ignore[attr-defined]


def _dataclass(
    cls: type | None = None, /, *, frozen: bool = False, slots: bool = False, **others: Any
) -> Any:
    """As `dataclasses.dataclass`. It knows no `InitVar`."""
    if cls is None:
        return partial(_dataclass, frozen=frozen, slots=slots, **others)
    if others or any(map(dataclasses.is_dataclass, cls.__mro__[1:])):
        return dataclasses.dataclass(frozen=frozen, slots=slots, **others)(cls)
    own, documented = set(vars(cls)), cls.__doc__
    cls.__doc__ = documented or "-"  # Else it is made of the signature, which takes long.
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
    made.__doc__ = documented
    fields = dataclasses.fields(made)
    methods = _compiled(made, fields, frozen) | {"__repr__": _representing(fields)}
    if frozen:
        made.__dataclass_params__ = _FROZEN_PARAMETERS
        methods |= _refusing(made, fields)
        if slots:
            methods |= _pickling(fields)
    elif "__eq__" not in own:
        methods["__hash__"] = None
    for name, method in methods.items():
        if name not in own:
            setattr(made, name, method)
    return made


if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _dataclass


def _compiled(cls: Any, fields: Fields, frozen: bool) -> dict[str, Any]:
    """`__init__`, `__eq__` and, of a frozen class, `__hash__`."""
    known, lines = _init(cls, fields, frozen)
    compared = [field.name for field in fields if field.compare]
    lines += [
        " def __eq__(self, other):",
        "  if other.__class__ is not self.__class__: return NotImplemented",
        f"  return {_tuple_of('self', compared)} == {_tuple_of('other', compared)}",
    ]
    made = ["__init__", "__eq__"]
    if frozen:
        hashed = [f.name for f in fields if (f.compare if f.hash is None else f.hash)]
        lines += [" def __hash__(self):", f"  return hash({_tuple_of('self', hashed)})"]
        made.append("__hash__")
    lines = [f"def make({', '.join(known)}):", *lines, f" return {', '.join(made)}"]
    found: dict[str, Any] = {}
    exec("\n".join(lines), vars(sys.modules[cls.__module__]), found)
    methods = dict(zip(made, found["make"](**known), strict=True))
    for name, method in methods.items():
        method.__qualname__ = f"{cls.__qualname__}.{name}"
    arguments = {field.name: field.type for field in fields if field.init}
    methods["__init__"].__annotations__ = {**arguments, "return": None}
    return methods


def _init(cls: Any, fields: Fields, frozen: bool) -> tuple[dict[str, Any], list[str]]:
    """What `__init__` knows besides its arguments, and its lines."""
    known: dict[str, Any] = {"_absent": MISSING, "_set": object.__setattr__}
    positional = ["self"]
    by_name: list[str] = []
    body: list[str] = []
    for field in fields:
        name = value = parameter = field.name
        if field.default_factory is not MISSING:
            known[f"_make_{name}"] = field.default_factory
            parameter, value = f"{name}=_absent", f"_make_{name}()"
            if field.init:
                value = f"{value} if {name} is _absent else {name}"
        elif field.default is not MISSING:
            known[f"_default_{name}"] = field.default
            parameter = f"{name}=_default_{name}"
        if field.init:
            (by_name if field.kw_only else positional).append(parameter)
        elif field.default is not MISSING:
            value = f"_default_{name}"
        elif field.default_factory is MISSING:
            continue
        body.append(f"  _set(self, {name!r}, {value})" if frozen else f"  self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("  self.__post_init__()")
    parameters = ", ".join([*positional, *(["*", *by_name] if by_name else [])])
    return known, [f" def __init__({parameters}):", *(body or ["  pass"])]


def _tuple_of(owner: str, names: Iterable[str]) -> str:
    return f"({''.join(f'{owner}.{name}, ' for name in names)})"


def _representing(fields: Fields) -> Any:
    names = [field.name for field in fields if field.repr]

    @recursive_repr("...")
    def __repr__(self: Any) -> str:
        parts = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__qualname__}({parts})"

    return __repr__


def _refusing(cls: Any, fields: Fields) -> dict[str, Any]:
    """What keeps a frozen object as it is; subclasses may have attributes of their own."""
    names = frozenset(field.name for field in fields)

    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": __setattr__, "__delattr__": __delattr__}


def _pickling(fields: Fields) -> dict[str, Any]:
    """What `pickle` needs of frozen objects without a `__dict__`."""
    names = [field.name for field in fields]

    def __getstate__(self: Any) -> list[Any]:
        return [getattr(self, name) for name in names]

    def __setstate__(self: Any, state: list[Any]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    return {"__getstate__": __getstate__, "__setstate__": __setstate__}
