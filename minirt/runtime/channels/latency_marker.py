"""What a source sends along with its records now and then: others see how long these are on the way."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LatencyMarker:
    """`source` is the uid of the source, `emitted_at` when it left that.

    This is by the monotonic clock of the process that has the marker: on its way from another one it is
    corrected.
    """

    source: str
    emitted_at: float
