"""When the checkpoints of a generation are due. Times are seconds of a monotonic clock.

At least half of the time goes to records, whatever the interval: for as long as checkpoints have left no
room for a further one, none begins behind that. A checkpoint that takes at most half an interval puts
nothing off.
"""

from __future__ import annotations

from dataclasses import dataclass

from minirt.protocol.checkpoint_settings import CheckpointSettings
from minirt.protocol.pauses import pause_s

_PAUSE_S, _PAUSE_S_MAX = 0.1, 6.4


@dataclass(slots=True)
class TriggerTimes:
    """Those of the past, and of the next one."""

    settings: CheckpointSettings
    due_at: float | None = None
    """When the next one is. A timer that fires earlier belongs to an earlier plan."""
    last_triggered_at: float = 0.0
    last_ended_at: float = 0.0
    full_since: float | None = None
    """Since when no further checkpoint may begin, as there are as many as may be; None if one may."""
    rest_until: float = 0.0
    """Records have this time to themselves: as much as checkpoints have had before."""

    def on_full(self, now: float) -> None:
        """The checkpoints that are under way leave no room for a further one."""
        if self.full_since is None:
            self.full_since = now

    def on_room(self, now: float) -> float:
        """They do again; returns by how many seconds the next one is put off for that."""
        if self.full_since is None:
            return 0.0
        self.rest_until, self.full_since = now + (now - self.full_since), None
        if self.settings.interval_s is None:
            return 0.0
        return max(0.0, self.rest_until - self._wanted_at(self.settings.interval_s, now))

    def on_completed(self, created_at: float, now: float) -> None:
        """A checkpoint is complete. Later ones may have been triggered since it was created."""
        self.last_triggered_at = max(self.last_triggered_at, created_at)
        self.last_ended_at = now

    def are_due(self, now: float, *, urgent: bool) -> bool:
        """Whether the time of the next one has come."""
        return self.due_at is not None and (now >= self.due_at or urgent)

    def plan_next(self, failures: int | None, *, urgent: bool, now: float) -> float | None:
        """When the next one is due; None if the job takes none.

        `failures`: how often the last checkpoint of the job has failed, which is to be tried again.
        """
        settings = self.settings
        if failures is not None:
            self.due_at = now + pause_s(_PAUSE_S, _PAUSE_S_MAX, failures)
        elif settings.interval_s is None:
            return None
        else:
            # An urgent one lets records go on that wait for it.
            interval_s = 0.0 if urgent else settings.interval_s
            wanted_at = self._wanted_at(interval_s, now)
            self.due_at = wanted_at if urgent else max(wanted_at, self.rest_until)
        return self.due_at

    def _wanted_at(self, interval_s: float, now: float) -> float:
        """When the next one is due as the user has set it."""
        return max(
            self.last_triggered_at + interval_s,
            self.last_ended_at + self.settings.min_pause_s,
            now,
        )
