"""When a source emits its latency markers."""

from __future__ import annotations

from minirt.runtime.channels.latency_marker import LatencyMarker


class LatencyTimer:
    """Markers of the source with this uid, every `interval_s`; the first one an interval after `now`.

    One that is late, since the source had no room for output, is not made up for. Between two of them the
    source has its turn to read, however long that takes: else it might never read.
    """

    def __init__(self, source: str, interval_s: float, now: float) -> None:
        self._source = source
        self._interval_s = interval_s
        self.due_at = now + interval_s
        """When the next one is due, by the monotonic clock."""
        self._emitted = False
        """Whether one was given out the last time."""

    def emit(self, now: float) -> LatencyMarker | None:
        """The one that is due; None if there is none, or the source must read first."""
        self._emitted = now >= self.due_at and not self._emitted
        if not self._emitted:
            return None
        self.due_at = now + self._interval_s
        return LatencyMarker(self._source, now)
