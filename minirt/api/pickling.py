"""Whether an operator can be sent to a worker, and if not, which captured object is to blame."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Iterator, Mapping
from typing import Any

from minirt import by_value
from minirt.errors import ConfigurationError
from minirt.graph.job_graph import JobGraph

_DEPTH = 8
"""How deep to search captured objects; the message names the outer object if the culprit lies deeper."""


def check_picklable(graph: JobGraph) -> None:
    """Raise ConfigurationError naming the operator and the object that cannot be pickled."""
    for node in graph.operators.values():
        _check(node.spec, node.label)
    for edge in graph.edges:
        _check(edge.partitioning, graph.operators[edge.target].label)


def _check(value: Any, label: str) -> None:
    problem = _problem(value)
    if problem is None:
        return
    path, culprit = _culprit(value)
    where = " in ".join(reversed(path[1:] or path)) or "it"
    remedy = "create it in open() of a process function instead, or do without it"
    if isinstance(problem, NameError):  # From Python 3.14 on, pickling evaluates annotations.
        remedy = "if an annotation has that name, begin its file with `from __future__ import annotations`"
    raise ConfigurationError(
        f"{label} cannot be sent to a worker: {where} is a {_type_name(culprit)}, which cannot be "
        f"pickled ({problem}); {remedy}"
    ) from problem


def _problem(value: Any) -> Exception | None:
    try:
        by_value.dumps(value)
    except Exception as error:  # objects that refuse raise whatever they like
        return error
    return None


def _culprit(value: Any) -> tuple[list[str], Any]:
    """The innermost object that cannot be pickled, and how it is reached from `value`."""
    path: list[str] = []
    seen = {id(value)}
    while len(path) < _DEPTH:
        guilty = (
            (step, part)
            for step, part in _parts(value)
            if id(part) not in seen and _problem(part) is not None
        )
        found = next(guilty, None)
        if found is None:
            break
        step, value = found
        path.append(step)
        seen.add(id(value))
    return path, value


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """The objects that pickling an object takes along, each with its name."""
    if isinstance(value, types.FunctionType):
        captured = inspect.getclosurevars(value)
        for name, part in {**captured.nonlocals, **captured.globals}.items():
            yield f"variable {name!r} captured by {value.__qualname__}", part
        for part in value.__defaults__ or ():
            yield f"a default argument of {value.__qualname__}", part
    elif isinstance(value, by_value.CachedFunction):
        yield from _parts(value.__wrapped__)
    elif isinstance(value, types.MethodType):
        yield f"the object of method {value.__name__}", value.__self__
    elif isinstance(value, functools.partial):
        for part in (value.func, *value.args, *value.keywords.values()):
            yield "an argument of functools.partial", part
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield f"the value of {key!r}", part
    elif isinstance(value, list | tuple | set | frozenset):
        for part in value:
            yield f"an item of a {type(value).__name__}", part
    else:
        yield from _attributes(value)


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    slots = getattr(type(value), "__slots__", ())
    for name in (*getattr(value, "__dict__", ()), *((slots,) if isinstance(slots, str) else slots)):
        yield f"{name} of {_type_name(value)}", getattr(value, name, None)


def _type_name(value: Any) -> str:
    return type(value).__qualname__
