"""Which functions of users ask for the clock, as far as their classes show it."""

from __future__ import annotations

import types
from collections.abc import Iterator

_ASKS = frozenset({"processing_time", "set_processing_timer"})


def asks_for_clock(process: object) -> bool:
    """Whether a method of its class, or a function within one, names what tells the clock.

    One that gets its context and is defined elsewhere is not looked at: where it matters, its context
    refuses to tell the clock.
    """
    return any(
        not _ASKS.isdisjoint(code.co_names)
        for kind in type(process).__mro__
        for value in vars(kind).values()
        for code in _codes(value)
    )


def _codes(value: object) -> Iterator[types.CodeType]:
    """That of a function, and those of the functions within it."""
    wrapped = getattr(value, "__wrapped__", None)
    if wrapped is not None:
        yield from _codes(wrapped)
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    if isinstance(value, property):
        value = value.fget
    pending = [value.__code__] if isinstance(value, types.FunctionType) else []
    while pending:
        code = pending.pop()
        yield code
        pending += [one for one in code.co_consts if isinstance(one, types.CodeType)]
