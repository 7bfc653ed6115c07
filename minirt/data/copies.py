"""Copies of records: as deep as they can change, and no deeper.

What never changes is its own copy: numbers, texts, times, and tuples of such. For each type that records
may hold there is a function that copies it; `copy.deepcopy` copies any other value. A value that stands in
two places of a record stands there twice in the copy, as after sending the record.
"""

from __future__ import annotations

import copy
import datetime as dt
import re
import types
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from functools import partial
from itertools import chain
from typing import Any
from uuid import UUID

import numpy as np

UNCHANGING = (
    *(type(None), bool, int, float, complex, str, bytes, frozenset, range, Decimal, UUID),
    *(dt.date, dt.datetime, dt.time, dt.timedelta, dt.timezone),
    *(re.Pattern, type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType),
)


def copied(value: Any) -> Any:
    """A value that is equal, and that nobody else can change; itself if nobody can change it.

    Returns a value that it cannot copy, such as a connection, itself. Nobody could send that either.
    """
    copier = _COPIERS[type(value)]
    return value if copier is None else copier(value)


def copied_all(values: list[Any]) -> list[Any]:
    """A list of the copies of all values; fast where they are alike and flat."""
    kinds = set(map(type, values))
    if _never_change(kinds):
        return values.copy()
    if kinds == {dict}:
        if _never_change(set(map(type, chain.from_iterable(map(dict.values, values))))):
            return list(map(dict.copy, values))
    elif kinds == {tuple} and _never_change(set(map(type, chain.from_iterable(values)))):
        return values.copy()
    return [copied(value) for value in values]


def can_change(value: Any) -> bool:
    """Whether a value, or something in it, is of a type that can be changed."""
    copier = _COPIERS[type(value)]
    if copier is _copied_tuple:
        return any(map(can_change, value))
    if isinstance(copier, partial):
        return any(can_change(getattr(value, name)) for name in copier.args[0])
    return copier is not None


def _never_change(kinds: set[type]) -> bool:
    return all(_COPIERS[kind] is None for kind in kinds)


Copier = Callable[[Any], Any]


class _Copiers(dict[type, Copier | None]):
    """How values of a type are copied; None for types whose values never change."""

    def __missing__(self, kind: type) -> Copier | None:
        copier = self[kind] = _copier_of(kind)
        return copier


def _copier_of(kind: type) -> Copier | None:
    if issubclass(kind, np.generic | Enum):
        return None
    if is_dataclass(kind) and kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        return partial(_copied_frozen, tuple(field.name for field in fields(kind)))
    return _copied_object


def _copied_dict(value: dict[Any, Any]) -> dict[Any, Any]:
    copiers = _COPIERS
    for item in value.values():
        if copiers[type(item)] is not None:
            return {key: copied(item) for key, item in value.items()}
    return value.copy()


def _copied_list(value: list[Any]) -> list[Any]:
    return [copied(item) for item in value]


def _copied_tuple(value: tuple[Any, ...]) -> tuple[Any, ...]:
    copiers = _COPIERS
    for item in value:
        if copiers[type(item)] is not None:
            return tuple([copied(item) for item in value])
    return value


def _copied_array(value: np.ndarray[Any, Any]) -> Any:
    return _copied_object(value) if value.dtype.hasobject else value.copy()


def _copied_frozen(names: tuple[str, ...], value: Any) -> Any:
    return (
        _copied_object(value) if any(can_change(getattr(value, name)) for name in names) else value
    )


def _copied_object(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception:  # objects that cannot be copied raise whatever they like
        return value


_COPIERS = _Copiers(
    {
        **dict.fromkeys(UNCHANGING),
        dict: _copied_dict,
        list: _copied_list,
        tuple: _copied_tuple,
        set: set.copy,
        bytearray: bytearray.copy,
        np.ndarray: _copied_array,
    }
)
