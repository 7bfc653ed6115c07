"""Sessions: windows that last as long as records of a key keep coming."""

from __future__ import annotations

from dataclasses import dataclass

from minirt.units import Duration
from minirt.windows.base import Window, duration_ms, lateness_ms, shown_s


@dataclass(frozen=True, slots=True, init=False)
class Session(Window):
    """Records of a key of which each comes at most `gap` after another one; it ends `gap` after the last.

    A record that lies between two sessions joins them. Its result is given out when the watermark reaches
    the end, as no record up to there can come any more, and has that event time. A record is late if the
    watermark has passed its time by `gap` and `allowed_lateness`.
    """

    gap_ms: int
    allowed_lateness_ms: int

    def __init__(self, gap: Duration, *, allowed_lateness: Duration = 0) -> None:
        """Raises ConfigurationError."""
        object.__setattr__(self, "gap_ms", duration_ms(gap, "the gap of sessions"))
        object.__setattr__(self, "allowed_lateness_ms", lateness_ms(allowed_lateness))

    @property
    def shape(self) -> str:
        return f"sessions with gaps of {shown_s(self.gap_ms)}"

    @property
    def words(self) -> str:
        return f"{self.shape}, open for another {shown_s(self.allowed_lateness_ms)}"

    @property
    def takes_results_back(self) -> bool:
        return self.allowed_lateness_ms > 0
