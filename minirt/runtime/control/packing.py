"""Packs messages for other processes.

Classes and functions of the user's program travel by value, as the job itself does: in the process that
reads the message, the program's own module has another name, or is not there at all.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from functools import lru_cache
from operator import attrgetter
from types import FunctionType
from typing import Any

from minirt import by_value

_IN_ALL_PROCESSES = frozenset({"minirt", "builtins"})
"""Packages that each process of a job has under the same names."""

_NAMED = (type, FunctionType, by_value.CachedFunction)


class _NotByNameError(Exception):
    """What is packed holds something that other processes may not find by its name."""


class _ByName(pickle.Pickler):
    """Names classes and functions, and refuses those that another process may not have.

    A frozen dataclass goes as a call of its class: what dataclasses do by themselves takes twice as long.
    """

    def reducer_override(self, held: Any) -> Any:
        if isinstance(held, _NAMED):
            package, _, _ = held.__module__.partition(".")
            if package not in _IN_ALL_PROCESSES:
                raise _NotByNameError
            return NotImplemented
        kind: Any = type(held)
        values = _values_of(kind)
        return NotImplemented if values is None else (kind, values(held))


@lru_cache(maxsize=1024)
def _values_of(kind: Any) -> Callable[[object], tuple[object, ...]] | None:
    """What gives the arguments that make an equal object; None if it takes more than its fields."""
    own = vars(kind)
    if "__dataclass_fields__" not in own or "__slots__" not in own or "__reduce__" in own:
        return None
    if hasattr(kind, "__post_init__"):
        return None  # What it has made of the arguments are none.
    fields = own["__dataclass_fields__"].values()
    if not own["__dataclass_params__"].frozen or any(f.kw_only or not f.init for f in fields):
        return None
    names = [field.name for field in fields]
    if len(names) > 1:
        return attrgetter(*names)
    return lambda held: tuple(getattr(held, name) for name in names)


def packed(message: object) -> bytes:
    """The message as bytes that `pickle.loads` reads in any process of the job. Raises what its objects do.

    Messages pass on the way of each checkpoint, and nearly all are made of minirt's own classes: to look up
    for each object how it travels takes `by_value` twice as long as pickle takes for all.
    """
    target = io.BytesIO()
    try:
        _ByName(target).dump(message)
    except Exception:  # `by_value` knows more, and its error says what is wrong.
        return by_value.dumps(message)
    return target.getvalue()
