"""When sources are told how far they are stored: behind each manifest, until one telling succeeds.

Only the newest offsets count, so a failure is no loss: the next manifest tells more. Between two of them
a timer tries again.
"""

from __future__ import annotations

from minirt.protocol.job_events import JobCommand, SetTimer, Timer, TimerKind
from minirt.protocol.pauses import pause_s
from minirt.protocol.source_offsets import SourceOffsets, SourcesNotTold, TellSources

_PAUSE_S, _PAUSE_S_MAX = 0.5, 30.0


class SourceTelling:
    """What the sources of one generation have yet to be told."""

    def __init__(self) -> None:
        self._untold: TellSources | None = None
        self._failures_in_a_row = 0

    def on_stored(self, checkpoint_id: int, offsets: tuple[SourceOffsets, ...]) -> list[JobCommand]:
        """The manifest exists that holds these offsets."""
        if not offsets:
            return []
        self._untold = TellSources(checkpoint_id, offsets)
        return [self._untold]

    def on_told(self, checkpoint_id: int) -> list[JobCommand]:
        self._failures_in_a_row = 0
        if self._untold is not None and self._untold.checkpoint_id == checkpoint_id:
            self._untold = None
        return []

    def on_not_told(self, event: SourcesNotTold, now: float) -> list[JobCommand]:
        if self._untold is None or self._untold.checkpoint_id != event.checkpoint_id:
            return []  # A newer telling is under way.
        again_at = now + pause_s(_PAUSE_S, _PAUSE_S_MAX, self._failures_in_a_row)
        self._failures_in_a_row += 1
        return [SetTimer(Timer(TimerKind.TELL, event.checkpoint_id), again_at)]

    def on_timer(self, checkpoint_id: int) -> list[JobCommand]:
        untold = self._untold
        return [untold] if untold is not None and untold.checkpoint_id == checkpoint_id else []
