"""Checks that several operators make as soon as a user writes them down."""

from __future__ import annotations

import difflib
import inspect
from typing import Any

import pyarrow as pa

from minirt.data.values import shown
from minirt.errors import ConfigurationError
from minirt.functions import KeyedProcess, WindowProcess
from minirt.operators.common.functions import check_function


def check_instance(value: Any, wanted: type, label: str) -> None:
    """Raise ConfigurationError unless `value` is an instance of the class that is wanted here."""
    if isinstance(value, wanted):
        return
    hint = ""
    if inspect.isclass(value) and issubclass(value, wanted):
        hint = f": give an instance, {value.__name__}(...), not the class"
    elif isinstance(value, KeyedProcess):
        hint = ": a KeyedProcess needs keys, call key_by first"
    elif isinstance(value, WindowProcess):
        hint = ": a WindowProcess needs windows, call window first"
    elif instead := _MEANT.get((wanted.__name__, type(value))):
        hint = f"; write {instead}"
    raise ConfigurationError(f"{label}: expected {wanted.__name__}, got {shown(value)}{hint}")


_MEANT: dict[tuple[str, type], str] = {
    ("Source", list): "CollectionSource([...])",
    ("Source", tuple): "CollectionSource([...])",
    ("Source", str): 'JsonlSource("path"), or another source',
    ("Sink", str): 'JsonlSink("folder"), or another sink',
    ("Sink", list): "CollectSink(), whose rows are the list",
    ("Window", str): 'Tumbling("10s"), or another kind of window',
    ("Aggregate", str): 'Sum("column"), or another aggregate',
}
"""What to write for a plain value, by the class that is wanted and that of the value."""


def check_flag(value: Any, name: str, label: str) -> bool:
    """The value of an option that is True or False. Raises ConfigurationError for any other."""
    if not isinstance(value, bool):
        raise ConfigurationError(f"{label}: {name} is True or False, not {value!r}")
    return value


def check_methods(label: str, process: Any, *methods: str) -> None:
    """Raise ConfigurationError for a method that cannot be called, or that nobody would call."""
    check_hooks(label, process, "open", "close", *methods)
    for method in methods:
        first = "the timestamp" if method == "on_timer" else "the record"
        check_function(getattr(process, method), label, first, "the context", may_yield=True)


def check_hooks(label: str, given: Any, *methods: str) -> None:
    """Raise ConfigurationError for a method that looks as if minirt would call it, but is none of these.

    Such as one that begins with `on_`, or that has the letters of another: `onTimer`.
    """
    kind = type(given)
    letters = {_letters(method): method for method in methods}
    for name in dir(kind):
        meant = letters.get(_letters(name), name)
        if name in methods or (meant == name and not name.startswith("on_")):
            continue
        if not callable(getattr(kind, name)):
            continue
        near = [meant] if meant != name else difflib.get_close_matches(name, methods, n=1)
        hint = f", did you mean {near[0]}?" if near else ""
        raise ConfigurationError(
            f"{label}: nobody calls {kind.__name__}.{name}{hint}; give a method of your own another name, "
            "which does not begin with 'on_'"
        )


def _letters(name: str) -> str:
    return name.replace("_", "").lower()


def check_column(column: str, schema: pa.Schema | None, label: str) -> None:
    """Raise ConfigurationError for a column that a known schema does not have."""
    if schema is None or column in schema.names:
        return
    near = difflib.get_close_matches(column, schema.names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(schema.names)}"
    raise ConfigurationError(f"{label}: there is no column {column!r}; {hint}")
