"""Settings as messages name them: arguments for a program, flags for the command line.

`restore="latest"` is `--restore latest` for a user of `minirt run`. Each message asks here for the name
of its setting when it is made; no finished message is rewritten. So paths, records and other data of the
user that stand in a message stay as they are, whatever they look like.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

FLAGS: Mapping[str, str] = {
    "restore": "--restore",
    "allow_non_restored_state": "--allow-non-restored-state",
    "allow_restore_fallback": "--allow-restore-fallback",
    "ignore_in_flight_data_of": "--ignore-in-flight-data-of",
    "give_up_output_of": "--give-up-output-of",
    "checkpointing": "--storage",
}
"""The flag of `minirt run` for each argument of `Environment.execute` that has one."""

_CLASSES: Mapping[str, str] = {
    "checkpointing": "Checkpointing",
    "options": "Options",
    "limits": "Limits",
}


class _Reader:
    """The user that messages of this process are for."""

    types_flags = False


def use_flags() -> None:
    """Word the messages of this process for the command line from now on."""
    _Reader.types_flags = True


@contextmanager
def in_flags() -> Iterator[None]:
    """Word the messages of this process for the command line within the block."""
    before, _Reader.types_flags = _Reader.types_flags, True
    try:
        yield
    finally:
        _Reader.types_flags = before


def uses_flags() -> bool:
    """Return True if the messages of this process are worded for the command line."""
    return _Reader.types_flags


def named(key: str) -> str:
    """Return the name of a setting.

    `key` is the dotted key of an option, such as "options.trace", or an argument of `Environment.execute`.
    """
    if _Reader.types_flags:
        return FLAGS.get(key, key)
    return key.rpartition(".")[2]


def given(key: str, value: object) -> str:
    """Return how a setting is given a value: `trace=True`, or `--set options.trace=true`."""
    if not _Reader.types_flags:
        return f"{named(key)}={_literal(value)}"
    flag = FLAGS.get(key)
    if flag is None:
        return f"--set {key}={_argument(value)}"
    if value is None:
        return f"no {flag}"
    return flag if value is True else f"{flag} {_argument(value)}"


def given_in_call(key: str, value: object) -> str:
    """Return the same with the class that takes the option: `Options(trace=True)`."""
    if _Reader.types_flags:
        return given(key, value)
    return f"{_CLASSES[key.partition('.')[0]]}({given(key, value)})"


def _literal(value: object) -> str:
    """Return the value as Python source; texts in double quotes, as messages have them."""
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _argument(value: object) -> str:
    """Return the value as a word of a shell's command line."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return shlex.quote(str(value))
