"""What the wall clock showed: for people who read it later. Nothing is decided by it."""

from __future__ import annotations


class Dates:
    """Tells the date of a moment of the monotonic clock, as the wall clock is set by now."""

    def __init__(self) -> None:
        self._ahead_s = 0.0

    def set(self, now: float, wall: float) -> None:
        """The wall clock shows `wall` at the moment `now`."""
        self._ahead_s = wall - now

    def of(self, moment: float) -> float:
        """In seconds since 1970."""
        return moment + self._ahead_s
