"""The parallelism of a job that follows the slots of its hosts: when it shrinks, when it grows, how often.

A generation begins once there are slots for the parallelism of the one before, or fewer after a time:
at the start the cluster waits, after a loss the job does. While it runs, slots that have come are used
behind a checkpoint, which loses no work. Slots that come and go must not cost a restart each time, so
they have to stay for a while first, and a job grows only so often.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from minirt.errors import ConfigurationError, CorruptCheckpointError
from minirt.protocol.job_events import JobCommand, PrepareGeneration
from minirt.protocol.manifest import ManifestKey
from minirt.protocol.slots import AwaitSlots

Damaged = Mapping[ManifestKey, CorruptCheckpointError]


class Parallelism:
    """Chooses that of each generation. This one leaves it as the job states it, whatever slots there are.

    `damaged` are the checkpoints that the generation must pass over.
    """

    def begin(self, damaged: Damaged) -> JobCommand:
        """What the next generation begins with."""
        return PrepareGeneration(damaged)

    def on_awaited(self, slots: int, damaged: Damaged) -> list[JobCommand]:
        """The next generation may begin with so many slots."""
        return []

    def on_not_prepared(self, error: Exception, fatal: bool, damaged: Damaged) -> list[JobCommand]:
        """What to do in place of failing; empty for nothing."""
        return []

    def on_prepared(self) -> None:
        """The job could be restored at the parallelism that was chosen."""

    def on_slots(self, slots: int, now: float) -> None:
        """There are so many slots from now on."""

    def grows(self, now: float) -> bool:
        """Whether the job should begin another generation behind the checkpoint of this moment."""
        return False

    def on_grown(self, now: float) -> None:
        """It does so."""


UNCHANGING = Parallelism()


@dataclass(frozen=True, slots=True)
class ReactiveSettings:
    """The bounds of the parallelism. Times in seconds."""

    wanted: int
    """What the job states: with as many slots it begins at once."""
    least: int
    most: int
    settle_s: float
    """How long the slots must have been the same before the job grows."""
    patience_s: float
    """How long a job that has run waits for slots that it has lost."""
    rescales: int
    """How often it may grow within `per_s`."""
    per_s: float


class Reactive(Parallelism):
    """It follows the slots. Times are those of a monotonic clock."""

    def __init__(self, settings: ReactiveSettings) -> None:
        self._settings = settings
        self._chosen = settings.wanted
        self._ran: int | None = None
        """The parallelism at which a generation could be prepared last."""
        self._awaits = False
        self._slots = 0
        self._slots_since = 0.0
        self._refused: int | None = None
        """What the job could not be restored at, since it last changed its parallelism."""
        self._grown: deque[float] = deque(maxlen=settings.rescales)
        """When the job grew, the last times."""

    def begin(self, damaged: Damaged) -> JobCommand:
        self._awaits = True
        patience_s = math.inf if self._ran is None else self._settings.patience_s
        return AwaitSlots(self._chosen, min(self._settings.least, self._chosen), patience_s)

    def on_awaited(self, slots: int, damaged: Damaged) -> list[JobCommand]:
        if not self._awaits:
            return []
        self._awaits = False
        self._chosen = min(slots, self._settings.most)
        return [PrepareGeneration(damaged, self._chosen)]

    def on_not_prepared(self, error: Exception, fatal: bool, damaged: Damaged) -> list[JobCommand]:
        """A job that cannot be restored at another parallelism goes on at the one before."""
        self._awaits = False
        before = self._ran
        refused = fatal and isinstance(error, ConfigurationError)
        if not refused or before is None or before == self._chosen:
            return []
        self._refused, self._chosen = self._chosen, before
        return [PrepareGeneration(damaged, before)]

    def on_prepared(self) -> None:
        if self._ran != self._chosen:
            self._refused = None
        self._ran = self._chosen

    def on_slots(self, slots: int, now: float) -> None:
        if slots != self._slots:
            self._slots, self._slots_since = slots, now

    def grows(self, now: float) -> bool:
        target, settings = min(self._slots, self._settings.most), self._settings
        if target <= self._chosen or target == self._refused:
            return False
        if now - self._slots_since < settings.settle_s:
            return False
        full = len(self._grown) == settings.rescales
        return not (full and now - self._grown[0] < settings.per_s)

    def on_grown(self, now: float) -> None:
        self._grown.append(now)
