"""Which variables of the program a user's functions would change: a worker changes its own copy of them.

It goes by the code of a function, without a call. It finds assignments to globals and to variables of
outer functions, and what changes a list, a dict or a set that such a variable holds: methods, `x[key] =`
and `x.name =`. What reaches an object by another way is not found.
"""

from __future__ import annotations

import dis
import functools
import logging
import sysconfig
import types
from collections import deque
from collections.abc import Iterator, Mapping, Set
from typing import Any

from minirt.graph.job_graph import JobGraph

logger = logging.getLogger("minirt.api")

_CONTAINERS = (list, dict, set, bytearray, deque)
_CHANGING_METHODS = frozenset(
    (
        *("add", "append", "appendleft", "clear", "difference_update", "discard", "extend"),
        *("extendleft", "insert", "intersection_update", "pop", "popitem", "popleft", "remove"),
        *("reverse", "rotate", "setdefault", "sort", "subtract", "update"),
        "symmetric_difference_update",
    )
)
_ASSIGNS = frozenset(("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF", "DELETE_DEREF"))
_ATTRIBUTES = frozenset(("LOAD_ATTR", "LOAD_METHOD"))
_WITHOUT_EFFECT = frozenset(
    (
        *("CACHE", "COPY_FREE_VARS", "EXTENDED_ARG", "KW_NAMES", "MAKE_CELL", "NOP", "NOT_TAKEN"),
        *("PRECALL", "RESUME"),
    )
)
_TAKES_ONLY = ("STORE_", "DELETE_", "POP_", "RETURN_", "RAISE", "RERAISE", "END_")
_INSTALLED = tuple(
    f"{path}/" for path in {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
)
_OURS = ("minirt", "minirt_connectors")
"""Packages whose objects are looked through for functions of the user."""
_DEPTH = 3
"""How deep in an operator to look for functions."""


def warn_of_changed_variables(graph: JobGraph) -> None:
    """Say in a warning which variables functions of the job would change to no effect."""
    for node in graph.operators.values():
        for function in _functions(node.spec, _DEPTH):
            for name in changed_variables(function):
                logger.warning(
                    "%s: %s changes variable %r, of which each worker has a copy: the program does not "
                    "see the change, and a restart loses it. Send results to a sink, and keep in state "
                    "what must last; a cache, which may get lost, belongs behind functools.cache or in "
                    "an attribute of the object whose method is called",
                    *(node.label, function.__qualname__, name),
                )


def changed_variables(function: types.FunctionType) -> list[str]:
    """The names of globals and of variables of outer functions that a call changes, in order."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    outer = {name: _content(cell) for name, cell in cells}
    found = _changed(function.__code__, outer, function.__globals__)
    return sorted(set(found))


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty as yet
        return None


def _functions(value: Any, depth: int) -> Iterator[types.FunctionType]:
    """The functions of the user in what an operator was given: itself, its methods, its parts."""
    match value:
        case types.FunctionType():
            if not value.__code__.co_filename.startswith(_INSTALLED):
                yield value
        case types.MethodType():
            yield from _functions(value.__func__, depth)
        case functools.partial():
            yield from _functions(value.func, depth)
        case list() | tuple() if depth:
            for part in value:
                yield from _functions(part, depth - 1)
        case _ if type(value).__module__.partition(".")[0] in _OURS:
            names = {*getattr(value, "__dict__", ()), *getattr(type(value), "__slots__", ())}
            for name in sorted(names) if depth else ():
                yield from _functions(getattr(value, name, None), depth - 1)
        case _ if not isinstance(value, type):
            for part in vars(type(value)).values():
                if isinstance(part, types.FunctionType):
                    yield from _functions(part, depth)


def _changed(
    code: types.CodeType, outer: Mapping[str, Any], globals: Mapping[str, Any]
) -> Iterator[str]:
    """Follow which variable lies where on the stack, as far as the code goes straight on."""
    stack: list[str | None] = []
    for step in dis.get_instructions(code):
        if step.is_jump_target:
            stack.clear()
        if step.opname in _WITHOUT_EFFECT:
            continue
        if step.opname in _ASSIGNS and (step.opname.endswith("GLOBAL") or step.argval in outer):
            yield step.argval
        owner = _changed_object(step, stack)
        if owner is not None:
            known = outer if owner in outer else globals
            if step.opname == "STORE_ATTR" or isinstance(known.get(owner), _CONTAINERS):
                yield owner
        _follow(step, stack, outer.keys())
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            passed = {name: outer[name] for name in inner.co_freevars if name in outer}
            yield from _changed(inner, passed, globals)


def _changed_object(step: dis.Instruction, stack: list[str | None]) -> str | None:
    """The variable whose object a step changes, or gets a method for that."""
    match step.opname:
        case "STORE_SUBSCR" | "DELETE_SUBSCR":
            return _at(stack, 2)
        case "STORE_ATTR":
            return _at(stack, 1)
        case "LOAD_METHOD" | "LOAD_ATTR" if step.argval in _CHANGING_METHODS:
            return _at(stack, 1)
    return None


def _at(stack: list[str | None], depth: int) -> str | None:
    return stack[-depth] if depth <= len(stack) else None


def _follow(step: dis.Instruction, stack: list[str | None], outer: Set[str]) -> None:
    """What the stack holds after a step: the names of variables, and None for everything else."""
    effect = dis.stack_effect(step.opcode, step.arg, jump=False)
    match step.opname:
        case "LOAD_GLOBAL" if effect == 1:
            stack.append(step.argval)
        case "LOAD_DEREF":
            stack.append(step.argval if step.argval in outer else None)
        case "COPY":
            stack.append(_at(stack, step.arg or 1))
        case "SWAP":
            depth = step.arg or 1
            stack[:0] = [None] * (depth - len(stack))
            stack[-1], stack[-depth] = stack[-depth], stack[-1]
        case name if name.startswith(_TAKES_ONLY):
            _take(stack, -effect)
        case name:
            taken = max(1 - effect, int(name in _ATTRIBUTES))
            _take(stack, taken)
            stack.extend([None] * (effect + taken))


def _take(stack: list[str | None], count: int) -> None:
    del stack[max(len(stack) - max(count, 0), 0) :]
