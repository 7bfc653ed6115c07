"""Finds out from a function's code whether it could keep a record. Most functions of one line could not."""

from __future__ import annotations

import builtins
import dis
import inspect
import types
from collections.abc import Iterator
from typing import Any

from minirt.data.copies import can_change

_MAKES_NEW = frozenset(
    getattr(builtins, name)
    for name in (
        *("abs", "all", "any", "bool", "bytes", "dict", "divmod", "enumerate", "float", "hash"),
        *("int", "isinstance", "len", "list", "max", "min", "ord", "chr", "range", "repr"),
        *("reversed", "round", "set", "frozenset", "sorted", "str", "sum", "tuple", "zip"),
    )
)
"""Builtins that keep none of their arguments, and return nothing that others know."""

_KEEPING = ("STORE_GLOBAL", "STORE_DEREF", "STORE_ATTR", "STORE_NAME", "IMPORT_", "MAKE_FUNCTION")
_CHANGING = ("STORE_SUBSCR", "DELETE_SUBSCR", "DELETE_ATTR", "STORE_SLICE")
_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD"}


def keeps_nothing(function: Any) -> bool:
    """Whether only the caller knows the arguments and the result of a call after it.

    True only for plain functions that reach nothing but their arguments, constants and harmless builtins,
    as long as records are of plain types. False proves nothing.
    """
    if not isinstance(function, types.FunctionType):
        return function in _MAKES_NEW if isinstance(function, type) else False
    if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function):
        return False
    if any(step.opname.startswith(_KEEPING) for step in dis.get_instructions(function)):
        return False
    return all(_is_harmless(value) for value in _reached(function))


def changes_nothing(function: Any) -> bool:
    """Whether a function that keeps nothing leaves its arguments as they are, too.

    Also only as long as records are of plain types, and False proves nothing. A method may change its
    object.
    """
    if not isinstance(function, types.FunctionType):
        return False
    steps = [*dis.get_instructions(function)]
    names = {step.opname for step in steps}
    if any(name.startswith(_CHANGING) for name in names) or any(map(_is_in_place, steps)):
        return False
    calls = any(name.startswith("CALL") for name in names)
    return not (calls and names & _ATTRIBUTES)


def _is_in_place(step: dis.Instruction) -> bool:
    """Whether it is `+=` or the like, which changes a list."""
    return step.opname == "BINARY_OP" and step.argrepr.endswith("=")


def _reached(function: types.FunctionType) -> Iterator[Any]:
    """The objects that the function can use besides its arguments; None for an unknown name."""
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # it is empty
            yield None
    for step in dis.get_instructions(function):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            known = function.__globals__
            yield (
                known[step.argval] if step.argval in known else getattr(builtins, step.argval, None)
            )


def _is_harmless(value: Any) -> bool:
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType | types.ModuleType):
        return value in _MAKES_NEW
    return not can_change(value)
