"""The settings that are compared: every combination of modes, parallelisms and further choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

from minirt.errors import ConfigurationError

SETTINGS_MAX = 48
"""More settings than this are no comparison that anybody reads, and take hours."""

RUNS_MAX = 1000

MINIRT = "minirt"

Belongs = Literal["option", "parameter"]


@dataclass(frozen=True, slots=True)
class Choice:
    """One value of a factor. It is an option of the job, or a parameter of the workload."""

    key: str
    value: str
    belongs: Belongs = "option"

    @property
    def shown(self) -> str:
        return f"{self.key.rpartition('.')[2]} {self.value}"


@dataclass(frozen=True, slots=True)
class Factor:
    """What differs between settings, and its values as they were given."""

    key: str
    values: tuple[str, ...]
    belongs: Belongs = "option"


@dataclass(frozen=True, slots=True)
class Setting:
    """One combination. A parallelism of None is that of the job; `system` is minirt, or a peer."""

    mode: str
    parallelism: int | None = None
    choices: tuple[Choice, ...] = ()
    system: str = MINIRT

    def of(self, belongs: Belongs) -> dict[str, str]:
        """The options of the job, or the parameters of the workload."""
        return {one.key: one.value for one in self.choices if one.belongs == belongs}


@dataclass(frozen=True, slots=True)
class Turn:
    """One run to come: which setting, and for the how manieth time."""

    setting: int
    repeat: int


def split_factor(text: str) -> tuple[str, tuple[str, ...]]:
    """Key and values of a text such as "debloat=off,1s". Raises ConfigurationError."""
    key, equals, values = text.partition("=")
    found = tuple(value.strip() for value in values.split(","))
    if not equals or not key.strip() or not all(found):
        raise ConfigurationError(f"--set {text!r} sets nothing: write OPTION=VALUE,VALUE...")
    _check_different(f"--set {key.strip()}", found)
    return key.strip(), found


def split_numbers(text: str, flag: str) -> tuple[int, ...]:
    """The whole numbers above 0 of a text such as "2,4". Raises ConfigurationError."""
    values = tuple(value.strip() for value in text.split(","))
    if not all(value.isdecimal() and int(value) for value in values):
        raise ConfigurationError(f"{flag} takes whole numbers above 0, such as 2,4, got {text!r}")
    numbers = tuple(map(int, values))
    _check_different(flag, numbers)
    return numbers


def cross(
    modes: Sequence[str], parallelism: Sequence[int], factors: Sequence[Factor]
) -> tuple[Setting, ...]:
    """All combinations; the first factor changes slowest, the mode fastest. Raises ConfigurationError."""
    _check_different("--modes", modes)
    if not modes:
        raise ConfigurationError("--modes names no mode")
    keys = [factor.key for factor in factors]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise ConfigurationError(f"{twice} is set twice; give all its values at once, as a,b")
    ways = [
        [Choice(factor.key, value, factor.belongs) for value in factor.values] for factor in factors
    ]
    counts: Sequence[int | None] = parallelism or (None,)
    settings = tuple(
        Setting(mode, count, picked)
        for picked, count, mode in product(product(*ways), counts, modes)
    )
    if len(settings) > SETTINGS_MAX:
        raise ConfigurationError(
            f"that makes {len(settings)} settings, at most {SETTINGS_MAX} are compared at a time"
        )
    return settings


def turns(settings: int, repeat: int) -> tuple[Turn, ...]:
    """Every setting once, then all again in the opposite order, and so on.

    What slows the machine down for a while, or more and more, then hits all settings alike.
    """
    if settings * repeat > RUNS_MAX:
        raise ConfigurationError(
            f"that makes {settings * repeat} runs, at most {RUNS_MAX} are made at a time"
        )
    order = range(settings)
    return tuple(
        Turn(setting, number)
        for number in range(repeat)
        for setting in (order if number % 2 == 0 else reversed(order))
    )


def labels(settings: Sequence[Setting]) -> tuple[str, ...]:
    """A name for each setting: its mode, and whatever else is not the same in all of them."""
    counts = {setting.parallelism for setting in settings}
    values: dict[str, set[str]] = {}
    for setting in settings:
        for one in setting.choices:
            values.setdefault(one.key, set()).add(one.value)
    varying = {key for key, found in values.items() if len(found) > 1}
    return tuple(
        ", ".join(
            [
                *([] if setting.system == MINIRT else [setting.system]),
                setting.mode.replace("_", " "),
                *(one.shown for one in setting.choices if one.key in varying),
                *([f"parallelism {setting.parallelism}"] if len(counts) > 1 else []),
            ]
        )
        for setting in settings
    )


def _check_different(flag: str, values: Sequence[object]) -> None:
    if len(set(values)) < len(values):
        twice = next(value for value in values if values.count(value) > 1)
        raise ConfigurationError(f"{flag} names {twice} twice")
