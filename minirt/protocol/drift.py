"""How far sources may be ahead of the slowest one of their group: who has to pause, and until when.

Each subtask of a source tells how far it is, in steps of a part of the drift. The coordinator answers with
the highest watermark that any of them may have; who is above it reads nothing until it rises. So a limit
that comes late costs time, and nobody is further ahead for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from minirt.protocol.ids import SubtaskId
from minirt.protocol.manifest import VertexEntry
from minirt.protocol.subtask_commands import LimitDrift

DRIFT_STEPS = 8
"""Into how many steps the drift is divided: less than one of them is no news."""


@dataclass(frozen=True, slots=True)
class DriftGroup:
    """Sources, by uid, whose watermarks stay within `max_drift_ms` of the least one."""

    name: str
    max_drift_ms: int
    sources: frozenset[str]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one subtask of a source is: the least watermark of its splits that are not idle.

    Without a watermark it holds nobody back, if it is `complete`: it is idle or has ended. Else a split of
    it has brought nothing yet, and nobody knows how far behind it is.
    """

    watermark: int | None
    complete: bool


NOTHING_YET = Progress(None, complete=False)
HOLDS_NOBODY = Progress(None, complete=True)


class _Limit:
    """The limit of one group."""

    def __init__(self, max_drift_ms: int, members: Iterable[SubtaskId]) -> None:
        self._max_drift_ms = max_drift_ms
        self._progress = dict.fromkeys(members, NOTHING_YET)
        self.limit_ms: int | None = None
        """None until any member has brought something: each goes by its own first watermark."""

    def on_progress(self, subtask: SubtaskId, progress: Progress) -> bool:
        """Whether the limit has changed."""
        self._progress[subtask] = progress
        before, self.limit_ms = self.limit_ms, self._limit()
        return self.limit_ms != before

    def _limit(self) -> int | None:
        told = self._progress.values()
        known = [one.watermark for one in told if one.watermark is not None]
        if not known:
            return self.limit_ms
        limit = min(known) + self._max_drift_ms
        if self.limit_ms is not None and not all(one.complete for one in told):
            return min(limit, self.limit_ms)  # What comes yet may be far behind.
        return limit


class DriftLimits:
    """The limits of all groups in one generation. They are told once all subtasks run."""

    def __init__(
        self, generation: int, groups: Iterable[DriftGroup], vertices: Collection[VertexEntry]
    ) -> None:
        self._generation = generation
        self._running = False
        self._limits: dict[str, _Limit] = {}
        self._group_of: dict[SubtaskId, str] = {}
        for group in groups:
            members = [
                SubtaskId(vertex.id, index)
                for vertex in vertices
                if group.sources.intersection(vertex.uids)
                for index in range(vertex.parallelism)
            ]
            self._limits[group.name] = _Limit(group.max_drift_ms, members)
            self._group_of |= dict.fromkeys(members, group.name)

    def on_running(self) -> Sequence[LimitDrift]:
        self._running = True
        return [self._tell(name) for name, one in self._limits.items() if one.limit_ms is not None]

    def on_progress(self, subtask: SubtaskId, progress: Progress) -> Sequence[LimitDrift]:
        name = self._group_of[subtask]
        changed = self._limits[name].on_progress(subtask, progress)
        return [self._tell(name)] if changed and self._running else []

    def _tell(self, name: str) -> LimitDrift:
        limit_ms = self._limits[name].limit_ms
        assert limit_ms is not None
        return LimitDrift(self._generation, name, limit_ms)
