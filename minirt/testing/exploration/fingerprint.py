"""A digest of everything that the future of an object depends on.

Two states with one fingerprint are taken for the same state, so what is left out would make an
exploration blind. Therefore the walk goes over all fields of all objects that can be reached, also
through closures, bound methods and suspended generators, and a new field is covered by itself. What it
does leave out is named here, with the reason. An object that it cannot look into is an error.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from enum import Enum
from functools import partial
from hashlib import blake2b
from itertools import chain, count
from operator import itemgetter
from struct import Struct
from typing import Any

import numpy as np
import pyarrow as pa

from minirt.config import Limits, Options
from minirt.data.keys import KeyRouter
from minirt.graph.execution import ExecutionGraph, Link, Vertex
from minirt.protocol.topology import Topology
from minirt.runtime.channels.frames import Frame
from minirt.runtime.control.package import JobPackage
from minirt.testing.sink import TransactionalSink
from minirt.testing.storage import SimulatedObjects

CONSTANT: tuple[type, ...] = (ExecutionGraph, Vertex, Link, Topology, Limits, Options, JobPackage)
"""The job as it was written: the same in all states."""

ELSEWHERE: tuple[type, ...] = (SimulatedObjects, TransactionalSink)
"""Views of what is durable, which is a part of the state of its own."""

CACHES: tuple[type, ...] = (KeyRouter,)
"""Answers that are remembered, and would be the same if they were asked for again."""

FIELDS: Mapping[tuple[str, str], str] = {
    ("SnapshotUpload", "processed_bytes"): "a figure that is only reported; acknowledged as 0",
    ("SubtaskPart", "_job"): "what all states have in common",
    ("CoordinatorPart", "_job"): "what all states have in common",
    ("SubtaskPart", "_event_loop"): "nothing is pending in it between events",
}
"""Single fields, by class, and why they are left out."""

_LEFT_OUT = (*CONSTANT, *ELSEWHERE, *CACHES)
_PLAIN = frozenset((type(None), bool, int, float, complex, str, bytes))


def fingerprint(root: object) -> bytes:
    """16 bytes, the same for states that nothing can tell apart. Raises TypeError for the unknown."""
    return blake2b(_written_out(root).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _written_out(root: object) -> str:
    walk = _Walk()
    walk.visit(root)
    return repr(walk.tokens)


class _Walk:
    """Turns an object graph into a list of plain values; what is met again becomes a reference.

    Values that cannot change are written out wherever they occur, since who shares them makes no
    difference.
    """

    def __init__(self) -> None:
        self.tokens: list[Any] = []
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []
        """What was seen stays alive, so that no id is used twice."""

    def visit(self, value: Any) -> None:
        kind = type(value)
        if kind in _PLAIN:
            self.tokens.append(value)
            return
        known = _LOOKS.get(kind)
        if known is None:
            known = _LOOKS[kind] = _look_of(kind)
        constant, look = known
        if not constant:
            number = self._seen.setdefault(id(value), len(self._kept))
            if number < len(self._kept):
                self.tokens.append(("@", number))
                return
            self._kept.append(value)
        look(self, value)


Look = Callable[[_Walk, Any], None]
"""How the content of a value is walked through."""

_LOOKS: dict[type, tuple[bool, Look]] = {}
"""By type: whether its values are written out wherever they occur, and how."""


def _look_of(kind: type) -> tuple[bool, Look]:
    if issubclass(kind, _LEFT_OUT):
        return True, lambda walk, value: walk.tokens.append(kind.__name__)
    for kinds, text in _TEXTS:
        if issubclass(kind, kinds):
            return True, partial(_write_out, kind.__name__, text)
    for kinds, parts in _PARTS:
        if issubclass(kind, kinds):
            return issubclass(kind, tuple), partial(_visit_parts, kind.__name__, parts)
    if issubclass(kind, frozenset | set):
        return kind is frozenset, _visit_unordered
    constant = kind is Frame or (is_dataclass(kind) and kind.__dataclass_params__.frozen)  # type: ignore[attr-defined]
    if not _is_open(kind):
        raise TypeError(f"nobody knows what a {kind.__module__}.{kind.__qualname__} holds")
    return constant, _visit_fields(kind)


def _write_out(name: str, text: Callable[[Any], Any], walk: _Walk, value: Any) -> None:
    walk.tokens.append((name, text(value)))


def _visit_parts(name: str, parts: Callable[[Any], Iterable[Any]], walk: _Walk, value: Any) -> None:
    tokens, visit = walk.tokens, walk.visit
    tokens.append(name)
    for part in parts(value):
        if type(part) in _PLAIN:  # Most are: a call for each would take half of the time.
            tokens.append(part)
        else:
            visit(part)
    tokens.append(";")


def _visit_unordered(walk: _Walk, parts: Iterable[Any]) -> None:
    walk.tokens.append(sorted(map(_written_out, parts)))


def _visit_fields(kind: type) -> Look:
    """Walks through the attributes, wherever they are kept."""
    left_out = {name for owner, name in FIELDS if owner == kind.__name__}
    slots = [name for name in _slots(kind) if name not in left_out]

    def visit(walk: _Walk, value: Any) -> None:
        tokens = walk.tokens
        tokens.append(kind.__qualname__)
        for name in slots:
            content = getattr(value, name, _UNSET)
            if type(content) in _PLAIN:
                tokens.append(content)
            else:
                walk.visit(content)
        for name, content in getattr(value, "__dict__", {}).items():
            if name not in left_out:
                tokens.append(name)
                if type(content) in _PLAIN:
                    tokens.append(content)
                else:
                    walk.visit(content)
        tokens.append(";")

    return visit


def _is_open(kind: type) -> bool:
    """Whether all that its values hold is in attributes: no type that it stems from is built in."""
    return all(base is object or base.__flags__ & _HEAP_TYPE for base in kind.__mro__)


def _slots(kind: type) -> list[str]:
    declared = (vars(base).get("__slots__", ()) for base in kind.__mro__)
    names = [(slots,) if isinstance(slots, str) else slots for slots in declared]
    return [name for some in names for name in some if name not in ("__dict__", "__weakref__")]


def _of_function(function: types.FunctionType) -> Iterable[Any]:
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    return (function.__qualname__, function.__defaults__, function.__kwdefaults__, *cells)


def _of_generator(generator: types.GeneratorType[Any, Any, Any]) -> Iterable[Any]:
    """Where it has got to, and what it remembers.

    By name: Python lists variables in the order in which somebody first looked at the frame.
    """
    frame = generator.gi_frame
    remembered = (
        () if frame is None else (frame.f_lasti, *sorted(frame.f_locals.items(), key=itemgetter(0)))
    )
    return (generator.__qualname__, generator.gi_yieldfrom, *remembered)


_UNSET = "unset"

_HEAP_TYPE = 1 << 9
"""Py_TPFLAGS_HEAPTYPE: set for types that were made by a class statement."""

_PARTS: Sequence[tuple[type | tuple[type, ...], Callable[[Any], Iterable[Any]]]] = (
    ((tuple, list, deque), lambda parts: parts),
    (dict, lambda mapping: chain.from_iterable(mapping.items())),
    (types.FunctionType, _of_function),
    (types.MethodType, lambda method: (method.__func__, method.__self__)),
    (types.BuiltinMethodType, lambda method: (method.__qualname__, method.__self__)),
    (partial, lambda made: (made.func, made.args, made.keywords)),
    (types.GeneratorType, _of_generator),
    (BaseException, lambda error: (*error.args, error.__dict__)),
    ((type(iter([])), type(iter(()))), lambda iterator: iterator.__reduce__()),
)
"""What containers hold, and what code holds on to."""

_TEXTS: Sequence[tuple[type | tuple[type, ...], Callable[[Any], Any]]] = (
    (type, lambda named: named.__qualname__),
    ((types.ModuleType, Enum, bytearray, range, count), str),
    (Struct, lambda struct: struct.format),
    (memoryview, bytes),
    (pa.DataType, str),
    ((np.generic, np.ndarray), lambda array: (str(array.dtype), array.shape, array.tolist())),
    (pa.Array, lambda array: (str(array.type), str(array.to_pylist()))),
    (pa.RecordBatch, lambda batch: (str(batch.schema), str(batch.to_pylist()))),
)
"""What is written out as a whole."""
