"""Pickles what travels to other processes, with the functions and classes of the program that it needs."""

from __future__ import annotations

import functools
import io
import sys
import types
from collections import ChainMap
from collections.abc import Callable
from typing import Any

import cloudpickle
from cloudpickle.cloudpickle import (
    _class_setstate,
    _make_skeleton_class,
    _make_skeleton_enum,
    list_registry_pickle_by_value,
)

from minirt.script_classes import came_with_job, fill_class, name_of

CachedFunction = type(functools.cache(len))


def dumps(value: Any) -> bytes:
    """The value as bytes that `pickle.loads` reads in any process that has the packages of this one.

    Raises what the objects that it holds raise.
    """
    with io.BytesIO() as file:
        Pickler(file).dump(value)
        return file.getvalue()


def _cached_function(cached: Any) -> str | tuple[Callable[..., Any], tuple[Any, ...]]:
    """A function behind `functools.cache`, with a cache of its own where it arrives."""
    if _is_found_by_name(cached):
        return str(cached.__qualname__)
    return _cache, (cached.__wrapped__, cached.cache_parameters())


def _is_found_by_name(cached: Any) -> bool:
    """Whether another process imports it, as cloudpickle decides for functions."""
    name = cached.__module__
    if name == "__main__" or name not in sys.modules:
        return False
    packages = name.split(".")
    parents = {".".join(packages[: n + 1]) for n in range(len(packages))}
    if parents & list_registry_pickle_by_value():
        return False
    found: Any = sys.modules[name]
    for part in cached.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is cached


def _cache(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _cached_property(
    cached: functools.cached_property[Any],
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Python 3.11 gives each one a lock, which cannot travel."""
    return _property, (cached.func, cached.attrname)


def _property(function: Callable[[Any], Any], name: str | None) -> functools.cached_property[Any]:
    made = functools.cached_property(function)
    made.attrname = name  # No class that is made says it again.
    return made


def _code(code: types.CodeType) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Code that tracebacks and debuggers find the lines of: cloudpickle leaves out its file."""
    make, parts, *_ = cloudpickle.Pickler.dispatch_table[types.CodeType](code)
    return _of_file, (code.co_filename, make, parts)


def _of_file(name: str, make: Callable[..., types.CodeType], parts: tuple[Any, ...]) -> Any:
    return make(*parts).replace(co_filename=name)


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Takes by value what cloudpickle takes by value, and what `functools` caches of it.

    cloudpickle names a cached function even where nobody else can import it.
    """

    dispatch_table = ChainMap(
        {
            types.CodeType: _code,
            CachedFunction: _cached_function,
            functools.cached_property: _cached_property,
        },
        cloudpickle.Pickler.dispatch_table,
    )

    def reducer_override(self, value: Any) -> Any:
        """Have classes that travel by value tell their qualified name, by which readers find them."""
        reduced = super().reducer_override(value)
        if not (isinstance(value, type) and isinstance(reduced, tuple) and len(reduced) == 6):
            return reduced
        make, arguments, state, _, _, fill = reduced
        if make not in _MAKE_CLASSES or fill is not _class_setstate:
            return reduced
        named = (value.__module__, name_of(value), arguments[-2], make, arguments)
        return came_with_job, named, state, None, None, fill_class


_MAKE_CLASSES = (_make_skeleton_class, _make_skeleton_enum)
