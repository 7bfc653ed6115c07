"""Holds the splits of a source subtask near the slowest one of its drift group."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from minirt.graph.drift import group_of
from minirt.protocol.drift import DRIFT_STEPS, Progress
from minirt.watermarks import Watermarks


class DriftGate:
    """Says which records of a subtask may be read by now, and tells the coordinator how far it is.

    Until the coordinator has answered, the first record of all decides how far others may go.
    """

    def __init__(
        self, group: str, max_drift_ms: int, bound_ms: int, tell: Callable[[Progress], None]
    ) -> None:
        self.holding = False
        """Whether nothing can be read but what lies too far ahead."""
        self._group = group
        self._max_drift_ms = max_drift_ms
        self._behind_ms = bound_ms + 1
        """How far a watermark is behind the newest record."""
        self._tell = tell
        self._told: Progress | None = None
        self._step_ms = max(1, max_drift_ms // DRIFT_STEPS)
        self._limit_ms: int | None = None

    @classmethod
    def of(cls, marks: Watermarks | None, tell: Callable[[Progress], None]) -> DriftGate | None:
        """That of a source with these watermarks; None if it waits for nobody."""
        if marks is None or marks.max_drift_ms is None:
            return None
        return cls(group_of(marks), marks.max_drift_ms, marks.bound_ms, tell)

    def limit(self, group: str, limit_ms: int) -> bool:
        """Heed a limit of the coordinator; returns whether it was meant for this source."""
        if group != self._group:
            return False
        self._limit_ms = limit_ms
        return True

    def holds(self, newest_ms: int | None) -> bool:
        """Whether a split is too far ahead to be read, whose newest record is of this time."""
        if newest_ms is None or self._limit_ms is None:
            return False
        return newest_ms - self._behind_ms > self._limit_ms

    def allowed(self, times: npt.NDArray[np.int64]) -> int:
        """How many of these records may be emitted at once: up to the first that gets too far ahead.

        That one is among them, or all would wait before a stretch of time in which nothing happened. It
        also ends behind a step, so that the coordinator hears of that before the limit is reached.
        """
        mark = int(times[0]) - self._behind_ms
        if self._limit_ms is None:
            self._limit_ms = mark + self._max_drift_ms
        beyond = times > min(self._limit_ms, mark + self._step_ms) + self._behind_ms
        return int(beyond.argmax()) + 1 if beyond.any() else len(times)

    def report(self, progress: Progress) -> None:
        """Tell how far the subtask is, unless that is nearly what was told last."""
        told = self._told
        if told is not None and told.complete == progress.complete:
            before, now = told.watermark, progress.watermark
            if before == now:
                return
            if before is not None and now is not None and 0 < now - before < self._step_ms:
                return
        self._told = progress
        self._tell(progress)
