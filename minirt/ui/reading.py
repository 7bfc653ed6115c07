"""What is known of a job at one moment, as plain values of JSON, wherever it was read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Plain = dict[str, Any]

ACTIONS = ("savepoint", "stop", "cancel", "rescale")
"""What a page may ask a running job to do."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A job at the time `figures["at"]`.

    `figures` are as `JobFigures.to_plain` gives them, `description` as `describe_job`, `checkpoints` and
    `newest` as `minirt.operations.details` gives summaries and parts.
    """

    figures: Plain
    description: Plain
    checkpoints: Sequence[Plain] = ()
    """Summaries of those that are over, oldest first."""
    newest: Plain | None = None
    """The newest completed one, with its parts."""
    under_way: Sequence[Plain] = ()
    """Those that are being taken, the oldest first, with the parts that have come."""
    events: Sequence[Plain] = ()
    """Restarts and ends, oldest first: `at`, `event`, `generation`, `cause`."""
    logs: Sequence[Plain] = ()
    """The newest messages, oldest first: `at`, `level`, `logger`, `text`, `operator`, `subtask`."""
    live: bool = True
    """Whether figures are of this second, and the job can be asked to do something."""
    note: str | None = None
    """What whoever looks should know about the reading itself."""
    uses: tuple[str, ...] = field(default=())
    """Which of `ACTIONS` can be asked for."""


class Subject(Protocol):
    """A job that somebody looks at. Calls come from one thread at a time, except `act`."""

    def read(self) -> Reading:
        """The job now. Raises MinirtError if it can be read no more."""

    def checkpoint(self, checkpoint_id: int, generation: int) -> Plain:
        """One that is over, with its parts. Raises MinirtError if nobody remembers it."""

    def act(self, action: str, arguments: Plain) -> Plain:
        """Have the job do one of `ACTIONS`, and wait for it. Raises MinirtError as the job does."""
