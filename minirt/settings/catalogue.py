"""Every key that can be given outside the code, read off the classes and functions that define it."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from minirt.config import Checkpointing, Limits, Options
from minirt.errors import ConfigurationError
from minirt.protocol.restarts import Restart, RestartStrategy
from minirt.protocol.restore_options import output_of
from minirt.units import Duration, positive, seconds, size_bytes

STRATEGIES: Mapping[str, Callable[..., RestartStrategy]] = {
    "none": Restart.none,
    "fixed_delay": Restart.fixed_delay,
    "exponential_delay": Restart.exponential_delay,
    "failure_rate": Restart.failure_rate,
}
SECTIONS: Mapping[str, type] = {
    "checkpointing": Checkpointing,
    "options": Options,
    "limits": Limits,
}

MODE, MODE_OPTIONS = "checkpointing.mode", "checkpointing.mode_options"
STORAGE_OPTIONS = "checkpointing.storage_options"
STRATEGY = "restart.strategy"
QUEUES = "options.queues"
ORIGIN = (
    "restore",
    "allow_non_restored_state",
    "allow_restore_fallback",
    "ignore_in_flight_data_of",
    "give_up_output_of",
)
"""The arguments of `Environment.execute` that say where a job starts from, under the same names."""
FREE_TABLES = (MODE_OPTIONS, STORAGE_OPTIONS, QUEUES)
"""Tables whose keys the mode, fsspec or the job knows."""

ABSENT = "none"
"""The text that stands for None where an option allows it: TOML has no word for None."""

Check = Callable[[Any, str], Any]
"""Takes a value and how to call it; returns what the option holds or raises ConfigurationError."""


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """The values that an option takes. `words` describes them to a reader."""

    words: str
    check: Check
    textual: bool = False
    """Text stays text: a storage may be called 17."""


@dataclasses.dataclass(frozen=True, slots=True)
class OptionKey:
    """One option. `default` is a value, or inspect.Parameter.empty if there is none."""

    key: str
    kind: Kind
    default: Any


def find(key: str, called: str) -> Kind:
    """The kind of the option of that key; `called` is its name where it was given.

    Raises ConfigurationError that names the nearest key if there is none.
    """
    if key in CATALOGUE:
        return CATALOGUE[key].kind
    if any(key.startswith(f"{table}.") for table in FREE_TABLES):
        return _ANYTHING
    if key in {*SECTIONS, *FREE_TABLES, "restart"}:
        raise ConfigurationError(f"{called} is a table of options, it has no value of its own")
    if key.startswith(f"{MODE}."):
        raise ConfigurationError(f"{called}: options of the mode are set as {MODE_OPTIONS}.NAME")
    raise ConfigurationError(f"{called}: there is no such option{nearest(key, CATALOGUE)}")


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean ...?`, or which words there are if none is near and they are few."""
    known = list(known)
    last_parts = {name.rpartition(".")[2]: name for name in known}
    close = difflib.get_close_matches(word, known, 1)
    if "." not in word or not close:
        last = difflib.get_close_matches(word.rpartition(".")[2], last_parts, 1)
        close = [last_parts[part] for part in last] or close
    if close:
        return f"; did you mean {close[0]}?"
    return f"; known are {', '.join(sorted(known))}" if 0 < len(known) <= 10 else ""


