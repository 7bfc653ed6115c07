"""The figures that a subtask counts while it runs, and where its time goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from minirt.monitoring.latency import NO_LATENCIES, LatencyHistogram
from minirt.protocol.watermarks import MAX_WATERMARK


@dataclass(slots=True)
class SubtaskMetrics:
    """Totals since the subtask started. Busy, idle, soft, hard and drift add up to its life, in seconds.

    *Busy*: it has input and room for output; it works, or waits for its turn in its process. *Soft*: it has
    input but no room for output, and can still take a barrier. *Hard*: it is stuck inside one record,
    because there is no room for that record's output, neither in memory nor on disk. *Drift*: it is a
    source that reads nothing because it is too far ahead of others in its drift group. Else it is *idle*.
    """

    records_in: int = 0
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    protocol_bytes_out: int = 0
    """Barriers, and marks of local snapshots, that were put into output channels."""
    busy_s: float = 0.0
    idle_s: float = 0.0
    soft_backpressure_s: float = 0.0
    hard_backpressure_s: float = 0.0
    drift_pause_s: float = 0.0
    watermark: int | None = None
    queued_in_bytes: int = 0
    queued_out_bytes: int = 0
    output_queue_use: float = 0.0
    """How full the fullest output queue is; above 1 it holds more than it should."""
    spilled_bytes: int = 0
    """Output bytes that went to disk, because memory had no room for them."""
    input_window_bytes: int = 0
    """How many bytes the input channels may hold together; debloating changes it."""
    late_records: int = 0
    """Records that came too late for their window."""
    waiting_records: int = 0
    waiting_bytes: int = 0
    """Records that joins and top_n keep, and about what they take in memory."""
    latency: Mapping[str, LatencyHistogram] = field(default_factory=dict)
    """By the uid of a source, how long its latency markers took until here."""

    def note_latency(self, source: str, latency_s: float) -> None:
        """A marker has come. The mapping is never changed, only replaced: other threads copy it."""
        known = self.latency.get(source, NO_LATENCIES)
        self.latency = {**self.latency, source: known.noted(latency_s)}

    @property
    def input_queue_use(self) -> float:
        """How full the input queues are together."""
        return self.queued_in_bytes / self.input_window_bytes if self.input_window_bytes else 0.0

    @property
    def watermark_s(self) -> float | None:
        """The watermark in seconds since 1970; None before the first and after the last one."""
        return None if self.watermark in (None, MAX_WATERMARK) else self.watermark / 1000

    @property
    def accounted_s(self) -> float:
        """How long the subtask has lived."""
        pressed_s = self.soft_backpressure_s + self.hard_backpressure_s
        return self.busy_s + self.idle_s + pressed_s + self.drift_pause_s


class Activity(Enum):
    """What a subtask does with its time; the value names the field of `SubtaskMetrics` that counts it."""

    BUSY = "busy_s"
    IDLE = "idle_s"
    SOFT_BACKPRESSURE = "soft_backpressure_s"
    HARD_BACKPRESSURE = "hard_backpressure_s"
    DRIFT_PAUSE = "drift_pause_s"

    @classmethod
    def of_wait(cls, *, has_input: bool, full: bool, held_by_drift: bool) -> Activity:
        """What the time of a subtask counts as that is not in the middle of a slice."""
        if not has_input:
            return cls.DRIFT_PAUSE if held_by_drift else cls.IDLE
        return cls.SOFT_BACKPRESSURE if full else cls.BUSY


class TimeAccount:
    """Counts every moment once: from one call to the next, a subtask does what the first call said.

    Times are seconds of any clock that never goes back. It begins idle.
    """

    def __init__(self, metrics: SubtaskMetrics, now: float) -> None:
        self._metrics = metrics
        self._activity = Activity.IDLE
        self._since = now

    def turn_to(self, activity: Activity, now: float) -> None:
        self.settle(now)
        self._activity = activity

    def settle(self, now: float) -> None:
        """Count the time until now, in the middle of whatever the subtask does."""
        field = self._activity.value
        setattr(self._metrics, field, getattr(self._metrics, field) + now - self._since)
        self._since = now

    def settled(self, now: float) -> SubtaskMetrics:
        """A copy of the figures as `settle` would leave them. Other threads may call it.

        If the subtask turns to something else meanwhile, the copy is as of the turn before or after.
        """
        field, since, copy = self._activity.value, self._since, replace(self._metrics)
        if since == self._since:
            setattr(copy, field, getattr(copy, field) + max(0.0, now - since))
        return copy
