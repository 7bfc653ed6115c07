"""What the user wants a job to start from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minirt.errors import ConfigurationError
from minirt.units import positive
from minirt.wording import given, named

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
            for option, value in (
                ("allow_non_restored_state", self.allow_non_restored_state),
                ("allow_restore_fallback", self.allow_fallback),
                ("ignore_in_flight_data_of", self.ignore_in_flight_data_of),
            ):
                if value:
                    raise ConfigurationError(
                        f"{given(option, value)} has no effect with {given('restore', which)}"
                    )
        elif isinstance(which, bool) or not isinstance(which, str | int) or which == "":
            raise ConfigurationError(
                f'{named("restore")} is "latest", "none", or the id or path of a checkpoint, not {which!r}'
            )
