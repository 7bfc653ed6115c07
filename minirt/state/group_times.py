"""A time for each key group of a subtask, which only goes up."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from minirt.state.event_times import runs_of
from minirt.state.stored import NO_WATERMARK, pack_event_time, unpack_event_time

Times = npt.NDArray[np.int64]


class GroupMarks:
    """Says of each key group up to where something was done for it."""

    def __init__(self, groups: range) -> None:
        self._groups = groups
        self._marks: Times = np.full(len(groups), NO_WATERMARK, np.int64)

    @property
    def least(self) -> int:
        return int(self._marks.min())

    def of(self, groups: npt.NDArray[np.integer]) -> Times:
        """The marks of these key groups."""
        return self._marks[groups.astype(np.int64) - self._groups.start]

    def mark(self, groups: npt.NDArray[np.integer], time: int) -> None:
        places = groups.astype(np.int64) - self._groups.start
        self._marks[places] = np.maximum(self._marks[places], time)

    def mark_all(self, time: int) -> None:
        self._marks = np.maximum(self._marks, time)

    def clear(self) -> None:
        """Nothing was done for any."""
        self._marks[:] = NO_WATERMARK

    def snapshot(self) -> bytes:
        return pack_event_time(self.least, runs_of(self._groups, self._marks))

    def restore(self, section: bytes) -> None:
        """Take over the marks of those key groups that a section names. Raises MalformedDataError."""
        _, known = unpack_event_time(section)
        for run in known:
            self._marks[run.within(self._groups)] = run.time
