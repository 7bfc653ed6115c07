"""What a subtask counts while it runs."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(slots=True)
class SubtaskMetrics:
    """Totals since the subtask started. Busy, idle, soft and hard add up to its life, in seconds.

    *Soft*: it has input but no room for output, and can still take a barrier. *Hard*: it is stuck inside
    one record, because there is no room for that record's output, neither in memory nor on disk.
    """

    records_in: int = 0
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    busy_s: float = 0.0
    idle_s: float = 0.0
    soft_backpressure_s: float = 0.0
    hard_backpressure_s: float = 0.0
    watermark: int | None = None
    queued_in_bytes: int = 0
    queued_out_bytes: int = 0
    spilled_bytes: int = 0
    """Output that was written to disk, as memory had no room for it."""
    input_window_bytes: int = 0
    """What the input channels may hold together; debloating changes it."""
    late_records: int = 0
    """Records that came too late for their window."""

    def as_tuple(self) -> tuple[float | int | None, ...]:
        return tuple(getattr(self, field.name) for field in fields(self))
