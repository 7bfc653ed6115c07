"""How far the clocks of the workers are ahead of the coordinator's, measured by asking for the time.

The coordinator notes when it asks and when it hears the answer. Half way between, as far as anybody can
tell, the worker read its clock; that is wrong by half of the round trip at most. So of the last answers the
one counts that came back the quickest.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from minirt.protocol.trace import SubtaskTrace

_REMEMBERED = 64
"""Answers of a worker that are compared: clocks drift apart, by some seconds a day at most."""


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """In seconds; it is at most `error_s` off."""

    ahead_s: float
    error_s: float


class ClockOffsets:
    """The offsets of all workers of a generation."""

    def __init__(self) -> None:
        self._measured: dict[int, deque[ClockOffset]] = {}

    def clear(self) -> None:
        """Other processes take the places of the workers."""
        self._measured.clear()

    def note(self, worker: int, asked_at: float, answered_at: float, heard_at: float) -> None:
        """A worker has answered: `answered_at` by its clock, the others by the coordinator's."""
        half_s = max(0.0, heard_at - asked_at) / 2
        measured = self._measured.setdefault(worker, deque(maxlen=_REMEMBERED))
        measured.append(ClockOffset(answered_at - asked_at - half_s, half_s))

    def of(self, worker: int) -> ClockOffset | None:
        """The best that is known; None if the worker has not answered yet."""
        measured = self._measured.get(worker, ())
        return min(measured, key=lambda one: one.error_s, default=None)

    def aligned(self, trace: SubtaskTrace, worker: int) -> SubtaskTrace:
        """The trace of a subtask, with the offset of its worker's clock."""
        offset = self.of(worker)
        if offset is None:
            return trace
        return replace(trace, clock_ahead_s=offset.ahead_s, clock_error_s=offset.error_s)
