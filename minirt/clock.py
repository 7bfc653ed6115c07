"""The two clocks of a process: it measures durations by one, and the other one is for people.

The wall clock says what time it is, and may be set back or forward at any moment. So it is for people, and
for the processing-time timers that users set by it. All else uses the monotonic clock: how long a thing
took, when it is due, who has been silent for too long. Each process's monotonic clock begins anywhere: two
processes never compare theirs.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where a process reads the time. Both are in seconds."""

    def now(self) -> float:
        """The wall clock: seconds since 1970."""

    def monotonic(self) -> float:
        """A clock that never goes back, and that nobody sets."""


class SystemClock:
    """The clocks of the machine."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


SYSTEM_CLOCK = SystemClock()
