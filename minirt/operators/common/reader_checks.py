"""Finds out from a source's code whether its readers have what minirt asks them for, before one is made."""

from __future__ import annotations

import dis
import types
from abc import ABC
from collections.abc import Iterator
from typing import Any, Generic

from minirt.annotations import annotations_of
from minirt.errors import ConfigurationError
from minirt.io.base import Source, SplitReader
from minirt.operators.common.functions import codes_of

_OTHER_WAYS = ("__getattr__", "__getattribute__", "__dict__", "__setattr__", "setattr", "vars")
"""By these a reader may have any attribute."""


_WITHOUT_OFFSET = (object, ABC, Generic, Source, SplitReader)
"""Parents of readers that have none."""


def check_readers(source: Source, label: str) -> None:
    """Raise ConfigurationError if a reader of the source has no `offset`, or no `read`.

    The classes that `open_split` names are looked at. Of one that cannot be told nothing is said.
    """
    opening = [*codes_of(source.open_split)]
    if any(_sets_offset(code) for code, _ in opening):
        return
    named = [
        known.get(name) for code, known in opening for name in (*code.co_names, *code.co_freevars)
    ]
    readers = [kind for kind in named if isinstance(kind, type) and _is_reader(kind)]
    if not readers and isinstance(source, SplitReader):
        readers = [type(source)]
    for kind in readers:
        _check(kind, label)


def _is_reader(kind: type) -> bool:
    return issubclass(kind, SplitReader) or ("read" in dir(kind) and "open_split" not in dir(kind))


def _check(kind: type, label: str) -> None:
    if issubclass(kind, SplitReader) or _of_python(kind):
        if _may_have_offset(kind):
            return
        raise ConfigurationError(
            f"{label}: its reader {kind.__qualname__} never sets `offset`, the position after what `read` "
            "has returned, at which a restart goes on: set self.offset in __init__, and move it on in read"
        )


def _of_python(kind: type) -> bool:
    """Whether the class and its parents are written in Python, and in no library."""
    return all(
        parent is object or isinstance(vars(parent).get("read", _of_python), types.FunctionType)
        for parent in kind.__mro__
    )


def _may_have_offset(kind: type) -> bool:
    for parent in kind.__mro__:
        if parent in _WITHOUT_OFFSET:
            continue
        defined = vars(parent)
        slots = defined.get("__slots__", ())
        declared = {*defined, *((slots,) if isinstance(slots, str) else slots)}
        declared |= {*annotations_of(parent), *defined.get("__dataclass_fields__", ())}
        if "offset" in declared or "__getattr__" in declared:
            return True
        if any(_sets_offset(code) for code in _codes(defined.values())):
            return True
    return False


def _codes(values: Any) -> Iterator[types.CodeType]:
    for value in values:
        found = getattr(value, "__func__", value)
        if isinstance(found, property):
            found = found.fget
        if isinstance(found, types.FunctionType):
            for code, _ in codes_of(found):
                yield code


def _sets_offset(code: types.CodeType) -> bool:
    if any(name in code.co_names for name in _OTHER_WAYS):
        return True
    return any(
        step.opname == "STORE_ATTR" and step.argval == "offset"
        for step in dis.get_instructions(code)
    )
