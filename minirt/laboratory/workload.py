"""What a workload is: a job that comes with minirt, with parameters, and a check of what comes out of it.

A workload is one file in `minirt/laboratory/workloads` and one line in its registry.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from minirt.api.environment import Environment
from minirt.errors import ConfigurationError
from minirt.laboratory.measured import Series, Verification
from minirt.settings.catalogue import nearest

_LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run has its files. Its job, wherever its parts run, is told through it that time is up."""

    folder: str

    @property
    def notes(self) -> Path:
        return Path(self.folder, "notes")

    @property
    def outputs(self) -> Path:
        return Path(self.folder, "outputs")

    @property
    def finish(self) -> Path:
        """Once this file exists, sources end, and functions are slow no longer."""
        return Path(self.folder, "finish")


class TimeIsUp:
    """Looks now and then whether a run is to finish. One for each operator."""

    def __init__(self, place: Place) -> None:
        self._file = place.finish
        self._due_at = 0.0
        self._so = False

    def __call__(self) -> bool:
        now = time.monotonic()
        if not self._so and now >= self._due_at:
            self._due_at = now + _LOOK_S
            self._so = self._file.exists()
        return self._so


@dataclass(frozen=True, slots=True)
class Defaults:
    """What is compared if the call does not say."""

    modes: tuple[str, ...] = ("aligned", "unaligned")
    factors: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Keys, and the values of each, as `--set` takes them."""
    seconds: float = 15.0
    warm_up_s: float = 3.0
    repeat: int = 3
    parallelism: int = 2
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the job that the workload needs."""


class Workload(ABC):
    """Subclasses are frozen dataclasses: their fields are the parameters, with defaults.

    Their docstring says what is in the job, and what it shows. A workload ends by itself once the time
    of its run is up, see `Place.finish`, so that all its output is committed and can be verified.
    """

    latency_from: ClassVar[str | None] = None
    """Where a record that comes to a sink says when it was made."""
    defaults: ClassVar[Defaults] = Defaults()

    @abstractmethod
    def environment(self, parallelism: int, place: Place) -> Environment:
        """The job."""

    @abstractmethod
    def verify(self, place: Place) -> Verification:
        """Whether what was committed is what the sources gave out. The job has finished by itself."""

    def series(self, place: Place, began: float) -> tuple[Series, ...]:
        """Further figures over time, by the seconds since `began` of the monotonic clock."""
        return ()


def with_parameters(kind: type[Workload], given: Mapping[str, str]) -> Workload:
    """The workload with these values. Raises ConfigurationError for what it does not know."""
    hints = get_type_hints(kind)
    known = {one.name: hints[one.name] for one in fields(kind)}  # type: ignore[arg-type]
    values = {}
    for name, text in given.items():
        if name not in known:
            raise ConfigurationError(
                f"--set {name}: there is no such parameter{nearest(name, known)}"
            )
        values[name] = _value(name, known[name], text)
    return kind(**values)


def parameter_names(kind: type[Workload]) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind))  # type: ignore[arg-type]


def _value(name: str, kind: Any, text: str) -> Any:
    if get_origin(kind) is Literal:
        if text not in get_args(kind):
            allowed = ", ".join(get_args(kind))
            raise ConfigurationError(f"--set {name} must be one of {allowed}, got {text!r}")
        return text
    try:
        value = kind(text)
    except ValueError:
        value = None
    if value is None or not 0 <= value < float("inf"):
        wanted = "a whole number" if kind is int else "a number"
        raise ConfigurationError(f"--set {name} must be {wanted}, 0 or more, got {text!r}")
    return value
