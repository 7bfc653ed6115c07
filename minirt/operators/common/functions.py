"""Checks of a user's function before minirt calls it for the first time."""

from __future__ import annotations

import builtins
import dis
import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

from minirt.annotations import signature_of
from minirt.errors import ConfigurationError
from minirt.state.binding import check_states, declarations
from minirt.state.handles import Handle

_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial)
_UNSTABLE = ("hash", "id")
_UNHASHABLE = (float, list, dict, set)


def check_function(function: Any, label: str, *given: str, may_yield: bool = False) -> None:
    """Raise ConfigurationError unless `function` can be called with the arguments `given`.

    `given` says what they are, for the message. A generator is only welcome where its results are
    emitted one by one (`may_yield`); a coroutine never is.
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
    check_function(function, label, "the record")
    unstable = function if function is hash or function is id else _called_unstable(function)
    if unstable is not None:
        raise ConfigurationError(
            f"{label}: {unstable.__name__}() gives other values in other processes and can be no "
            "key; use the value itself"
        )
    for kind in _result_types(function):
        if kind in _UNHASHABLE:
            raise ConfigurationError(
                f"{label}: {_name(function)} returns {kind.__name__}, which cannot be hashed stably; "
                "use ints, strings, bytes, dates or tuples of them as keys"
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


def _called_unstable(function: Any) -> Any:
    """`hash` or `id` if the body of the function refers to that builtin."""
    if not isinstance(function, types.FunctionType):
        return None
    for step in dis.get_instructions(function):
        name = step.argval
        if step.opname == "LOAD_GLOBAL" and name in _UNSTABLE and name not in function.__globals__:
            return getattr(builtins, name)
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
