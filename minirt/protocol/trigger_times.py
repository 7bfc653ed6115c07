"""When the checkpoints of a generation are due. Times are seconds of a monotonic clock."""

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
            interval_s = 0.0 if urgent else settings.interval_s
            self.due_at = max(
                self.last_triggered_at + interval_s,
                self.last_ended_at + settings.min_pause_s,
                now,
            )
        return self.due_at
