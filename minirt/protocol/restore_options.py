"""What the user wants a job to start from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from minirt import wording
from minirt.errors import ConfigurationError
from minirt.units import positive
from minirt.wording import given

_OUTPUT_OF = re.compile(r"(?P<uid>.+)@(?P<checkpoint>[1-9][0-9]*)", re.ASCII | re.DOTALL)

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
    give_up_output_of: str | None = None
    """A sink's uid and the id of the restored checkpoint, as "uid@7": what that checkpoint holds of the
    sink's output is not committed, but dropped."""

    def __post_init__(self) -> None:
        which: Any = self.which
        if self.ignore_in_flight_data_of is not None:
            positive("ignore_in_flight_data_of", self.ignore_in_flight_data_of)
        if self.give_up_output_of is not None:
            output_of(self.give_up_output_of)
        if which in (None, FRESH):
            for option, value in (
                ("allow_non_restored_state", self.allow_non_restored_state),
                ("allow_restore_fallback", self.allow_fallback),
                ("ignore_in_flight_data_of", self.ignore_in_flight_data_of),
                ("give_up_output_of", self.give_up_output_of),
            ):
                if value:
                    raise ConfigurationError(
                        f"{given(option, value)} has no effect with {given('restore', which)}"
                    )
        elif isinstance(which, bool) or not isinstance(which, str | int) or which == "":
            raise ConfigurationError(
                f'{wording.named("restore")} is "latest", "none", or the id or path of a checkpoint, '
                f"not {which!r}"
            )


def output_of(named: object) -> tuple[str, int]:
    """The sink's uid and the checkpoint's id in what `give_up_output_of` says.

    Raises ConfigurationError unless it is a text such as "uid@7".
    """
    found = _OUTPUT_OF.fullmatch(named) if isinstance(named, str) else None
    if found is None:
        raise ConfigurationError(
            f"{wording.named('give_up_output_of')} is the uid of a sink and the id of the checkpoint that "
            f'is restored, joined by @, such as "out@7", not {named!r}'
        )
    return found["uid"], int(found["checkpoint"])