def _number(value: Any, called: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigurationError(f"{called} must be a number, got {value!r}")
    return float(value)


def _whole(value: Any, called: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigurationError(f"{called} must be a whole number, 0 or more, got {value!r}")
    return value


def _flag(value: Any, called: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigurationError(f"{called} must be true or false, got {value!r}")
    return value


def _text(value: Any, called: str) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{called} must be text, got {value!r}")
    return value


def _duration(value: Any, called: str) -> Any:
    seconds(value, called)
    return value


def _positive(value: Any, called: str) -> int:
    return positive(called, value)


def _restore(value: Any, called: str) -> str | int:
    """ "latest", "none", an id or a path."""
    text = _text(str(value) if type(value) is int else value, called)
    return int(text) if text.isdecimal() else text


def _output_of(value: Any, called: str) -> str:
    text = _text(value, called)
    try:
        output_of(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"{called}: {error}") from error
    return text


_SIZE = Kind("size", lambda value, called: size_bytes(value, called))
_SECONDS = Kind("duration", lambda value, called: seconds(value, called))
_DURATION = Kind("duration", _duration)
_TEXT = Kind("text", _text, textual=True)
_ANYTHING = Kind("value", lambda value, called: value)


def _one_of(choices: Iterable[str]) -> Kind:
    allowed = tuple(choices)

    def check(value: Any, called: str) -> str:
        if value not in allowed:
            raise ConfigurationError(f"{called} must be one of {', '.join(allowed)}, got {value!r}")
        return str(value)

    return Kind(" or ".join(f'"{choice}"' for choice in allowed), check, textual=True)


def _or_absent(kind: Kind) -> Kind:
    def check(value: Any, called: str) -> Any:
        return None if value == ABSENT else kind.check(value, called)

    return Kind(f'{kind.words} or "{ABSENT}"', check, kind.textual)


def _kind(name: str, hint: Any) -> Kind:
    """The kind of an option, from its annotation and from the unit at the end of its name."""
    alternatives = _alternatives(hint)
    if type(None) in alternatives:
        present = [each for each in alternatives if each is not type(None)]
        return _or_absent(_kind(name, typing.Union[tuple(present)]))  # noqa: UP007
    if set(_alternatives(Duration)) <= set(alternatives):
        return _DURATION
    if typing.get_origin(hint) is Literal:
        return _one_of(typing.get_args(hint))
    if hint is int:
        return _SIZE if "bytes" in name else Kind("whole number", _whole)
    if hint is float:
        return _SECONDS if name.endswith("_s") else Kind("number", _number)
    return Kind("true or false", _flag) if hint is bool else _TEXT


def _alternatives(hint: Any) -> tuple[Any, ...]:
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if is_union else (hint,)


def _of_class(section: str, kind: type) -> Iterable[OptionKey]:
    hints = typing.get_type_hints(kind)
    signature = inspect.signature(kind)
    for field in dataclasses.fields(kind):
        key = f"{section}.{field.name}"
        if key not in FREE_TABLES and field.name not in SECTIONS:
            yield OptionKey(
                key, _kind(field.name, hints[field.name]), signature.parameters[field.name].default
            )


def _of_strategies() -> Iterable[OptionKey]:
    yield OptionKey(STRATEGY, _one_of(STRATEGIES), inspect.Parameter.empty)
    for factory in STRATEGIES.values():
        hints = typing.get_type_hints(factory)
        for name, parameter in inspect.signature(factory).parameters.items():
            yield OptionKey(f"restart.{name}", _kind(name, hints[name]), parameter.default)


def _catalogue() -> dict[str, OptionKey]:
    of_job = [
        OptionKey("name", _TEXT, inspect.Parameter.empty),
        OptionKey("parallelism", Kind("whole number", _positive), inspect.Parameter.empty),
        OptionKey(
            "restore",
            Kind('"latest", "none", id or path', _restore, textual=True),
            inspect.Parameter.empty,
        ),
        OptionKey("allow_non_restored_state", Kind("true or false", _flag), False),
        OptionKey("allow_restore_fallback", Kind("true or false", _flag), False),
        OptionKey(
            "ignore_in_flight_data_of", Kind("whole number", _positive), inspect.Parameter.empty
        ),
        OptionKey(
            "give_up_output_of", Kind("UID@ID", _output_of, textual=True), inspect.Parameter.empty
        ),
    ]
    of_classes = [key for section, kind in SECTIONS.items() for key in _of_class(section, kind)]
    return {option.key: option for option in (*of_job, *of_classes, *_of_strategies())}


CATALOGUE: Mapping[str, OptionKey] = _catalogue()
