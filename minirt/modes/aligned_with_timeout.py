"""Aligned with timeout: blocks as aligned does, and overtakes once that takes too long or costs little."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from minirt.errors import ConfigurationError
from minirt.protocol.barriers import (
    Alignment,
    BlockChannel,
    Command,
    OvertakeOutputs,
    ScheduleTimer,
    StopCapture,
    TakeSnapshot,
    WatchOutputs,
    unaligned_snapshot,
)
from minirt.units import Duration, Size, seconds, size_bytes

_LOOK_EVERY_S = 0.01
"""How often the bytes that would be captured are looked at, once all barriers have arrived."""
_LOOK_EVERY_PART = 1 / 16
"""Or this part of its age later, if that is more: each look costs time in proportion to the channels."""


@dataclass(frozen=True)
class AlignedWithTimeout:
    """Exactly once: aligned without backpressure, and as quick as unaligned under backpressure.

    Each subtask decides for itself, with its barriers still on their way in or already on their way
    out. Raises ConfigurationError for options that cannot work.

    Source: Flink's aligned checkpoint timeout, FLINK-23041 (age) and FLINK-27251 (outputs).
    """

    timeout: Duration | None = "1s"
    """The age of a checkpoint, since its trigger, at which its barriers overtake; None: at no age."""
    switch_below: Size | None = None
    """They also do once all have arrived and overtake at most so many bytes, in all queues of a subtask."""

    name: ClassVar[str] = "aligned_with_timeout"
    exactly_once: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.timeout is None and self.switch_below is None:
            raise ConfigurationError(
                f'{self.name} without timeout and switch_below never overtakes: that is mode "aligned"'
            )
        if self.timeout is not None and seconds(self.timeout, "timeout") == 0:
            raise ConfigurationError(
                f'{self.name}: timeout must be positive; mode "unaligned" overtakes at once'
            )
        if self.switch_below is not None and size_bytes(self.switch_below, "switch_below") == 0:
            raise ConfigurationError(f"{self.name}: switch_below must be at least 1 byte")

    def __eq__(self, other: object) -> bool:
        """However the same time and size were written."""
        return isinstance(other, AlignedWithTimeout) and self._meaning == other._meaning

    def __hash__(self) -> int:
        return hash(self._meaning)

    @property
    def _meaning(self) -> tuple[float | None, int | None]:
        return self.timeout_s, self.switch_below_bytes

    @property
    def timeout_s(self) -> float | None:
        return None if self.timeout is None else seconds(self.timeout)

    @property
    def switch_below_bytes(self) -> int | None:
        return None if self.switch_below is None else size_bytes(self.switch_below)

    def on_arrived(self, alignment: Alignment, channel: int) -> list[Command]:
        if alignment.snapshot_taken:
            return [StopCapture(channel)]
        reason = self._too_old(alignment)
        if reason is not None:
            return unaligned_snapshot(alignment, reason)
        return self._timers(alignment)

    def on_reached(self, alignment: Alignment, channel: int) -> list[Command]:
        if alignment.snapshot_taken:
            return []
        reason = self._too_old(alignment)
        if reason is not None:
            return unaligned_snapshot(alignment, reason) or [BlockChannel(channel)]
        if alignment.all_reached:
            return [
                TakeSnapshot(alignment.barrier),
                WatchOutputs(alignment.barrier.checkpoint_id),
            ]
        return [BlockChannel(channel)]

    def on_timer(self, alignment: Alignment) -> list[Command]:
        checkpoint_id = alignment.barrier.checkpoint_id
        reason = self._too_old(alignment) or self._cheap(alignment)
        if reason is None:
            later_s = max(_LOOK_EVERY_S, _LOOK_EVERY_PART * alignment.age_s)
            return [ScheduleTimer(checkpoint_id, alignment.now + later_s)]
        if not alignment.snapshot_taken:
            return unaligned_snapshot(alignment, reason)
        if alignment.outputs_watched:
            return [OvertakeOutputs(checkpoint_id, reason)]
        return []

    def _timers(self, alignment: Alignment) -> list[Command]:
        """One for the timeout with the first barrier, one to look at the size with the last."""
        checkpoint_id = alignment.barrier.checkpoint_id
        timers: list[Command] = []
        if self.timeout is not None and len(alignment.arrived) == 1:
            timers.append(ScheduleTimer(checkpoint_id, self._deadline(alignment)))
        if self.switch_below is not None and alignment.all_arrived:
            timers.append(ScheduleTimer(checkpoint_id, alignment.now))
        return timers

    def _deadline(self, alignment: Alignment) -> float:
        return alignment.barrier.created_at + (self.timeout_s or 0.0)

    def _too_old(self, alignment: Alignment) -> str | None:
        # Compared as the timer was set: created_at + timeout - created_at may be less than timeout.
        if self.timeout_s is None or alignment.now < self._deadline(alignment):
            return None
        return f"age {alignment.age_s:.3f} s passed the timeout {self.timeout_s:g} s"

    def _cheap(self, alignment: Alignment) -> str | None:
        limit = self.switch_below_bytes
        if limit is None or not (alignment.all_arrived and alignment.may_capture):
            return None
        if alignment.capture_bytes > limit:
            return None
        return f"size {alignment.capture_bytes} B <= switch_below {limit} B"
