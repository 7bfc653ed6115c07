"""Checks of a user's function before minirt calls it for the first time."""

from __future__ import annotations

import builtins
import contextlib
import dis
import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from minirt.annotations import signature_of
from minirt.errors import ConfigurationError
from minirt.state.binding import check_states, declarations
from minirt.state.handles import Handle

_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial)
_UNSTABLE = (hash, id)
_UNHASHABLE = (float, list, dict, set)


def check_function(
    function: Any,
    label: str,
    *given: str,
    may_yield: bool = False,
    returns: str | None = None,
) -> None:
    """Raise ConfigurationError unless `function` can be called with the arguments `given`.

    `given` says what they are, for the message. A generator is only welcome where its results are
    emitted one by one (`may_yield`); a coroutine never is. `returns` says what the function has to return:
    one whose code returns nothing is refused.
    """
    if not callable(function):
        raise ConfigurationError(
            f"{label}: expected a function of {_list(given)}, got {function!r}"
        )
    code = function if isinstance(function, _FUNCTIONS) else type(function).__call__
    if inspect.iscoroutinefunction(code) or inspect.isasyncgenfunction(code):
        raise ConfigurationError(
            f"{label}: {_name(function)} is a coroutine function, and operators call plain functions; "
            "remove `async`"
        )
    if inspect.isgeneratorfunction(code) and not may_yield:
        raise ConfigurationError(
            f"{label}: {_name(function)} is a generator, but its result is taken as one value; "
            "return it, or use flat_map to emit several records"
        )
    check_arity(function, label, *given)
    check_stateless(function, label, "an object that minirt calls")
    if returns is not None and _returns_nothing(function):
        raise ConfigurationError(
            f"{label}: {_name(function)} returns nothing, whatever it is given; return {returns}"
        )


def _returns_nothing(function: Any) -> bool:
    """Tells whether a function that was written with `def` returns None at each of its ends."""
    while isinstance(function, functools.partial | types.MethodType):
        function = function.func if isinstance(function, functools.partial) else function.__func__
    if not isinstance(function, types.FunctionType | type | types.BuiltinFunctionType):
        function = getattr(type(function), "__call__", None)  # noqa: B004 - looked into, not called
    if not isinstance(function, types.FunctionType) or function.__name__ == "<lambda>":
        return False
    if function.__code__.co_flags & _GIVES_OTHERWISE:
        return False
    ends = 0
    before: dis.Instruction | None = None
    for step in dis.get_instructions(function):
        if step.opname == "RETURN_CONST":
            ends += 1
            if step.argval is not None:
                return False
        elif step.opname == "RETURN_VALUE":
            ends += 1
            of_none = before is not None and before.opname == "LOAD_CONST"
            if step.is_jump_target or not of_none or before.argval is not None:  # type: ignore[union-attr]
                return False
        if step.opname not in ("CACHE", "NOP", "EXTENDED_ARG"):
            before = step
    return ends > 0


_GIVES_OTHERWISE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def check_declared(label: str, process: object) -> None:
    """Raise ConfigurationError if a process does not declare its states as it should."""
    try:
        check_states(process)
    except ConfigurationError as error:
        raise ConfigurationError(f"{label}: {error}") from error


def check_stateless(given: Any, label: str, kind: str) -> None:
    """Raise ConfigurationError if an object has state handles that nobody would bind to a key."""
    names = sorted(declarations(type(given)))
    attributes = getattr(given, "__dict__", {})
    names += [name for name, value in attributes.items() if isinstance(value, Handle)]
    if names:
        raise ConfigurationError(
            f"{label}: {type(given).__name__} declares state {names[0]!r}, but {kind} has none: make "
            "it a KeyedProcess, behind key_by"
        )


def check_key_function(function: Any, label: str) -> None:
    """Raise ConfigurationError if the keys of `function` would differ from process to process."""
    check_function(function, label, "the record", returns="the key")
    check_stable(function, label, "can be no key; use the value itself")
    for kind in _result_types(function):
        if kind in _UNHASHABLE:
            raise ConfigurationError(
                f"{label}: {_name(function)} returns {kind.__name__}, which cannot be hashed stably; "
                "use ints, strings, bytes, dates or tuples of them as keys"
            )


