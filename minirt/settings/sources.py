"""Reads options from a TOML file, the environment or assignments, and checks each value under its name
there."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minirt.errors import ConfigurationError
from minirt.settings.catalogue import (
    CATALOGUE,
    FREE_TABLES,
    MODE,
    MODE_OPTIONS,
    STRATEGY,
    find,
    nearest,
)

PREFIX = "MINIRT_"
NO_OPTIONS = frozenset(("MINIRT_CREDENTIALS", "MINIRT_PEERS", "MINIRT_TOKEN", "MINIRT_TOKEN_FILE"))
"""Variables that begin likewise: of `minirt host`, of `minirt compare --peers`, and the token of jobs."""
FILE_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Given:
    """A value, checked, and what to call it in messages."""

    value: Any
    called: str


Layer = Mapping[str, Given]


def from_file(path: Path) -> Layer:
    """The options of a TOML file. Raises ConfigurationError naming file and key."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            raise ConfigurationError(f"{path} is longer than {FILE_BYTES_MAX} bytes: no settings")
        tables = tomllib.loads(content.decode())
    except OSError as error:
        raise ConfigurationError(f"cannot read the settings {path}: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigurationError(f"{path} is not TOML: {error}") from error
    return {key: _checked(key, value, f"{path}: {key}") for key, value in _flat(tables)}


def from_environment(environ: Mapping[str, str]) -> Layer:
    """The options that variables such as MINIRT_CHECKPOINTING_INTERVAL give; others are ignored."""
    given = {}
    for variable, text in environ.items():
        if variable.startswith(PREFIX) and variable not in NO_OPTIONS:
            key = _key_of(variable)
            given[key] = _read(key, text, variable)
    return given


def from_assignments(assignments: Iterable[str]) -> Layer:
    """The options of texts such as `checkpointing.interval=5s`."""
    given: dict[str, Given] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        key = key.strip()
        if not equals:
            raise ConfigurationError(f"{assignment!r} sets no option: write KEY=VALUE")
        if key in given:
            raise ConfigurationError(f"{key} is given twice")
        given[key] = _read(key, text.strip(), key)
    return given


def from_flags(flags: Mapping[str, object]) -> Layer:
    """The options that a command has flags of their own for; None and False are flags not given."""
    return {
        key: _read(key, "true" if value is True else str(value).strip(), flag_of(key))
        for key, value in flags.items()
        if value is not None and value is not False
    }


def flag_of(key: str) -> str:
    """The flag of an option, for a command that has one."""
    return "--" + key.rpartition(".")[2].replace("_", "-")


def variable_of(key: str) -> str:
    """The environment variable of an option."""
    return PREFIX + key.replace(".", "_").upper()


def merged(layers: Iterable[Layer]) -> Layer:
    """All layers in one, where later ones count.

    A layer that chooses a mode or a restart strategy does not inherit the options of an earlier choice.
    """
    result: dict[str, Given] = {}
    for layer in layers:
        for choice, table in ((MODE, MODE_OPTIONS), (STRATEGY, "restart")):
            if choice in layer:
                result = {k: v for k, v in result.items() if not k.startswith(f"{table}.")}
        result.update(layer)
    return result


def _flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and values. Tables whose keys the mode, fsspec or the job knows stay whole."""
    for name, value in table.items():
        if isinstance(value, Mapping) and above not in FREE_TABLES:
            yield from _flat(value, f"{above}.{name}" if above else name)
        else:
            yield (f"{above}.{name}" if above else name), value


def _key_of(variable: str) -> str:
    known = {variable_of(key): key for key in CATALOGUE}
    if variable in known:
        return known[variable]
    for table in FREE_TABLES:
        above = variable_of(table) + "_"
        if variable.startswith(above) and variable != above:
            return f"{table}.{variable.removeprefix(above).lower()}"
    raise ConfigurationError(
        f"the environment variable {variable} is no option{nearest(variable, known)}"
    )


def _read(key: str, text: str, called: str) -> Given:
    """An option given as text: numbers and flags as TOML writes them, all else as it stands."""
    if find(key, called).textual:
        return _checked(key, text, called)
    try:
        value = tomllib.loads(f"value = {text}")["value"] if "\n" not in text else text
    except tomllib.TOMLDecodeError:
        value = text
    return _checked(key, value, called)


def _checked(key: str, value: Any, called: str) -> Given:
    return Given(find(key, called).check(value, called), called)
