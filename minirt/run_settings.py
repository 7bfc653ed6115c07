"""How one run of a job is to go: what `Environment.execute` and `start` were given, checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from minirt.config import Checkpointing, Options, positive
from minirt.errors import ConfigurationError
from minirt.protocol.restarts import RestartStrategy

if TYPE_CHECKING:
    from minirt.runtime.observer import JobObserver

FRESH = "none"
"""What `restore` says to start from the beginning although there are checkpoints."""


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """What a job starts from: "latest", a checkpoint's id or path; FRESH or None for the beginning.

    Raises ConfigurationError for options that cannot work or would have no effect.
    """

    which: str | int | None = None
    allow_non_restored_state: bool = False
    allow_fallback: bool = False
    ignore_in_flight_data_of: int | None = None
    """A checkpoint whose in-flight data is dropped if it is the one that is restored."""

    def __post_init__(self) -> None:
        which: Any = self.which
        if self.ignore_in_flight_data_of is not None:
            positive("ignore_in_flight_data_of", self.ignore_in_flight_data_of)
        if which in (None, FRESH):
            for option, given in (
                ("allow_non_restored_state", self.allow_non_restored_state),
                ("allow_restore_fallback", self.allow_fallback),
                ("ignore_in_flight_data_of", self.ignore_in_flight_data_of),
            ):
                if given:
                    raise ConfigurationError(f"{option} has no effect with restore={which!r}")
        elif isinstance(which, bool) or not isinstance(which, str | int) or which == "":
            raise ConfigurationError(
                f'restore is "latest", "none", or the id or path of a checkpoint, not {which!r}'
            )


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Everything that a run needs besides the job. Raises ConfigurationError for what cannot work."""

    checkpointing: Checkpointing | None = None
    restore: RestoreOptions = field(default_factory=RestoreOptions)
    restart: RestartStrategy | None = None
    """None stands for the default, which depends on whether there are checkpoints."""
    options: Options = field(default_factory=Options)
    observer: JobObserver | None = None

    def __post_init__(self) -> None:
        if self.checkpointing is not None:
            _check_type("checkpointing", self.checkpointing, Checkpointing)
        _check_type("options", self.options, Options)
        if self.restart is not None and not callable(getattr(self.restart, "start", None)):
            raise ConfigurationError(
                f"restart is a strategy such as Restart.fixed_delay(), not {self.restart!r}"
            )
        if self.checkpointing is None and self.restore.which is not None:
            raise ConfigurationError(
                f"restore={self.restore.which!r} needs checkpointing: it says where checkpoints are"
            )


def _check_type(option: str, value: object, wanted: type) -> None:
    if not isinstance(value, wanted):
        raise ConfigurationError(f"{option}: expected {wanted.__name__}, got {value!r}")
