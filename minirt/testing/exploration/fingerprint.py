"""A digest of everything that the future of an object depends on.

Two states with one fingerprint are taken for the same state, so what is left out would make an
exploration blind. Therefore the walk goes over all fields of all objects that can be reached, also
through closures, bound methods and suspended generators, and a new field is covered by itself. What it
does leave out is named here, with the reason. An object that it cannot look into is an error.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass
from enum import Enum
from functools import partial
from hashlib import blake2b
from itertools import count
from struct import Struct
from typing import Any

import numpy as np
import pyarrow as pa

from minirt.config import Limits, Options
from minirt.data.keys import KeyRouter
from minirt.graph.execution import ExecutionGraph, Link, Vertex
from minirt.runtime.assembly import JobPackage
from minirt.runtime.frames import Frame
from minirt.testing.sink import TransactionalSink
from minirt.testing.storage import SimulatedObjects

CONSTANT: tuple[type, ...] = (ExecutionGraph, Vertex, Link, Limits, Options, JobPackage)
"""The job as it was written: the same in all states."""

ELSEWHERE: tuple[type, ...] = (SimulatedObjects, TransactionalSink)
"""Views of what is durable, which is a part of the state of its own."""

CACHES: tuple[type, ...] = (KeyRouter,)
"""Answers that are remembered, and would be the same if they were asked for again."""

FIELDS: Mapping[tuple[str, str], str] = {
    ("Subtask", "_alignment_began"): "a figure that is only reported",
    ("SnapshotUpload", "processed_bytes"): "the same figure; acknowledged as 0",
    ("SubtaskPart", "_job"): "what all states have in common",
    ("CoordinatorPart", "_job"): "what all states have in common",
}
"""Single fields, by class, and why they are left out."""

_LEFT_OUT = (*CONSTANT, *ELSEWHERE, *CACHES)
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_FIELDLESS = (list, deque, dict, set, bytearray)
_BY_NAME = (type, types.ModuleType, types.GetSetDescriptorType, property)


def fingerprint(root: object) -> bytes:
    """16 bytes, the same for states that nothing can tell apart. Raises TypeError for the unknown."""
    walk = _Walk()
    walk.visit(root)
    return blake2b(repr(walk.tokens).encode("utf-8", "surrogatepass"), digest_size=16).digest()


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
        elif isinstance(value, tuple):
            self._sequence("(", value)
        elif issubclass(kind, _LEFT_OUT):
            self.tokens.append(kind.__name__)
        elif not self._by_value(value, kind):
            number = self._seen.setdefault(id(value), len(self._seen))
            if number < len(self._kept):
                self.tokens.append(("@", number))
                return
            self._kept.append(value)
            self._look_into(value, kind)

    def _by_value(self, value: Any, kind: type) -> bool:
        """Whether it was something that cannot change, and is written out."""
        if isinstance(value, _BY_NAME):
            self.tokens.append(getattr(value, "__qualname__", None) or str(value))
        elif isinstance(value, Enum):
            self.tokens.append(str(value))
        elif kind is frozenset:
            self._unordered(value)
        elif kind in (range, Struct, count):
            self.tokens.append(value.format if kind is Struct else repr(value))
        elif kind is Frame or (is_dataclass(kind) and kind.__dataclass_params__.frozen):  # type: ignore[attr-defined]
            self._fields(value, kind)
        elif isinstance(value, np.generic | np.ndarray):
            self.tokens.append((str(value.dtype), value.shape, value.tolist()))
        elif isinstance(value, pa.RecordBatch | pa.Array):
            self.tokens.append(str(value.type if isinstance(value, pa.Array) else value.schema))
            self.visit(value.to_pylist())
        else:
            return False
        return True

    def _look_into(self, value: Any, kind: type) -> None:
        if isinstance(value, list | deque):
            self._sequence("[", value)
        elif isinstance(value, dict):
            self._sequence("{", (part for item in value.items() for part in item))
        elif isinstance(value, set):
            self._unordered(value)
        elif kind is bytearray:
            self.tokens.append(bytes(value))
        elif look := _CODE.get(kind):
            self._sequence(kind.__name__, look(value))
        elif not hasattr(value, "__dict__") and not _slots(kind):
            raise TypeError(
                f"a {kind.__module__}.{kind.__qualname__} cannot be looked into: {value!r}"
            )
        if kind not in _FIELDLESS and kind not in _CODE:
            self._fields(value, kind)

    def _fields(self, value: Any, kind: type) -> None:
        self.tokens.append(kind.__qualname__)
        for name, content in vars(value).items() if hasattr(value, "__dict__") else ():
            self._field(kind, name, content)
        for name in _slots(kind):
            if hasattr(value, name):
                self._field(kind, name, getattr(value, name))
        self.tokens.append(";")

    def _field(self, kind: type, name: str, content: Any) -> None:
        if (kind.__name__, name) not in FIELDS:
            self.tokens.append(name)
            self.visit(content)

    def _sequence(self, mark: str, parts: Iterable[Any]) -> None:
        self.tokens.append(mark)
        for part in parts:
            self.visit(part)
        self.tokens.append(")")

    def _unordered(self, parts: Iterable[Any]) -> None:
        self.tokens.append(sorted(fingerprint(part) for part in parts))


def _slots(kind: type) -> list[str]:
    declared = (vars(base).get("__slots__", ()) for base in kind.__mro__)
    names = [(slots,) if isinstance(slots, str) else slots for slots in declared]
    return [name for some in names for name in some if name not in ("__dict__", "__weakref__")]


def _of_function(function: types.FunctionType) -> Iterable[Any]:
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    return (function.__qualname__, function.__defaults__, function.__kwdefaults__, *cells)


def _of_generator(generator: types.GeneratorType[Any, Any, Any]) -> Iterable[Any]:
    """Where it has got to, and what it remembers."""
    frame = generator.gi_frame
    remembered = () if frame is None else (frame.f_lasti, *frame.f_locals.items())
    return (generator.__qualname__, generator.gi_yieldfrom, *remembered)


_CODE: dict[type, Callable[[Any], Iterable[Any]]] = {
    types.FunctionType: _of_function,
    types.MethodType: lambda method: (method.__func__, method.__self__),
    types.BuiltinMethodType: lambda method: (method.__qualname__, method.__self__),
    partial: lambda made: (made.func, made.args, made.keywords),
    types.GeneratorType: _of_generator,
    type(iter([])): lambda iterator: iterator.__reduce__(),
    type(iter(())): lambda iterator: iterator.__reduce__(),
}
"""What code holds on to."""
