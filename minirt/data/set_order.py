"""Gives the sets in a value one order, which does not depend on how they grew.

Python iterates over a set in an order that depends on the hashes of its elements and on what was added and
removed before. So a set that was stored and read again is equal, but may iterate in another order. A
subtask that does its work again after a restart of its worker alone must see the order of the first time.
"""

from __future__ import annotations

import io
import pickle
import types
from collections.abc import Callable, Collection, Iterable
from enum import Enum
from typing import Any

import numpy as np

from minirt.data.copies import UNCHANGING
from minirt.data.values import pack_value, shown
from minirt.errors import UserCodeError

Orderer = Callable[[Any], Any]


def in_set_order(value: Any) -> Any:
    """An equal value in which each set was built from its elements in the order of their hashes.

    Returns `value` itself if it holds no set. Raises UserCodeError for a set whose elements are hashed by
    their address in memory.
    """
    orderer = _ORDERERS[type(value)]
    return value if orderer is None else orderer(value)


def all_in_set_order(values: list[Any]) -> list[Any]:
    """As `in_set_order` for each value; the list itself if none of them holds a set."""
    return values if _hold_no_set(values) else _ordered_list(values)


def _hold_no_set(values: Iterable[Any]) -> bool:
    kinds = set(map(type, values))
    return kinds <= _PLAIN or all(_ORDERERS[kind] is None for kind in kinds)


class _Orderers(dict[type, Orderer | None]):
    """What gives the sets in values of a type their order; None for types that hold none."""

    def __missing__(self, kind: type) -> Orderer | None:
        holds_none = issubclass(kind, np.generic | Enum | type)
        orderer = self[kind] = None if holds_none else _ordered_object
        return orderer


def _ordered_list(value: list[Any]) -> list[Any]:
    if _hold_no_set(value):
        return value
    ordered = [in_set_order(item) for item in value]
    return ordered if _differ(ordered, value) else value


def _ordered_tuple(value: tuple[Any, ...]) -> tuple[Any, ...]:
    if _hold_no_set(value):
        return value
    ordered = tuple([in_set_order(item) for item in value])
    return ordered if _differ(ordered, value) else value


def _ordered_dict(value: dict[Any, Any]) -> dict[Any, Any]:
    if _hold_no_set(value.values()) and _hold_no_set(value):
        return value
    ordered = {in_set_order(key): in_set_order(item) for key, item in value.items()}
    same_keys = not _differ(ordered, value)
    return value if same_keys and not _differ(ordered.values(), value.values()) else ordered


def _differ(ordered: Iterable[Any], given: Iterable[Any]) -> bool:
    return any(one is not other for one, other in zip(ordered, given, strict=True))


def _ordered_set(value: set[Any]) -> set[Any]:
    return set(_sorted(value))


def _ordered_frozenset(value: frozenset[Any]) -> frozenset[Any]:
    return frozenset(_sorted(value))


def _ordered_array(value: np.ndarray[Any, Any]) -> Any:
    return _ordered_object(value) if value.dtype.hasobject else value


def _sorted(elements: Collection[Any]) -> list[Any]:
    """The elements in one order, whatever order they come in."""
    given = list(elements)
    kinds = set(map(type, given))
    if len(kinds) == 1 and kinds <= _QUICKLY_SORTED:
        return sorted(given)
    if not _hold_no_set(given):
        given = [in_set_order(element) for element in given]
    for kind in kinds:
        if issubclass(kind, float | np.floating):
            _check_numbers(given)
        if _hashes_by_address(kind) and not issubclass(kind, _NAMED):
            raise UserCodeError(
                f"a set holds a {kind.__qualname__}, which Python hashes by its address in memory: after a "
                'restart with the scope "replay" the set iterates in another order; give the class '
                "__eq__ and __hash__, or keep a list or a dict"
            )
    if len(set(map(hash, given))) == len(given):
        return sorted(given, key=hash)
    return sorted(given, key=_full_key)


_QUICKLY_SORTED = frozenset({int, str, bytes})
"""Types whose values are in one order that is found faster than that of their hashes."""

_NAMED = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type(None))
"""What stays where it is in the memory of all forks of one process."""


def _hashes_by_address(kind: type) -> bool:
    hashes: Any = kind.__hash__
    return hashes is object.__hash__


def _check_numbers(elements: Iterable[Any]) -> None:
    for element in elements:
        if element != element:
            raise UserCodeError(
                f"a set holds {shown(element)}, which Python hashes by its address in memory: after a "
                'restart with the scope "replay" the set iterates in another order; leave it out'
            )


def _full_key(element: Any) -> tuple[int, str, bytes]:
    """Tells elements of one hash apart, such as -1 and -2."""
    try:
        told = pack_value(element, allow_pickle=True)
    except Exception:  # Its own `__reduce__` may raise anything.
        told = shown(element).encode("utf-8", "replace")
    return hash(element), type(element).__qualname__, told


def _ordered_object(value: Any) -> Any:
    """A value of a type that minirt does not know, by way of a pickle: that finds the sets inside."""
    with io.BytesIO() as file:
        pickler = _SetPickler(file)
        try:
            pickler.dump(value)
        except UserCodeError:
            raise
        except Exception:  # It can be in no checkpoint either, so nothing ever restores it.
            return value
        if not pickler.places:
            return value
        file.seek(0)
        return _SetUnpickler(file, pickler.kept).load()


class _SetPickler(pickle.Pickler):
    """Packs sets as lists of their elements by hash, and keeps what has a name or never changes as it is.

    A set that stands in two places is one set again.
    """

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.kept: list[Any] = []
        self.places: dict[int, int] = {}
        self._alive: list[Any] = []
        """What was packed lives as long, so that no other object has its address."""

    def persistent_id(self, value: Any) -> Any:
        kind = type(value)
        if kind is set or kind is frozenset:
            place = self.places.get(id(value))
            if place is not None:
                return ("again", place)
            self.places[id(value)] = len(self.places)
            self._alive.append(value)
            return (kind.__name__, self.places[id(value)], _sorted(value))
        if isinstance(value, _KEPT):
            self.kept.append(value)
            return ("kept", len(self.kept) - 1)
        return None

    def reducer_override(self, value: Any) -> Any:
        """Of a subclass of a set the elements are packed in their order, too."""
        if not isinstance(value, set | frozenset):
            return NotImplemented
        self.places.setdefault(id(value), len(self.places))
        reduced: Any = value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        make, arguments, *rest = reduced
        if make is type(value) and len(arguments) == 1:
            arguments = (_sorted(value),)
        return (make, arguments, *rest)


_KEPT = (*_NAMED, Enum, property, classmethod, staticmethod)


class _SetUnpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, kept: list[Any]) -> None:
        super().__init__(file)
        self._kept = kept
        self._sets: dict[int, Any] = {}

    def persistent_load(self, told: Any) -> Any:
        match told:
            case ("kept", place):
                return self._kept[place]
            case ("again", place):
                return self._sets[place]
            case (kind, place, elements):
                made = self._sets[place] = set(elements) if kind == "set" else frozenset(elements)
                return made
        raise pickle.UnpicklingError(f"unknown reference {told!r}")


_PLAIN = frozenset({*UNCHANGING, bytearray} - {frozenset})
"""Types whose values hold no set."""

_ORDERERS = _Orderers(
    {
        **dict.fromkeys(_PLAIN),
        dict: _ordered_dict,
        list: _ordered_list,
        tuple: _ordered_tuple,
        set: _ordered_set,
        frozenset: _ordered_frozenset,
        np.ndarray: _ordered_array,
    }
)
