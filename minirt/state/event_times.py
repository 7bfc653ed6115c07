"""How far event time has come for each key group of a subtask."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from minirt.protocol.watermarks import MAX_WATERMARK
from minirt.state.stored import NO_WATERMARK, GroupTimes, pack_event_time, unpack_event_time

Times = npt.NDArray[np.int64]


class EventTimes:
    """The watermark that each key has seen.

    It is the watermark of the subtask, unless state of several old subtasks has come together: keys of
    one that was ahead are ahead until the watermark has caught up, so what was late for them stays late.
    The end of event time is not stored, since a restored job may go on with more records.
    """

    def __init__(self, groups: range) -> None:
        self._groups = groups
        self._least = NO_WATERMARK
        self._ended = False
        self._ahead: Times | None = None
        """By key group, while they differ."""
        self._restored: Times = np.full(len(groups), NO_WATERMARK, np.int64)
        self._unknown = np.full(len(groups), True)
        self._of_unknown: int | None = None

    @property
    def least(self) -> int:
        """The watermark that all keys have seen."""
        return MAX_WATERMARK if self._ended else self._least

    @property
    def greatest(self) -> int:
        """The newest watermark that any key has seen."""
        return self.least if self._ahead is None else max(self.least, int(self._ahead.max()))

    @property
    def reached(self) -> int:
        """As `least`, but the end of input does not count: nothing is older for it."""
        return self._least

    def reached_by(self, groups: npt.NDArray[np.integer]) -> Times:
        """As `of`, but the end of input does not count."""
        if self._ahead is None:
            return np.full(len(groups), self._least, np.int64)
        return np.maximum(self._ahead[groups.astype(np.int64) - self._groups.start], self._least)

    @property
    def differ(self) -> bool:
        """Whether some keys have seen more than others."""
        return self._ahead is not None and not self._ended

    def of(self, groups: npt.NDArray[np.integer]) -> Times:
        """The watermark that keys of these key groups have seen."""
        if self._ended:
            return np.full(len(groups), MAX_WATERMARK, np.int64)
        return self.reached_by(groups)

    def advance(self, watermark: int) -> None:
        if watermark == MAX_WATERMARK:
            self._ended = True
            return
        self._least = max(self._least, watermark)
        if self._ahead is not None and self._least >= self._ahead.max():
            self._ahead = None

    def snapshot(self) -> bytes:
        if self._ahead is None:
            return pack_event_time(self._least, [GroupTimes(self._groups, self._least)])
        return pack_event_time(
            self._least, runs_of(self._groups, np.maximum(self._ahead, self._least))
        )

    def restore(self, section: bytes) -> None:
        """Merge what an old subtask has seen. Raises MalformedDataError.

        A section without key groups holds for all key groups that no section names. If there are several
        such sections, the least one counts, so that nothing becomes late that was not late before.
        """
        least, known = unpack_event_time(section)
        for run in known:
            own = run.within(self._groups)
            self._restored[own] = run.time
            self._unknown[own] = False
        if not known:
            self._of_unknown = least if self._of_unknown is None else min(self._of_unknown, least)
        if self._of_unknown is not None:
            self._restored[self._unknown] = self._of_unknown
        self._least = int(self._restored.min(initial=MAX_WATERMARK))
        self._ahead = self._restored if (self._restored != self._least).any() else None


def runs_of(groups: range, times: Times) -> Iterable[GroupTimes]:
    """Key groups next to each other with the same time, as one."""
    bounds = [0, *(np.flatnonzero(np.diff(times)) + 1).tolist(), len(times)]
    for first, stop in pairwise(bounds):
        yield GroupTimes(groups[first:stop], int(times[first]))