def check_stable(function: Any, label: str, consequence: str) -> None:
    """Raise ConfigurationError if a function asks for what differs from process to process."""
    for code, known in codes_of(function):
        unstable = _called_unstable(code, known)
        if unstable is not None:
            raise ConfigurationError(
                f"{label}: {unstable}() gives other values in other processes and {consequence}"
            )
    for builtin in _UNSTABLE:
        if any(given is builtin for given in _given_to(function)):
            raise ConfigurationError(
                f"{label}: {builtin.__name__}() gives other values in other processes and {consequence}"
            )


def check_arity(function: Callable[..., Any], label: str, *given: str) -> None:
    """Raise ConfigurationError if `function` cannot be called with the arguments `given`."""
    try:
        signature = signature_of(function)
    except (TypeError, ValueError):  # many builtins do not tell
        return
    try:
        signature.bind(*given)
    except TypeError as error:
        raise ConfigurationError(
            f"{label}: {_name(function)}{signature} is called with {_list(given)}: {error}"
        ) from None


def codes_of(function: Any) -> Iterator[tuple[types.CodeType, Mapping[str, Any]]]:
    """The code that a call of `function` runs, each with the variables that it knows from outside.

    That of a method, of an object that is called, of what `functools` has wrapped, and of functions of the
    same module that it calls. Functions of other modules are not looked into.
    """
    seen: set[int] = set()
    pending = [function]
    while pending:
        found = pending.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        match found:
            case functools.partial():
                pending += [found.func, *filter(_is_function, found.args)]
                pending += filter(_is_function, found.keywords.values())
            case types.MethodType():
                pending.append(found.__func__)
            case types.FunctionType():
                known = {**found.__globals__, **_captured(found)}
                for code in nested(found.__code__):
                    yield code, known
                    called = (known.get(name) for name in (*code.co_names, *code.co_freevars))
                    pending += [one for one in called if _is_of_module(one, found.__module__)]
                pending += filter(_is_function, _captured(found).values())
            case _ if hasattr(found, "__wrapped__"):
                pending.append(found.__wrapped__)
            case _ if not isinstance(found, type) and not isinstance(
                found, types.BuiltinFunctionType
            ):
                pending.append(getattr(type(found), "__call__", None))  # noqa: B004 - looked into


def nested(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code of a function and of those within it: lambdas, comprehensions."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from nested(inner)


def _captured(function: types.FunctionType) -> dict[str, Any]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    found: dict[str, Any] = {}
    for name, cell in cells:
        with contextlib.suppress(ValueError):  # It is empty as yet.
            found[name] = cell.cell_contents
    return found


def _is_function(value: Any) -> bool:
    return isinstance(value, _FUNCTIONS)


def _is_of_module(value: Any, module: str) -> bool:
    return isinstance(value, types.FunctionType) and value.__module__ == module


def _given_to(function: Any) -> Iterator[Any]:
    """The function, and what partial ones within were given."""
    yield function
    if isinstance(function, functools.partial):
        for part in (function.func, *function.args, *function.keywords.values()):
            yield from _given_to(part)


def _called_unstable(code: types.CodeType, known: Mapping[str, Any]) -> str | None:
    """The name of `hash` or `id` if the code refers to that builtin, or to `__hash__` of something."""
    for step in dis.get_instructions(code):
        name = step.argval
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF"):
            value = known[name] if name in known else getattr(builtins, name, None)
            for builtin in _UNSTABLE:
                if value is builtin:
                    return str(builtin.__name__)
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD") and name == "__hash__":
            return "__hash__"
    return None


def _result_types(function: Any) -> Iterator[Any]:
    """The types that a function is declared to return, those within tuples and unions included."""
    if inspect.isclass(function):
        yield function
        return
    try:
        declared = typing.get_type_hints(function).get("return")
    except Exception:  # names that only a type checker knows
        return
    pending = [declared]
    while pending:
        kind = pending.pop()
        origin = typing.get_origin(kind)
        if origin in (tuple, types.UnionType, typing.Union):
            pending.extend(typing.get_args(kind))
        yield origin or kind


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def _list(given: tuple[str, ...]) -> str:
    return " and ".join(given) or "no arguments"
